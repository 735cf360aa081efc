// Launches of the serial kernels.
#include <algorithm>

#include "cuda/device.hpp"
#include "cuda/serial.cuh"
#include "cuda/serial_arguments.hpp"
#include "message.hpp"

namespace canopy::cuda {
namespace {

constexpr int kLeastColumns = 32;  // of a CTA: V is a multiple of it

// Four columns a thread take half the key and query reads, a CTA of 64 columns half the preparation; two columns a
// thread and a CTA of 32 columns twice the threads. The same sums in the same order either way.
bool takes_wide(const Problem& p) {
  return p.dim_v % 64 == 0 &&
         std::int64_t{p.batch} * p.heads_v * (p.dim_v / 64) >= tuning_of(this_architecture()).serial_wide_from_ctas;
}

// Waiting states in shared memory; a wide CTA's is 32 KiB (K = 128), and one of them leaves room for four CTAs.
int shared_levels(const Problem& p) { return std::min(stack_levels(p.nodes), takes_wide(p) ? 1 : 4); }

template <int K, int C, int W>
std::size_t shared_bytes(const Problem& p, bool snapshot) {
  using Tile = StateTile<K, C, W>;
  const std::size_t tile = Tile::kColumns * K * sizeof(float);
  // A wide CTA's state comes by way of the stack's first level, and so does one that is not aligned.
  const int levels = std::max(snapshot ? 0 : shared_levels(p), takes_wide(p) || !is_wide(p.state) ? 1 : 0);
  return sizeof(SerialShared<K, Tile::kColumns>) + levels * tile;
}

// The most that any tree needs fits a block of sm_120.
static_assert(sizeof(SerialShared<128, 32>) + 4 * 32 * 128 * 4 <= 101376);
static_assert(sizeof(SerialShared<128, 64>) + 64 * 128 * 4 <= 101376);

template <int K, int C, int W, bool Early, bool Snapshot>
Error launch(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  const dim3 grid(p.dim_v / StateTile<K, C, W>::kColumns, p.heads_v, p.batch);
  SerialArguments arguments = serial_arguments(params, plan, workspace);
  arguments.shared_levels = shared_levels(p), arguments.deep_levels = stack_levels(p.nodes) - arguments.shared_levels;
  const cudaError_t status = launch_dependently(serial_kernel<K, C, W, Early, Snapshot>, grid, 32 * W,
                                                shared_bytes<K, C, W>(p, Snapshot), stream, arguments);
  if (status != cudaSuccess) return {CANOPY_INTERNAL, text("serial kernel: ", cudaGetErrorString(status))};
  return {};
}

template <bool Snapshot>
Error launch_any(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  if (params.problem.batch == 0) return {};
  const bool wide = takes_wide(params.problem);
  if (params.problem.dim_k == 64)
    return wide ? launch<64, 4, 4, false, Snapshot>(params, plan, workspace, stream)
                : launch<64, 2, 4, true, Snapshot>(params, plan, workspace, stream);
  return wide ? launch<128, 4, 4, false, Snapshot>(params, plan, workspace, stream)
              : launch<128, 2, 4, true, Snapshot>(params, plan, workspace, stream);
}

std::size_t states_in_memory(const Problem& p, int each) {
  return sizeof(float) * p.batch * p.heads_v * p.dim_v * p.dim_k * each;
}

}  // namespace

std::string serial_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (params.precision != CANOPY_PRECISION_DEFAULT && params.precision != CANOPY_PRECISION_FP32)
    return text("precision = ", params.precision,
                ": expected 0 (default) or 1 (fp32), all that the serial kernels compute in; use cuda_fused");
  if (p.dim_k != 64 && p.dim_k != 128)
    return text("dim_k = ", p.dim_k, ": expected 64 or 128 on the GPU; pad keys with zeros");
  if (p.dim_v % kLeastColumns != 0)
    return text("dim_v = ", p.dim_v, ": expected a multiple of ", kLeastColumns, " on the GPU; pad values with zeros");
  if (p.batch > 65535 || p.heads_v > 65535)
    return text("batch, heads_v = ", p.batch, ", ", p.heads_v, ": expected at most 65535 each; split the batch");
  return {};
}

std::size_t serial_snapshot_workspace(const VerifyParams& params) {
  return states_in_memory(params.problem, params.problem.nodes);
}
std::size_t serial_resident_workspace(const VerifyParams& params) {
  return states_in_memory(params.problem, stack_levels(params.problem.nodes) - shared_levels(params.problem));
}
Error launch_serial_snapshot(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch_any<true>(params, plan, workspace, stream);
}
Error launch_serial_resident(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  return launch_any<false>(params, plan, workspace, stream);
}

}  // namespace canopy::cuda
