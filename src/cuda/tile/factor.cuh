// What the kernels that make coefficients once a head (split.cuh, blocks.cuh) have in common.
#pragma once

#include "cuda/tile/work.cuh"

namespace canopy::cuda {

// The barriers of prepare_step() where every warp has a slot of its own.
template <int kWarps>
struct FactorBarriers {
  std::uint64_t loaded[kWarps], converted[kWarps], published[kWarps], tables_ready;

  // By all threads, which then meet: one lane of each warp, since lanes would take turns.
  __device__ __forceinline__ void start() {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0 || warp >= kWarps) return;
    barrier_init(&loaded[warp], 32);
    barrier_init(&converted[warp], kWarpArrivals);
    barrier_init(&published[warp], kWarpArrivals);
    if (warp == 0) barrier_init(&tables_ready, kWarpArrivals * kWarps);
  }
};

// What the CTA (x, y, z) of such a kernel, or of one that applies coefficients, works on: y is the value head, z the
// sequence.
__device__ __forceinline__ FusedWork work_of_cta(const FusedArguments& a, int column) {
  FusedWork work;
  work.b = blockIdx.z, work.head = blockIdx.y, work.column = column;
  work.key_head = key_head_of(work.head, a.key_heads_each);
  return work;
}

// K and Q rows as operands are the same for all value heads of a key head; the first of them writes them.
__device__ __forceinline__ bool writes_operands(const FusedArguments& a, const FusedWork& work) {
  return work.head == 0 || key_head_of(work.head - 1, a.key_heads_each) != work.key_head;
}

}  // namespace canopy::cuda
