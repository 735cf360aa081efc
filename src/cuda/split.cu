// Host side of the split design: what it refuses, its workspace, its two launches.
#include "cuda/launch.hpp"
#include "cuda/split.cuh"
#include "cuda/tile/arguments.hpp"
#include "cuda/tuning.hpp"
#include "precision.hpp"

namespace canopy::cuda {
namespace {

bool precise(const VerifyParams& params) { return precision_on_gpu(params) == CANOPY_PRECISION_PRECISE; }

template <int K, int kParts>
std::size_t bytes_of(const Problem& p) {
  using Part = SplitPart<Slot<K, kParts>>;
  const std::size_t each = std::size_t(p.heads_k) * Part::kOperands + std::size_t(p.heads_v) * Part::kCoefficients;
  return p.batch * most_steps(p.nodes) * each;
}
std::size_t slot_bytes(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (precise(params)) return p.dim_k == 128 ? bytes_of<128, 2>(p) : bytes_of<64, 2>(p);
  return p.dim_k == 128 ? bytes_of<128, 1>(p) : bytes_of<64, 1>(p);
}
// Path rows deeper than kPathRows, for U and for O warps.
std::size_t spill_bytes(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (p.nodes <= kPathRows) return 0;
  return 2 * sizeof(std::uint16_t) * p.batch * p.heads_v * p.dim_v * kNodes * (precise(params) ? 2 : 1);
}

SplitInstance pick(const VerifyParams& params) {
  const Problem& p = params.problem;
  const bool long_keys = p.dim_k == 128;
  const int on = this_architecture();
  if (precise(params)) return long_keys ? split_precise_narrow_bf16_128(on) : split_precise_narrow_bf16_64(on);
  const int wide_from = tuning_of(on).wide_from_heads;
  if (long_keys && p.dim_v == 128 && tuned_heads(p) >= wide_from)
    return {split_half_narrow_bf16_128(on).factors, split_half_wide_bf16_128(on)};
  return long_keys ? split_half_narrow_bf16_128(on) : split_half_narrow_bf16_64(on);
}

}  // namespace

std::string split_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (std::string why = refuses_sizes(p); !why.empty()) return why;
  if (p.q.dtype != CANOPY_BF16)
    return text("q.dtype = ", p.q.dtype, ": expected bf16, which this design is compiled for; use cuda_fused");
  if (params.precision == CANOPY_PRECISION_FP32 || params.precision == CANOPY_PRECISION_FAST)
    return text("precision = ", params.precision, ": expected 0 (default), 2 (precise) or 3 (half); use cuda_fused");
  if (params.stash_u.data && !precise(params))
    return text("precision = ", params.precision,
                " with stash_u: expected 0 (default) or 2 (precise), since a stored u is to keep its digits; "
                "or store none and commit by resolve");
  return refuses_strides(params, "cuda_fused with precision fp32");
}

std::size_t split_workspace(const VerifyParams& params) { return slot_bytes(params) + spill_bytes(params); }

Error launch_split(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  if (p.batch == 0) return {};
  const SplitInstance instance = pick(params);
  auto* const memory = static_cast<std::uint8_t*>(workspace);
  SplitArguments arguments{};
  arguments.fused = fused_arguments(params, plan, memory + slot_bytes(params));
  arguments.heads_k = p.heads_k, arguments.steps = most_steps(p.nodes);
  const std::size_t operands = p.dim_k == 128 ? SplitPart<Slot<128, 1>>::kOperands : SplitPart<Slot<64, 1>>::kOperands;
  arguments.operands = memory;
  arguments.coefficients = memory + operands * p.batch * p.heads_k * arguments.steps;
  const bool dependently = launches_dependently();
  // A warp a block; trees with more steps than blocks take another round.
  const int groups = ((p.nodes + kRows - 1) / kRows + kFactorWarps - 1) / kFactorWarps;
  cudaError_t error =
      instance.factors.launch(instance.factors, dim3(groups, p.heads_v, p.batch), stream, dependently, &arguments);
  if (error == cudaSuccess)
    error = instance.apply.launch(instance.apply, dim3(p.dim_v / instance.apply.columns, p.heads_v, p.batch), stream,
                                  dependently, &arguments);
  if (error != cudaSuccess)
    return {CANOPY_INTERNAL, text("launch of the split kernels failed: ", cudaGetErrorString(error))};
  return {};
}

}  // namespace canopy::cuda
