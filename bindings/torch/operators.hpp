// The operators, in the order of their schemas (operators.cpp).
#pragma once

#include <torch/headeronly/core/ScalarType.h>

#include "arguments.hpp"

namespace canopy_torch {

using Name = std::optional<std::string>;
using OutDtype = std::optional<torch::headeronly::ScalarType>;

Tensor plan(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling, const Maybe& count,
            const Maybe& slot_index, int64_t slots, int64_t padding_slot);
void plan_out(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling, const Maybe& count,
              const Maybe& slot_index, const Tensor& plan, int64_t slots, int64_t padding_slot);
Tensor verify(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state, const Maybe& parents,
              const Maybe& plan, const Maybe& g, const Maybe& beta, const Maybe& slot_index, const Maybe& count,
              const Maybe& a, const Maybe& b, const Maybe& a_log, const Maybe& dt_bias, const Maybe& next_token,
              const Maybe& next_sibling, bool beta_doubled, bool l2norm, double l2norm_eps, double scale,
              int64_t state_layout, int64_t padding_slot, int64_t precision, int64_t max_depth,
              const Name& implementation, const OutDtype& out_dtype);
void verify_out(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state, const Tensor& o,
                const Maybe& workspace, const Maybe& parents, const Maybe& plan, const Maybe& g, const Maybe& beta,
                const Maybe& slot_index, const Maybe& count, const Maybe& a, const Maybe& b, const Maybe& a_log,
                const Maybe& dt_bias, const Maybe& next_token, const Maybe& next_sibling, const Maybe& stash_u,
                const Maybe& stash_l, const Maybe& row_status, bool beta_doubled, bool l2norm, double l2norm_eps,
                double scale, int64_t state_layout, int64_t padding_slot, int64_t precision, int64_t max_depth,
                const Name& implementation);
void commit(const Tensor& k, const Maybe& v, const Tensor& leaf, const Tensor& state, const Maybe& workspace,
            const Maybe& parents, const Maybe& plan, const Maybe& g, const Maybe& beta, const Maybe& slot_index,
            const Maybe& count, const Maybe& a, const Maybe& b, const Maybe& a_log, const Maybe& dt_bias,
            const Maybe& next_token, const Maybe& next_sibling, const Maybe& dst_slot, const Maybe& track_leaf,
            const Maybe& track_slot, const Maybe& stash_u, const Maybe& stash_l, const Maybe& row_status,
            bool beta_doubled, bool l2norm, double l2norm_eps, int64_t state_layout, int64_t padding_slot,
            int64_t method, const Name& implementation);

Tensor conv1d_tree(const Tensor& x, const Tensor& state, const Tensor& weight, const Maybe& bias, const Maybe& parents,
                   const Maybe& plan, const Maybe& slot_index, const Maybe& count, const Maybe& next_token,
                   const Maybe& next_sibling, bool silu, int64_t padding_slot, const Name& implementation,
                   const OutDtype& out_dtype);
void conv1d_tree_out(const Tensor& x, const Tensor& state, const Tensor& weight, const Tensor& o, const Maybe& bias,
                     const Maybe& parents, const Maybe& plan, const Maybe& slot_index, const Maybe& count,
                     const Maybe& next_token, const Maybe& next_sibling, const Maybe& row_status, bool silu,
                     int64_t padding_slot, const Name& implementation);
void conv1d_commit(const Tensor& x, const Tensor& leaf, const Tensor& state, const Maybe& parents, const Maybe& plan,
                   const Maybe& slot_index, const Maybe& count, const Maybe& next_token, const Maybe& next_sibling,
                   const Maybe& dst_slot, const Maybe& track_leaf, const Maybe& track_slot, const Maybe& row_status,
                   int64_t padding_slot, const Name& implementation);

}  // namespace canopy_torch
