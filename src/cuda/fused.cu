// Host side of the fused kernels: what they refuse, which instance runs, its launch.
#include "cuda/floor.cuh"
#include "cuda/fused_fp32.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/launch.hpp"
#include "cuda/tile/arguments.hpp"
#include "cuda/tuning.hpp"
#include "precision.hpp"

namespace canopy::cuda {
namespace {

bool in_fp32(const VerifyParams& params) { return precision_on_gpu(params) == CANOPY_PRECISION_FP32; }

// Wide CTAs of the usual problem, bf16 inputs in half precision.
FusedInstance pick_wide(const Problem& p, int architecture) {
  const Tuning& tuning = tuning_of(architecture);
  if (std::int64_t{p.batch} * p.heads_v <= multiprocessors()) return fused_half_few_bf16_128(architecture);
  const bool pairs = p.nodes >= tuning.pair_from_nodes && p.heads_v / p.heads_k % 2 == 0;
  return pairs ? fused_half_pair_bf16_128(architecture) : fused_half_wide_bf16_128(architecture);
}

// Trees of one block: 32 columns while every CTA has an SM, 64 while two share one, then a head a CTA, whose S0 streams
// by.
FusedInstance pick_one_block(std::int64_t heads) {
  if (4 * heads <= multiprocessors()) return fused_half_one_block_32_bf16_128();
  if (heads <= multiprocessors()) return fused_half_one_block_64_bf16_128();
  return fused_half_one_block_wide_bf16_128();
}

// By the sizes alone, never by the trees.
FusedInstance pick(const VerifyParams& params, int architecture) {
  const Problem& p = params.problem;
  const Tuning& tuning = tuning_of(architecture);
  const std::int64_t heads = std::int64_t{p.batch} * p.heads_v;
  const bool long_keys = p.dim_k == 128, bf16 = p.q.dtype == CANOPY_BF16, square = long_keys && p.dim_v == 128;
  const bool wide = square && p.q.dtype != CANOPY_F32 && tuned_heads(p) >= tuning.wide_from_heads;
  const bool few = square && bf16 && (tuned_heads(p) >= tuning.few_from_heads || p.nodes <= tuning.few_to_nodes);
  switch (precision_on_gpu(params)) {
    case CANOPY_PRECISION_FP32:
      return long_keys ? fused_fp32_128() : fused_fp32_64();
    case CANOPY_PRECISION_PRECISE:
      if (bf16) return long_keys ? fused_precise_bf16_128(architecture) : fused_precise_bf16_64(architecture);
      return long_keys ? fused_precise_f16_128(architecture) : fused_precise_f16_64(architecture);
    case CANOPY_PRECISION_FAST:
      if (wide) return fused_fast_wide_bf16_128(architecture);
      return long_keys ? fused_fast_narrow_bf16_128(architecture) : fused_fast_narrow_bf16_64(architecture);
    default:
      break;
  }
  if (square && bf16 && p.nodes <= kRows && p.state_layout == CANOPY_STATE_VK) return pick_one_block(heads);
  if (few && (wide || heads <= multiprocessors())) return pick_wide(p, architecture);
  if (wide) return bf16 ? fused_half_wide_bf16_128(architecture) : fused_half_wide_f16_128(architecture);
  if (bf16) return long_keys ? fused_half_narrow_bf16_128(architecture) : fused_half_narrow_bf16_64(architecture);
  if (p.q.dtype == CANOPY_F16)
    return long_keys ? fused_half_narrow_f16_128(architecture) : fused_half_narrow_f16_64(architecture);
  return long_keys ? fused_half_narrow_f32_128(architecture) : fused_half_narrow_f32_64(architecture);
}

}  // namespace

std::string fused_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (std::string why = refuses_sizes(p); !why.empty()) return why;
  if (in_fp32(params)) return {};
  if (params.precision == CANOPY_PRECISION_FAST && p.q.dtype != CANOPY_BF16)
    return "precision = fast: expected bf16 inputs, which it multiplies as they are; use half";
  if (params.stash_u.data && precision_on_gpu(params) != CANOPY_PRECISION_PRECISE)
    return text("precision = ", params.precision,
                " with stash_u: expected 0 (default), 1 (fp32) or 2 (precise), since a stored u is to keep its digits; "
                "or store none and commit by resolve");
  return refuses_strides(params, "precision fp32");
}

