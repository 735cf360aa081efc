// Launch of the commit kernel.
#include "cuda/commit.cuh"
#include "message.hpp"

namespace canopy::cuda {
namespace {

static_assert(sizeof(CommitShared<128>) + StateTile<128, kCommitColumns>::kStageBytes <=
              48 * 1024);  // without asking for more

template <int K, int Method>
Error launch(const CommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  const Problem& p = params.problem;
  std::size_t bytes = sizeof(CommitShared<K>);
  if (p.state_layout == CANOPY_STATE_KV) bytes += StateTile<K, kCommitColumns>::kStageBytes;
  // A whole head a CTA shares the path's keys between its tiles; with few heads, more CTAs are worth more.
  const int tiles = p.dim_v / kTileColumns;
  const int each = std::int64_t{p.heads_v} * p.batch * params.layers >= 256 ? tiles : 1;
  const dim3 grid(p.heads_v * (tiles / each), p.batch, params.layers);
  const int wide = wide_tensors(p) | (is_wide(params.stash_u) ? kWideU : 0);
  commit_kernel<K, Method><<<grid, StateTile<K, kCommitColumns>::kThreads, bytes, stream>>>(params, plan, wide, each);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    return {CANOPY_INTERNAL, text("commit kernel: ", cudaGetErrorString(status))};
  return {};
}

template <int K>
Error launch_method(const CommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  switch (params.method) {
    case CANOPY_COMMIT_RESOLVE:
      return launch<K, CANOPY_COMMIT_RESOLVE>(params, plan, stream);
    case CANOPY_COMMIT_STASH:
      return launch<K, CANOPY_COMMIT_STASH>(params, plan, stream);
    default:
      return launch<K, CANOPY_COMMIT_REPLAY>(params, plan, stream);
  }
}

}  // namespace

std::string commit_refuses(const CommitParams& params) {
  const Problem& p = params.problem;
  if (p.dim_k != 64 && p.dim_k != 128)
    return text("dim_k = ", p.dim_k, ": expected 64 or 128 on the GPU; pad keys with zeros");
  if (p.dim_v % kTileColumns != 0)
    return text("dim_v = ", p.dim_v, ": expected a multiple of ", kTileColumns, " on the GPU; pad values with zeros");
  if (p.batch > 65535 || params.layers > 65535)
    return text("batch, layers = ", p.batch, ", ", params.layers, ": expected at most 65535 each; split the call");
  return {};
}

std::size_t commit_workspace(const CommitParams&) { return 0; }

Error launch_commit(const CommitParams& params, const DevicePlan* plan, void*, cudaStream_t stream) {
  return params.problem.dim_k == 64 ? launch_method<64>(params, plan, stream)
                                    : launch_method<128>(params, plan, stream);
}

}  // namespace canopy::cuda
