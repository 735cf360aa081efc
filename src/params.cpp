// Defaults of the parameter structs, and the plain case filled in.
#include <cstring>

#include "canopy/conv.hpp"
#include "canopy/problem.hpp"

namespace {

template <class Rows>
void init_rows(Rows& problem) {
  problem.abi_version = CANOPY_ABI_VERSION;
  problem.padding_slot = -1;
  problem.slot_index_dtype = CANOPY_I32;
}

void init(canopy_problem& problem) {
  init_rows(problem);
  problem.l2norm_eps = 1e-6f;
}

}  // namespace

extern "C" void canopy_verify_params_init(canopy_verify_params* params) {
  if (!params) return;
  std::memset(params, 0, sizeof *params);
  init(params->problem);
}

extern "C" void canopy_commit_params_init(canopy_commit_params* params) {
  if (!params) return;
  std::memset(params, 0, sizeof *params);
  init(params->problem);
  params->layers = 1;
}

extern "C" void canopy_conv_verify_params_init(canopy_conv_verify_params* params) {
  if (!params) return;
  std::memset(params, 0, sizeof *params);
  init_rows(params->problem);
}

extern "C" void canopy_conv_commit_params_init(canopy_conv_commit_params* params) {
  if (!params) return;
  std::memset(params, 0, sizeof *params);
  init_rows(params->problem);
  params->layers = 1;
}

namespace canopy {
namespace {

Problem problem_of(const DenseLayer& layer) {
  Problem problem = verify_params().problem;
  const std::int64_t B = layer.batch, T = layer.nodes, H = layer.heads_k, HV = layer.heads_v, K = layer.dim_k,
                     V = layer.dim_v;
  problem.batch = layer.batch, problem.nodes = layer.nodes;
  problem.heads_k = layer.heads_k, problem.heads_v = layer.heads_v;
  problem.dim_k = layer.dim_k, problem.dim_v = layer.dim_v;
  problem.trees.parents = layer.parents, problem.trees.row_stride = T;
  problem.q = contiguous(layer.q, CANOPY_F32, {B, T, H, K});
  problem.k = contiguous(layer.k, CANOPY_F32, {B, T, H, K});
  problem.v = contiguous(layer.v, CANOPY_F32, {B, T, HV, V});
  problem.g = contiguous(layer.g, CANOPY_F32, {B, T, HV});
  problem.beta = contiguous(layer.beta, CANOPY_F32, {B, T, HV});
  problem.state = contiguous(layer.state, CANOPY_F32, {B, HV, V, K});
  problem.slots = B;
  return problem;
}

}  // namespace

VerifyParams verify_params(const DenseLayer& layer) {
  VerifyParams params = verify_params();
  params.problem = problem_of(layer);
  params.o = contiguous(layer.o, CANOPY_F32, {layer.batch, layer.nodes, layer.heads_v, layer.dim_v});
  return params;
}

CommitParams commit_params(const DenseLayer& layer) {
  CommitParams params = commit_params();
  params.problem = problem_of(layer);
  return params;
}

}  // namespace canopy
