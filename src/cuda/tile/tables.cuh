// The per-node tables of one (sequence, value head) in shared memory: the plan's rows, gates and cumulative log gates
// (E2), made once in the prologue by kThreads threads.
#pragma once

#include <cstddef>

#include "cuda/plan.cuh"
#include "cuda/row.cuh"
#include "cuda/tile/ops.cuh"
#include "two_float.hpp"

namespace canopy::cuda {

struct NodeTables {
  // The plan's first arrays, by rank, in its order.
  alignas(16) std::uint16_t in_block[kNodes], push_at[kNodes];
  std::uint8_t order[kNodes], prefix[kNodes], push[kNodes];
  std::uint8_t ancestors[kBlocks], base[kBlocks], spills[kBlocks];
  std::uint8_t up[kNodes][kUp];
  // By rank: log2 of the gate in units of 2^-40, which add up without rounding, in any order.
  std::int64_t gate[kNodes];
  TwoFloat<float> l[kNodes];  // cumulative, log2
  float beta[kNodes];
};
inline constexpr int kPlanVectors = (7 * kNodes + 3 * kBlocks) / 16;  // of 16 bytes
static_assert(offsetof(DevicePlan, spills) - offsetof(DevicePlan, in_block) == 7 * kNodes + 2 * kBlocks);
static_assert(offsetof(NodeTables, spills) - offsetof(NodeTables, in_block) == 7 * kNodes + 2 * kBlocks);

// A gate g as log2 in units of 2^-40. Gates are at most 16,384 in size here, so that 256 of them stay below
// 2^63. NaN is the number that none of them is.
inline constexpr float kGateUnit = 0x1p-40f;
inline constexpr std::int64_t kNanGate = std::int64_t{1} << 63;
__device__ __forceinline__ std::int64_t gate_units(float g) {
  constexpr float units = 1.4426950408889634f / kGateUnit;
  const float bounded = fminf(fmaxf(g, static_cast<float>(kForgottenLogGate)), -static_cast<float>(kForgottenLogGate));
  return g == g ? __float2ll_rn(bounded * units) : kNanGate;
}
__device__ __forceinline__ int high_half(std::int64_t x) { return static_cast<int>(x >> 32); }
__device__ __forceinline__ TwoFloat<float> log2_of_units(std::int64_t sum) {
  const float high = __ll2float_rn(sum), low = __ll2float_rn(sum - __float2ll_rn(high));
  return {high * kGateUnit, low * kGateUnit};
}
// l as the caller knows it, a natural logarithm.
__device__ __forceinline__ float natural(TwoFloat<float> l) {
  constexpr float ln2_high = 0.693147182464599609375f, ln2_low = -1.904654299957767e-9f;
  return fmaf(l.hi, ln2_high, fmaf(l.hi, ln2_low, l.lo * ln2_high));
}

// What one thread has on its way from memory: its nodes' gates and ranks, its ranks' ancestors, its part of the plan.
// All of it may be of a malformed or shorter tree; it is in bounds, and not used then.
// `Loaded`: what is kept of a node's gates until the tables are stored: them, or what they are made of.
template <int kThreads, class Loaded = Gate>
struct TableLoads {
  static constexpr int kEach = (kNodes + kThreads - 1) / kThreads;
  Loaded gate[kEach];
  std::uint8_t rank[kEach];
  uint2 up[kEach];
  uint4 part[(kPlanVectors + kThreads - 1) / kThreads];

  template <class LoadGate>
  __device__ __forceinline__ void start(const DevicePlan& plan, int nodes, int thread, LoadGate&& load_gate) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * kThreads;
      if (n < nodes) {
        rank[i] = plan.rank[n];
        up[i] = *reinterpret_cast<const uint2*>(plan.up[n]);
      }
    }
    start_plan(plan, thread);
#pragma unroll
    for (int i = 0; i < kEach; ++i)  // last: raw ones are waited for
      if (thread + i * kThreads < nodes) gate[i] = load_gate(thread + i * kThreads);
  }
  __device__ __forceinline__ void start_plan(const DevicePlan& plan, int thread) {
#pragma unroll
    for (int i = 0; i * kThreads < kPlanVectors; ++i)
      if (thread + i * kThreads < kPlanVectors)
        part[i] = reinterpret_cast<const uint4*>(plan.in_block)[thread + i * kThreads];
  }

  __device__ __forceinline__ void store_plan(NodeTables& tables, int thread) const {
#pragma unroll
    for (int i = 0; i * kThreads < kPlanVectors; ++i)
      if (thread + i * kThreads < kPlanVectors)
        reinterpret_cast<uint4*>(tables.in_block)[thread + i * kThreads] = part[i];
  }
  template <class GateOf>
  __device__ __forceinline__ void store(NodeTables& tables, int count, int thread, GateOf&& gate_of) const {
    store_plan(tables, thread);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = thread + i * kThreads;
      if (n < count) {
        const Gate of_node = gate_of(gate[i]);
        tables.gate[rank[i]] = gate_units(of_node.log_gate);
        tables.beta[rank[i]] = of_node.beta;
        *reinterpret_cast<uint2*>(tables.up[n]) = up[i];
      }
    }
  }
  __device__ __forceinline__ void store(NodeTables& tables, int count, int thread) const {
    store(tables, count, thread, [](Gate gate) { return gate; });
  }
};

// A rank past the end.
__device__ __forceinline__ void clear_rank(NodeTables& tables, int r) {
  tables.l[r] = {};
  tables.beta[r] = 0;
  tables.in_block[r] = 0;
  tables.prefix[r] = 0;
  tables.push[r] = kNone;
  tables.push_at[r] = passing_row(r % kRows);
}

// Once all of that is stored: l of the thread's ranks, and nothing for ranks past the end.
template <int kThreads>
__device__ __forceinline__ void accumulate_gates(NodeTables& tables, int count, int thread) {
#pragma unroll
  for (int i = 0; i < (kNodes + kThreads - 1) / kThreads; ++i) {
    const int r = thread + i * kThreads;
    if (r < count) {
      std::int64_t sum = tables.gate[r];
      int lowest = high_half(sum);  // only kNanGate's is as low as that
      int from = r;
      do {
        const uint2 up = *reinterpret_cast<const uint2*>(tables.up[from]);
#pragma unroll
        for (int a = 0; a < kUp; ++a) {
          const int ancestor = (a < 4 ? up.x : up.y) >> (8 * (a % 4)) & 0xff;
          if (ancestor != kNone) {
            const std::int64_t gate = tables.gate[ancestor];
            sum += gate, lowest = min(lowest, high_half(gate));
          }
        }
        from = up.y >> 24;
      } while (from != kNone);
      const float nan = __int_as_float(0x7fffffff);
      tables.l[r] = lowest == high_half(kNanGate) ? TwoFloat<float>{nan, nan} : log2_of_units(sum);
    } else if (r < kNodes) {
      clear_rank(tables, r);
    }
  }
}

}  // namespace canopy::cuda
