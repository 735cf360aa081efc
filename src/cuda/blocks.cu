// Host side of the strategies that are not path-compressed (dense, Neumann, squaring): what they refuse, their
// workspace, their launches.
#include "cuda/block_powers.cuh"
#include "cuda/instances/blocks.hpp"
#include "cuda/launch.hpp"
#include "cuda/tile/arguments.hpp"
#include "precision.hpp"

namespace canopy::cuda {
namespace {

// Depth to which the series, in two fp16 numbers an operand, stays within 2e-5 whatever the keys: on chains of similar
// keys that forget nothing 7e-6 to depth 10 and 2e-5 to 12 (docs/kernels.md; in fp32 1e-4 to 16, docs/numerics.md).
constexpr int kSeriesDepth = 10;
// The same with betas up to 2, whose powers grow faster: 1e-5 to depth 7 and 4e-5 to 9.
constexpr int kSeriesDepthDoubled = 7;

bool precise(const VerifyParams& params, Method method) {
  return method != Method::kDense || precision_on_gpu(params) == CANOPY_PRECISION_PRECISE;
}

BlockInstance pick(const VerifyParams& params, Method method) {
  const bool long_keys = params.problem.dim_k == 128;
  if (method == Method::kNeumann) return long_keys ? block_neumann_bf16_128() : block_neumann_bf16_64();
  if (method == Method::kSquaring) return long_keys ? block_squaring_bf16_128() : block_squaring_bf16_64();
  if (precise(params, method)) return long_keys ? block_dense_precise_bf16_128() : block_dense_precise_bf16_64();
  return long_keys ? block_dense_half_bf16_128() : block_dense_half_bf16_64();
}

// The parts of the workspace, one behind the other.
class Layout {
 public:
  Layout(const VerifyParams& params, Method method) {
    const Problem& p = params.problem;
    const std::int64_t B = p.batch, HV = p.heads_v, each = precise(params, method) ? 1024 : 512;
    blocks = blocks_of(p.nodes), pairs = block_index(blocks, 0);
    power = B * HV * pairs;
    const std::int64_t powers = method == Method::kSquaring ? most_powers(p.nodes) : 1;
    operands = add(B * p.heads_k * blocks * 2 * (p.dim_k / 16) * 512);
    factors = add(B * HV * blocks * 48 * 4);
    g = add(powers * power * each);
    for (std::int64_t& turned : transposed) turned = add(method == Method::kSquaring ? power * each : 0);
    c = add(power * each);
    marks = add(powers * power * 4);
  }
  std::int64_t operands, factors, g, transposed[2], c, marks, bytes = 0, power;
  std::int32_t blocks, pairs;

 private:
  std::int64_t add(std::int64_t size) {
    const std::int64_t at = bytes;
    bytes += (size + 63) / 64 * 64;
    return at;
  }
};

std::string refuses(const VerifyParams& params, Method method) {
  const Problem& p = params.problem;
  if (std::string why = refuses_sizes(p); !why.empty()) return why;
  if (p.q.dtype != CANOPY_BF16)
    return text("q.dtype = ", p.q.dtype, ": expected bf16, which this strategy is compiled for; use cuda_fused");
  if (method != Method::kDense && params.precision == CANOPY_PRECISION_HALF)
    return "precision = 3 (half): expected 0 (default) or 2 (precise): the terms of the series cancel, and one fp16 "
           "number an operand leaves errors of 5e-3 at depth 8 (docs/kernels.md); use cuda_dense or cuda_fused";
  if (params.precision == CANOPY_PRECISION_FP32 || params.precision == CANOPY_PRECISION_FAST)
    return text("precision = ", params.precision, ": expected 0 (default), 2 (precise)",
                method == Method::kDense ? " or 3 (half)" : "", "; use cuda_fused");
  if (params.stash_u.data && !precise(params, method))
    return text("precision = ", params.precision,
                " with stash_u: expected 0 (default) or 2 (precise), since a stored u is to keep its digits; "
                "or store none and commit by resolve");
  return refuses_strides(params, "cuda_fused with precision fp32");
}

Error launch(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream, Method method) {
  const Problem& p = params.problem;
  if (p.batch == 0) return {};
  const BlockInstance instance = pick(params, method);
  const Layout layout(params, method);
  auto* const memory = static_cast<std::uint8_t*>(workspace);
  BlockArguments arguments{};
  arguments.fused = fused_arguments(params, plan, nullptr);
  arguments.operands = memory + layout.operands;
  arguments.factors = reinterpret_cast<float*>(memory + layout.factors);
  arguments.g = memory + layout.g, arguments.c = memory + layout.c;
  for (int i = 0; i < 2; ++i) arguments.transposed[i] = memory + layout.transposed[i];
  arguments.marks = reinterpret_cast<std::uint32_t*>(memory + layout.marks);
  arguments.power = layout.power;
  arguments.heads_k = p.heads_k, arguments.blocks = layout.blocks, arguments.pairs = layout.pairs;
  const bool dependently = launches_dependently();
  const int wide = (p.nodes + kWideRows - 1) / kWideRows;
  cudaError_t error = instance.factors.launch(instance.factors, dim3(block_index(wide, 0), p.heads_v, p.batch), stream,
                                              dependently, &arguments);
  if (error == cudaSuccess && method == Method::kSquaring && p.nodes > 2)
    error = launch_kernel(block_power_kernel<2>, dim3(1, p.heads_v, p.batch), 32 * kPowerWarps, 0, stream, dependently,
                          arguments);
  if (error == cudaSuccess)
    error = instance.apply.launch(instance.apply, dim3(p.dim_v / instance.apply.columns, p.heads_v, p.batch), stream,
                                  dependently, &arguments);
  if (error != cudaSuccess)
    return {CANOPY_INTERNAL, text("launch of the block kernels failed: ", cudaGetErrorString(error))};
  return {};
}

}  // namespace

std::string dense_refuses(const VerifyParams& params) { return refuses(params, Method::kDense); }
std::string neumann_refuses(const VerifyParams& params) { return refuses(params, Method::kNeumann); }
std::string squaring_refuses(const VerifyParams& params) { return refuses(params, Method::kSquaring); }

std::string series_may_fail(const VerifyParams& params) {
  // By T alone: trees are on the device, and a max_depth is a hint that may be wrong and is to cost no digit then.
  const int depth = params.problem.nodes - 1;
  const bool doubled = params.problem.beta_doubled != 0;
  const int trusted = doubled ? kSeriesDepthDoubled : kSeriesDepth;
  if (depth <= trusted) return {};
  return text(
      "nodes = ", params.problem.nodes, ": a tree of as many may be ", depth, " deep",
      params.max_depth > 0 && params.max_depth <= trusted ? ", whatever max_depth says, which nothing checks" : "",
      ", and the series is to be trusted to depth ", trusted, doubled ? " with beta_doubled" : "",
      " (docs/kernels.md); ask for it by name, or use cuda_fused");
}

std::size_t dense_workspace(const VerifyParams& params) { return Layout(params, Method::kDense).bytes; }
std::size_t neumann_workspace(const VerifyParams& params) { return Layout(params, Method::kNeumann).bytes; }
std::size_t squaring_workspace(const VerifyParams& params) { return Layout(params, Method::kSquaring).bytes; }

Error launch_dense(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch(params, plan, workspace, stream, Method::kDense);
}
Error launch_neumann(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch(params, plan, workspace, stream, Method::kNeumann);
}
Error launch_squaring(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch(params, plan, workspace, stream, Method::kSquaring);
}

}  // namespace canopy::cuda
