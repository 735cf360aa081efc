// The per-node tables of one (sequence, value head) in shared memory: the plan's rows, gates and cumulative log gates
// (E2), made once in the prologue.
#pragma once

#include <cstddef>

#include "cuda/plan.cuh"
#include "cuda/row.cuh"
#include "two_float.hpp"

namespace canopy::cuda {

struct NodeTables {
  // The plan's first arrays, by rank, in its order; in_block, prefix and push are none from `count` on.
  alignas(16) std::uint16_t in_block[kNodes];
  std::uint8_t order[kNodes], parent[kNodes], prefix[kNodes], push[kNodes];
  std::uint8_t ancestors[kBlocks];
  // By rank, 0 from `count` on: l in two floats, exp(l), beta.
  TwoFloat<float> l[kNodes];
  float exp_l[kNodes], beta[kNodes];
  TwoFloat<float> other[kNodes];  // g and beta by node at first, then the second buffer of the doubling
  std::uint8_t jump[2][kNodes];
};
inline constexpr int kPlanVectors = (2 * kNodes + 4 * kNodes + kBlocks) / 16;  // of 16 bytes, at most one a thread
static_assert(offsetof(DevicePlan, ancestors) - offsetof(DevicePlan, in_block) == 6 * kNodes);
static_assert(offsetof(NodeTables, ancestors) - offsetof(NodeTables, in_block) == 6 * kNodes);

__device__ __forceinline__ uint4 load_plan(const DevicePlan& plan) {
  return threadIdx.x < kPlanVectors ? reinterpret_cast<const uint4*>(plan.in_block)[threadIdx.x] : uint4{};
}
__device__ __forceinline__ void store_plan(NodeTables& tables, uint4 part) {
  if (threadIdx.x < kPlanVectors) reinterpret_cast<uint4*>(tables.in_block)[threadIdx.x] = part;
}

// After a barrier behind store_plan and the gates in `other`; ends with one: l of every rank by pointer doubling. A
// node adds up the gates of its own path and nothing else, in an order that depends on its depth alone.
template <int kThreads>
__device__ __forceinline__ void accumulate_gates(NodeTables& tables, int count, int depth) {
  constexpr int per_thread = (kNodes + kThreads - 1) / kThreads;
  float beta[per_thread];
  TwoFloat<float> own[per_thread];
  int up[per_thread];
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const int r = threadIdx.x + i * kThreads;
    beta[i] = 0, own[i] = {}, up[i] = kNone;
    if (r < kNodes) {
      if (r < count) {
        const TwoFloat<float> gate = tables.other[tables.order[r]];
        own[i] = {gate.hi, 0};
        beta[i] = gate.lo;
        up[i] = tables.parent[r];
      } else {
        tables.in_block[r] = 0;
        tables.prefix[r] = 0;
        tables.push[r] = kNone;
      }
      tables.l[r] = own[i];
      tables.jump[0][r] = static_cast<std::uint8_t>(up[i]);
      tables.beta[r] = beta[i];
    }
  }
  __syncthreads();
  TwoFloat<float>*from = tables.l, *to = tables.other;
  int side = 0;
  for (int reach = 1; reach <= depth; reach *= 2) {
#pragma unroll
    for (int i = 0; i < per_thread; ++i) {
      const int r = threadIdx.x + i * kThreads;
      if (up[i] != kNone) {
        const TwoFloat<float> above = from[up[i]];
        const TwoFloat<float> sum = two_sum(own[i].hi, above.hi);
        own[i] = two_sum(sum.hi, sum.lo + (own[i].lo + above.lo));
        up[i] = tables.jump[side][up[i]];
      }
      if (r < kNodes) {
        to[r] = own[i];
        tables.jump[side ^ 1][r] = static_cast<std::uint8_t>(up[i]);
      }
    }
    __syncthreads();
    side ^= 1;
    TwoFloat<float>* swap = from;
    from = to, to = swap;
  }
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const int r = threadIdx.x + i * kThreads;
    if (r < kNodes) {
      if (from != tables.l) tables.l[r] = own[i];
      tables.exp_l[r] = r < count ? expf(own[i].hi) : 0.f;
    }
  }
  __syncthreads();
}

}  // namespace canopy::cuda
