// The order in which the serial kernels walk a tree: depth-first with the child of the largest subtree last. A state
// waits only while a smaller child's subtree is walked, so at most log2(T) - 1 states wait at once, whatever the tree.
// The snapshot kernel, which keeps every state, walks in the plan's order.
#pragma once

#include "cuda/plan.cuh"

namespace canopy::cuda {

inline constexpr int kStackLevels = 6;  // of a tree of 256: 127, 63, 31, 15, 7, 3 nodes below the smaller child

// Levels of the stack that trees of T nodes can need: a smaller child has at most half of what its parent has below.
inline int stack_levels(int nodes) {
  int levels = 0;
  for (int n = (nodes - 1) / 2; n >= 2; n = (n - 1) / 2) ++levels;
  return levels;
}

// One position of the walk: the node, its parent's position + 1 (0 for S0), whether it is a leaf, its parent's last
// child, its parent's only child (then the parent's state is at hand, and nobody needs it afterwards; so is the root).
struct Stop {
  std::uint32_t bits;
  __device__ int node() const { return bits & 255; }
  __device__ int parent() const { return static_cast<int>(bits >> 8 & 511) - 1; }
  __device__ bool leaf() const { return bits >> 17 & 1; }
  __device__ bool last() const { return bits >> 18 & 1; }
  __device__ bool only() const { return bits >> 19 & 1; }
  __device__ bool plain() const { return (bits & 0xa0000u) == 0x80000u; }  // an only child, and no leaf
};
__device__ inline Stop make_stop(int node, int parent, bool leaf, bool last, bool only) {
  return {static_cast<std::uint32_t>(node | (parent + 1) << 8 | leaf << 17 | last << 18 | only << 19)};
}

struct WalkScratch {
  int heavy[kNodes], below[kNodes], jump[2][kNodes], place[2][kNodes];
};

// The plan's tables of the ranks that a thread places: loaded before anything is known about the tree.
template <int Each, int Threads>
struct WalkRanks {
  int node[Each], parent[Each], below[Each];
  __device__ WalkRanks(const DevicePlan& plan, int thread, int nodes) {
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int r = thread + e * Threads;
      node[e] = r < nodes ? plan.order[r] : 0;
      parent[e] = r < nodes ? plan.parent[r] : 0;
      below[e] = r < nodes ? plan.below[r] : 0;
    }
  }
};

// A chain: the plan's order, and no branch.
template <int Threads>
__device__ inline void walk_chain(int count, Stop* walk) {
  for (int i = threadIdx.x; i < count; i += Threads) walk[i] = make_stop(i, i - 1, i + 1 == count, true, true);
}

// Trees of at most 32 nodes: one warp, lane r places rank r. `heavy`: 32 words of shared memory.
__device__ inline void walk_of_warp(const WalkRanks<1, 32>& ranks, int depth, int count, bool reorder, int* heavy,
                                    Stop* walk) {
  constexpr unsigned all = 0xffffffffu;
  const int r = threadIdx.x % 32, below = ranks.below[0], size = r < count ? below + 1 : 0;
  const int parent = r >= count || r == 0 ? -1 : ranks.parent[0], up = parent < 0 ? r : parent;
  heavy[r] = -1;
  __syncwarp();
  if (parent >= 0) atomicMax(&heavy[parent], size << 8 | r);  // among equals the later child, where it stands already
  __syncwarp();
  const int key = parent >= 0 ? heavy[parent] : -1, heaviest = key & 255;
  const int below_parent = __shfl_sync(all, below, up);
  int place = parent < 0 ? 0 : r - parent, jump = parent;
  if (reorder && parent >= 0) {
    if (r == heaviest)
      place = below_parent + 1 - size;
    else if (r > heaviest)
      place -= key >> 8;
  }
  for (int reach = 1; reach <= depth; reach *= 2) {  // positions are sums of shifts along the root path
    const int to = jump < 0 ? r : jump;
    const int further_place = __shfl_sync(all, place, to), further = __shfl_sync(all, jump, to);
    if (jump >= 0) place += further_place, jump = further;
  }
  const int up_place = __shfl_sync(all, place, up);
  const bool last = parent < 0 || (reorder ? heaviest == r : r + size == parent + below_parent + 1);
  if (r < count)
    walk[place] = make_stop(ranks.node[0], parent < 0 ? -1 : up_place, size == 1, last,
                            parent < 0 || size == below_parent);
}

// Any tree, by the whole CTA: thread r places rank r.
template <int Each, int Threads>
__device__ void walk_of_block(const WalkRanks<Each, Threads>& ranks, int depth, int count, bool reorder,
                              WalkScratch& scratch, Stop* walk) {
  int parent[Each], size[Each], shift[Each];
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const int r = threadIdx.x + e * Threads;
    parent[e] = r >= count || r == 0 ? -1 : ranks.parent[e];
    size[e] = r >= count ? 0 : ranks.below[e] + 1;
    scratch.below[r] = size[e] - 1;
    scratch.heavy[r] = -1;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < Each; ++e)
    if (parent[e] >= 0) atomicMax(&scratch.heavy[parent[e]], size[e] << 8 | (threadIdx.x + e * Threads));
  __syncthreads();
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const int r = threadIdx.x + e * Threads;
    shift[e] = parent[e] < 0 ? 0 : r - parent[e];
    if (reorder && parent[e] >= 0) {
      const int key = scratch.heavy[parent[e]], heavy = key & 255;
      if (r == heavy)
        shift[e] = scratch.below[parent[e]] + 1 - size[e];
      else if (r > heavy)
        shift[e] -= key >> 8;
    }
    scratch.place[0][r] = shift[e], scratch.jump[0][r] = parent[e];
  }
  __syncthreads();
  int side = 0;
  for (int reach = 1; reach <= depth; reach *= 2, side ^= 1) {
#pragma unroll
    for (int e = 0; e < Each; ++e) {
      const int r = threadIdx.x + e * Threads, to = scratch.jump[side][r];
      scratch.place[side ^ 1][r] = scratch.place[side][r] + (to >= 0 ? scratch.place[side][to] : 0);
      scratch.jump[side ^ 1][r] = to >= 0 ? scratch.jump[side][to] : -1;
    }
    __syncthreads();
  }
#pragma unroll
  for (int e = 0; e < Each; ++e) {
    const int r = threadIdx.x + e * Threads;
    if (r >= count) continue;
    const bool last = parent[e] < 0 || (reorder ? (scratch.heavy[parent[e]] & 255) == r
                                                : r + size[e] == parent[e] + scratch.below[parent[e]] + 1);
    const bool only = parent[e] < 0 || size[e] == scratch.below[parent[e]];
    walk[scratch.place[side][r]] =
        make_stop(ranks.node[e], parent[e] < 0 ? -1 : scratch.place[side][parent[e]], size[e] == 1, last, only);
  }
  __syncthreads();
}

}  // namespace canopy::cuda
