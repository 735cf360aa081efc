// Host side of everything that takes FusedArguments: what the tensor-core kernels refuse, and a call as they see it.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/tile/shape.cuh"
#include "message.hpp"

namespace canopy::cuda {

// "" if every row of the tensor starts on a 16-byte boundary. `instead`: who takes the others.
inline std::string misaligned(const char* name, const Tensor& tensor, const char* instead) {
  if (!tensor.data) return {};
  const int bytes = tensor.dtype == CANOPY_F32 ? 4 : 2;
  const bool ok = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 &&
                  (tensor.stride[1] | tensor.stride[2] | tensor.stride[3]) * bytes % 16 == 0;
  if (ok && !fits_rows(tensor))
    return text(name, ".stride[2] = ", tensor.stride[2], ": expected less than 4 GiB from node to node; ",
                "copy it to a closer tensor, or use ", instead);
  if (ok) return {};
  return text(name, ": expected rows on 16-byte boundaries (address and strides multiples of ", 16 / bytes,
              " elements), got strides ", tensor.stride[1], ", ", tensor.stride[2], ", ", tensor.stride[3],
              "; copy it to an aligned tensor, or use ", instead);
}

// K, V and the grid.
inline std::string refuses_sizes(const Problem& p) {
  if ((p.dim_k != 64 && p.dim_k != 128) || (p.dim_v != 64 && p.dim_v != 128))
    return text("dim_k, dim_v = ", p.dim_k, ", ", p.dim_v, ": expected 64 or 128 each; pad with zeros");
  if (p.batch > 65535 || p.heads_v > 65535)
    return text("batch = ", p.batch, ", heads_v = ", p.heads_v, ": expected at most 65,535 each; split the batch");
  return {};
}

// What the copies and 32-bit steps of the kernels do not reach.
inline std::string refuses_strides(const VerifyParams& params, const char* instead) {
  const Problem& p = params.problem;
  for (const auto& [name, tensor] :
       {std::pair{"q", &p.q}, {"k", &p.k}, {"v", &p.v}, {"o", &params.o}, {"stash_u", &params.stash_u}}) {
    if (std::string why = misaligned(name, *tensor, instead); !why.empty()) return why;
  }
  // These are read element by element; only the step from node to node (row to row) has to fit 32 bits.
  for (const auto& [name, tensor, step] : {std::tuple{"g", &p.g, 2},
                                           {"beta", &p.beta, 2},
                                           {"a", &p.a, 2},
                                           {"b", &p.b, 2},
                                           {"stash_l", &params.stash_l, 2},
                                           {"state", &p.state, 3}}) {
    if (tensor->data && tensor->stride[step] * element_size(*tensor) > 0xffffffffll)
      return text(name, ".stride[", step, "] = ", tensor->stride[step], ": expected less than 4 GiB; use ", instead);
  }
  return p.state_layout == CANOPY_STATE_VK ? misaligned("state", p.state, instead) : std::string{};
}

// The value heads of the batch as tuning.hpp's thresholds count them. On the emulated GPU, which has four SMs, one stands for
// many (cmake/emulated.cmake).
#ifndef CANOPY_HEADS_STAND_FOR
#define CANOPY_HEADS_STAND_FOR 1
#endif
inline std::int64_t tuned_heads(const Problem& p) {
  return std::int64_t{p.batch} * p.heads_v * CANOPY_HEADS_STAND_FOR;
}

inline float scale_of(const Problem& p) {
  return p.scale != 0 ? p.scale : 1.f / std::sqrt(static_cast<float>(p.dim_k));
}

// `spill`: path rows deeper than kPathRows, where the kernel keeps a path stack.
inline FusedArguments fused_arguments(const VerifyParams& params, const DevicePlan* plan, void* spill) {
  const Problem& p = params.problem;
  const bool raw = p.a.data != nullptr;
  FusedArguments a{};
  a.plans = plan, a.spill = static_cast<std::uint16_t*>(spill);
  a.slot_index = p.slot_index, a.padding_slot = p.padding_slot, a.slots = p.slots;
  a.row_status = params.row_status;
  a.nodes = p.nodes, a.dim_v = p.dim_v, a.heads_v = p.heads_v;
  a.key_heads_each = static_cast<float>(p.heads_k) / static_cast<float>(p.heads_v);
  a.long_slots = p.slot_index_dtype == CANOPY_I64, a.raw_gates = raw, a.beta_doubled = p.beta_doubled != 0;
  a.l2norm = p.l2norm != 0, a.state_vk = p.state_layout == CANOPY_STATE_VK;
  a.scale = scale_of(p), a.l2norm_eps = p.l2norm_eps;
  a.g = rows_of(raw ? p.a : p.g), a.beta = rows_of(raw ? p.b : p.beta);
  a.a_log = per_head(p.a_log), a.dt_bias = per_head(p.dt_bias);
  a.a_log_dtype = p.a_log.dtype, a.dt_bias_dtype = p.dt_bias.dtype;
  a.k = rows_of(p.k), a.q = rows_of(p.q), a.v = rows_of(p.v);
  a.o = rows_of(params.o), a.u = rows_of(params.stash_u), a.l = rows_of(params.stash_l);
  a.state = {static_cast<char*>(p.state.data), p.state.stride[1] * element_size(p.state),
             p.state.stride[2] * element_size(p.state),
             static_cast<std::uint32_t>(p.state.stride[3] * element_size(p.state)), p.state.dtype};
  return a;
}

}  // namespace canopy::cuda
