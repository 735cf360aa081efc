// Launches of the serial kernels.
#include <algorithm>

#include "cuda/serial.cuh"
#include "message.hpp"

namespace canopy::cuda {
namespace {

int tiles_of(const Problem& p) { return p.dim_v / kTileColumns; }

template <int K, int R>
std::size_t shared_bytes(const Problem& p, bool snapshot) {
  const std::size_t stack = snapshot ? 0 : std::min(stack_levels(p.nodes), kSharedLevels) * std::size_t{tile_bytes(K)};
  const std::size_t stage = p.state_layout == CANOPY_STATE_KV ? std::size_t{StateTile<K, R>::kStageBytes} : 0;
  return sizeof(SerialShared<K, R>) + std::max(stack, stage);
}

// The most that any tree needs fits a block of sm_120.
static_assert(sizeof(SerialShared<128, 2>) + kSharedLevels * tile_bytes(128) <= 101376);
static_assert(sizeof(SerialShared<128, 1>) + kSharedLevels * tile_bytes(128) <= 101376);

template <int K, int R, bool Snapshot>
Error launch(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  const std::size_t bytes = shared_bytes<K, R>(p, Snapshot);
  const auto kernel = serial_kernel<K, R, Snapshot>;
  if (bytes > 48 * 1024)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const int wide = wide_tensors(p) | (is_wide(params.o) ? kWideO : 0) | (is_wide(params.stash_u) ? kWideU : 0);
  const dim3 grid(tiles_of(p), p.heads_v, p.batch);
  kernel<<<grid, StateTile<K, R>::kThreads, bytes, stream>>>(params, plan, static_cast<float4*>(workspace), wide,
                                                             stack_levels(p.nodes));
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    return {CANOPY_INTERNAL, text("serial kernel: ", cudaGetErrorString(status))};
  return {};
}

// Every warp takes a node's whole key and query from shared memory, whatever it does with them. Two columns a thread
// halve that, at half the threads: better once there are a few CTAs for each multiprocessor, unless the stack of a
// larger tree leaves room for few of them. The same sums in the same order either way.
template <bool Snapshot>
Error launch_any(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  const std::int64_t ctas = std::int64_t{p.batch} * p.heads_v * tiles_of(p);
  const bool two = ctas > (p.nodes <= kChunk ? 256 : 1024);
  if (p.dim_k == 64) {
    return two ? launch<64, 2, Snapshot>(params, plan, workspace, stream)
               : launch<64, 1, Snapshot>(params, plan, workspace, stream);
  }
  return two ? launch<128, 2, Snapshot>(params, plan, workspace, stream)
             : launch<128, 1, Snapshot>(params, plan, workspace, stream);
}

std::size_t tiles_in_memory(const Problem& p, int each) {
  return std::size_t(p.batch) * p.heads_v * tiles_of(p) * each * tile_bytes(p.dim_k);
}

}  // namespace

std::string serial_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (params.precision != CANOPY_PRECISION_DEFAULT && params.precision != CANOPY_PRECISION_FP32)
    return text("precision = ", params.precision,
                ": expected 0 (default) or 1 (fp32), all that the serial kernels compute in");
  if (p.dim_k != 64 && p.dim_k != 128)
    return text("dim_k = ", p.dim_k, ": expected 64 or 128 on the GPU; pad keys with zeros");
  if (p.dim_v % kTileColumns != 0)
    return text("dim_v = ", p.dim_v, ": expected a multiple of ", kTileColumns, " on the GPU; pad values with zeros");
  if (p.batch > 65535 || p.heads_v > 65535)
    return text("batch, heads_v = ", p.batch, ", ", p.heads_v, ": expected at most 65535 each; split the batch");
  return {};
}

std::size_t serial_snapshot_workspace(const VerifyParams& params) {
  return tiles_in_memory(params.problem, params.problem.nodes);
}
std::size_t serial_resident_workspace(const VerifyParams& params) {
  return tiles_in_memory(params.problem, std::max(stack_levels(params.problem.nodes) - kSharedLevels, 0));
}
Error launch_serial_snapshot(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch_any<true>(params, plan, workspace, stream);
}
Error launch_serial_resident(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch_any<false>(params, plan, workspace, stream);
}

}  // namespace canopy::cuda