std::size_t fused_workspace(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (in_fp32(params) || p.nodes <= kPathRows) return 0;
  const std::size_t parts = precision_on_gpu(params) == CANOPY_PRECISION_PRECISE ? 2 : 1;
  // Twice: where a U and an O warp share 16 columns each has path rows of its own.
  return 2 * sizeof(std::uint16_t) * p.batch * p.heads_v * p.dim_v * kNodes * parts;
}

namespace {
// What the forms of the kernel for the usual problem take: bf16 inputs in half precision.
std::string usual_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (std::string why = fused_refuses(params); !why.empty()) return why;
  if (precision_on_gpu(params) != CANOPY_PRECISION_HALF)
    return text("precision = ", params.precision,
                ": expected 0 (default) without stash_u, or 3 (half); use cuda_fused");
  if (p.q.dtype != CANOPY_BF16 || p.dim_k != 128 || p.dim_v != 128)
    return "q: expected bf16 inputs with dim_k = dim_v = 128; use cuda_fused";
  return {};
}
}  // namespace

std::string pair_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (std::string why = usual_refuses(params); !why.empty()) return why;
  if (p.heads_v / p.heads_k % 2 != 0)
    return text("heads_v / heads_k = ", p.heads_v / p.heads_k,
                ": expected an even number of value heads a key head; use cuda_fused");
  return {};
}

std::string small_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  constexpr int most = 64;
  if (std::string why = usual_refuses(params); !why.empty()) return why;
  if (p.state_layout != CANOPY_STATE_VK)
    return text("state_layout = ", p.state_layout, ": expected ", CANOPY_STATE_VK, " (vk); use cuda_fused");
  if (p.nodes > most) return text("nodes = ", p.nodes, ": expected at most ", most, "; use cuda_fused");
  return {};
}

namespace {
Error launch(const VerifyParams& params, const DevicePlan* plan, void* workspace, const FusedInstance& instance,
             int architecture, cudaStream_t stream) {
  const Problem& p = params.problem;
  FusedArguments fused = fused_arguments(params, plan, workspace);
  ExactArguments exact{params, plan, scale_of(p), wide_tensors(p)};
  const dim3 grid = in_fp32(params) ? dim3(p.heads_v * (p.dim_v / instance.columns), p.batch)
                                    : dim3(p.dim_v / instance.columns, p.heads_v / instance.heads, p.batch);
  const bool dependently = tuning_of(architecture).dependent_launch && !in_fp32(params);
  const cudaError_t error =
      instance.launch(instance, grid, stream, dependently, in_fp32(params) ? static_cast<const void*>(&exact) : &fused);
  if (error != cudaSuccess)
    return {CANOPY_INTERNAL, text("launch of the fused kernel failed: ", cudaGetErrorString(error))};
  return {};
}
}  // namespace

Error launch_fused(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  if (params.problem.batch == 0) return {};
  const int architecture = this_architecture();
  return launch(params, plan, workspace, pick(params, architecture), architecture, stream);
}

Error launch_pair(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  if (params.problem.batch == 0) return {};
  const int architecture = this_architecture();
  return launch(params, plan, workspace, fused_half_pair_bf16_128(architecture), architecture, stream);
}

Error launch_small(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  if (params.problem.batch == 0) return {};
  return launch(params, plan, workspace, fused_half_small_bf16_128(), this_architecture(), stream);
}

bool launch_floor(const VerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  const Problem& p = params.problem;
  const bool takes = precision_on_gpu(params) == CANOPY_PRECISION_HALF && fused_refuses(params).empty() &&
                     p.q.dtype == CANOPY_BF16 && p.g.data && params.o.dtype == CANOPY_BF16 &&
                     p.state.dtype == CANOPY_F32 && p.state_layout == CANOPY_STATE_VK;
  if (!takes || p.batch == 0) return takes;
  const FusedArguments arguments = fused_arguments(params, plan, nullptr);
  const dim3 grid(p.dim_v / kFloorColumns, p.heads_v, p.batch);
  return launch_kernel(p.dim_k == 128 ? floor_kernel<128> : floor_kernel<64>, grid, kFloorThreads, 0, stream, false,
                       arguments) == cudaSuccess;
}

}  // namespace canopy::cuda
