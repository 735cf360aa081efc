// Launch of the commit kernel.
#include "cuda/commit.cuh"

#include <algorithm>

#include "message.hpp"

namespace canopy::cuda {
namespace {

constexpr int kLeastColumns = 32;  // of a CTA: V is a multiple of it

// CTAs among which a row's tiles go round: as many as the device holds at once if that leaves each row some, else so
// many that each has a few tiles to pipeline.
std::int64_t ctas_a_row(std::int64_t rows, std::int64_t tiles, std::size_t shared) {
  constexpr int kFewTiles = 12;
  int device = 0, multiprocessors = 0, shared_of_each = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared_of_each, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  const auto a_cta = static_cast<std::int64_t>(shared + 1024);
  const std::int64_t each = std::clamp<std::int64_t>(shared_of_each / a_cta, 1, 3);
  const std::int64_t fit = multiprocessors * each / rows;
  return std::clamp<std::int64_t>(fit >= 4 ? fit : tiles / kFewTiles, 1, tiles);
}

template <int K, int W, int Method>
Error launch(const CommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  static_assert(sizeof(CommitShared<K, W>) <= 101376, "more than a block of sm_120 has");
  const Problem& p = params.problem;
  const std::int64_t heads = std::int64_t{params.layers} * p.heads_v;
  const std::int64_t tiles = heads * (p.dim_v / StateTile<K, kCommitColumns, W>::kColumns);
  const dim3 grid(static_cast<unsigned>(ctas_a_row(p.batch, tiles, sizeof(CommitShared<K, W>))), p.batch);
  const cudaError_t status =
      launch_dependently(commit_kernel<K, W, Method>, grid, 32 * W, sizeof(CommitShared<K, W>), stream, params, plan,
                         wide_tensors(p) | (is_wide(params.stash_u) ? kWideU : 0));
  if (status != cudaSuccess) return {CANOPY_INTERNAL, text("commit kernel: ", cudaGetErrorString(status))};
  return {};
}

// CTAs of 64 columns where V allows.
template <int K, int Method>
Error launch_width(const CommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  return params.problem.dim_v % 64 == 0 ? launch<K, 4, Method>(params, plan, stream)
                                        : launch<K, 2, Method>(params, plan, stream);
}

template <int K>
Error launch_method(const CommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  switch (params.method) {
    case CANOPY_COMMIT_RESOLVE:
      return launch_width<K, CANOPY_COMMIT_RESOLVE>(params, plan, stream);
    case CANOPY_COMMIT_STASH:
      return launch_width<K, CANOPY_COMMIT_STASH>(params, plan, stream);
    default:
      return launch_width<K, CANOPY_COMMIT_REPLAY>(params, plan, stream);
  }
}

}  // namespace

std::string commit_refuses(const CommitParams& params) {
  const Problem& p = params.problem;
  if (p.dim_k != 64 && p.dim_k != 128)
    return text("dim_k = ", p.dim_k, ": expected 64 or 128 on the GPU; pad keys with zeros");
  if (p.dim_v % kLeastColumns != 0)
    return text("dim_v = ", p.dim_v, ": expected a multiple of ", kLeastColumns, " on the GPU; pad values with zeros");
  if (p.batch > 65535)
    return text("batch = ", p.batch, ": expected at most 65535; split the call");
  return {};
}

std::size_t commit_workspace(const CommitParams&) { return 0; }

Error launch_commit(const CommitParams& params, const DevicePlan* plan, void*, cudaStream_t stream) {
  return params.problem.dim_k == 64 ? launch_method<64>(params, plan, stream)
                                    : launch_method<128>(params, plan, stream);
}

}  // namespace canopy::cuda
