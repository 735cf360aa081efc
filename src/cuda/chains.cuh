// The heavy chains of a tree: from each node on to the child with the most nodes below, so that on a root path at most
// log2(T) chains follow one another. Made in shared memory from the plan, by depth-first rank.
#pragma once

#include "cuda/plan.cuh"
#include "two_float.hpp"

namespace canopy::cuda {

// Nodes with more than one child, whose state the chains that begin below them wait for.
constexpr int most_branches(int nodes) { return (nodes - 1) / 2; }

struct Chains {
  int heavy[kNodes];        // of a rank: 2^8 * nodes of its heavy child's subtree + the child's rank; -1 for a leaf
  int before[kNodes / 32];  // branches before each 32 ranks
  int starts[kNodes];       // chains that start at each depth, then: at any depth above it
  int chains, taken;
  std::uint8_t node[kNodes], parent[kNodes], branch[kNodes];  // branch: its number among the branches, kNone for others
  std::uint8_t head[kNodes];  // first ranks of the chains, the shallow ones first, so that a chain stands before those
                              // that begin below it
};

// All kThreads threads of the CTA, `thread` among them.
template <int kThreads>
__device__ inline void find_chains(Chains& chains, const DevicePlan& plan, int count, int thread) {
  static_assert(kThreads % 32 == 0);
  constexpr int each = (kNodes + kThreads - 1) / kThreads;
  const int lane = thread % 32;
  int parent[each], size[each], depth[each];
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int r = thread + e * kThreads;
    const bool live = r < count;
    parent[e] = live && r > 0 ? plan.parent[r] : kNone;
    size[e] = live ? plan.below[r] + 1 : 0;
    depth[e] = live ? plan.depths[r] : 0;
    if (r >= kNodes) continue;
    chains.node[r] = live ? plan.order[r] : 0;
    chains.parent[r] = static_cast<std::uint8_t>(parent[e]);
    chains.heavy[r] = -1, chains.starts[r] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < each; ++e)
    if (const int r = thread + e * kThreads; size[e] > 0 && r > 0)
      atomicMax(&chains.heavy[parent[e]], size[e] << 8 | r);
  __syncthreads();
  bool starts[each];
  unsigned branches[each];  // of the warp's 32 ranks
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int r = thread + e * kThreads;
    starts[e] = size[e] > 0 && (r == 0 || (chains.heavy[parent[e]] & 255) != r);
    if (starts[e]) atomicAdd(&chains.starts[depth[e]], 1);
    branches[e] = __ballot_sync(~0u, size[e] > 1 && chains.heavy[r] >> 8 < size[e] - 1);
    if (lane == 0 && r < kNodes) chains.before[r / 32] = __popc(branches[e]);
  }
  __syncthreads();
  if (thread < 32) {  // sums of what comes before: of eight depths a lane, and of the branches
    int sum = 0, own[kNodes / 32];
#pragma unroll
    for (int i = 0; i < kNodes / 32; ++i) own[i] = chains.starts[lane * (kNodes / 32) + i], sum += own[i];
    int total = sum, ahead = lane < kNodes / 32 ? chains.before[lane] : 0;
    const int here = ahead;
#pragma unroll
    for (int span = 1; span < 32; span *= 2) {
      const int other = __shfl_up_sync(~0u, total, span), others = __shfl_up_sync(~0u, ahead, span);
      if (lane >= span) total += other, ahead += others;
    }
    int place = total - sum;
#pragma unroll
    for (int i = 0; i < kNodes / 32; ++i) chains.starts[lane * (kNodes / 32) + i] = place, place += own[i];
    if (lane < kNodes / 32) chains.before[lane] = ahead - here;
    if (lane == 31) chains.chains = total;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < each; ++e) {
    const int r = thread + e * kThreads;
    if (starts[e]) chains.head[atomicAdd(&chains.starts[depth[e]], 1)] = static_cast<std::uint8_t>(r);
    if (r >= kNodes) continue;
    const bool branch = branches[e] >> lane & 1;
    chains.branch[r] =
        static_cast<std::uint8_t>(branch ? chains.before[r / 32] + __popc(branches[e] & ((1u << lane) - 1)) : kNone);
  }
  __syncthreads();
}

}  // namespace canopy::cuda
