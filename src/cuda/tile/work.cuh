// What a CTA asks about its sequence and value head before it starts: slot, size, health, gates.
#pragma once

#include "cuda/row.cuh"
#include "cuda/tile/shape.cuh"

namespace canopy::cuda {

// `g`, `beta`: those of the sequence's first node.
__device__ __forceinline__ Gate fused_gate(const FusedArguments& a, const char* g, const char* beta, int node,
                                           int head) {
  g += std::uint64_t{static_cast<std::uint32_t>(node)} * a.g.node;
  beta += std::uint64_t{static_cast<std::uint32_t>(node)} * a.beta.node;
  if (!a.raw_gates) return {clamp_log_gate(*reinterpret_cast<const float*>(g)), *reinterpret_cast<const float*>(beta)};
  const float x = load_float(g, a.g.dtype, 0) + load_float(a.dt_bias.data + head * a.dt_bias.step, a.dt_bias_dtype, 0);
  return {log_gate_from_raw(load_float(a.a_log.data + head * a.a_log.step, a.a_log_dtype, 0), x),
          beta_from_raw(load_float(beta, a.beta.dtype, 0), a.beta_doubled)};
}
__device__ __forceinline__ Gate fused_gate(const FusedArguments& a, int b, int node, int head) {
  return fused_gate(a, a.g.of(b, head), a.beta.of(b, head), node, head);
}

// What is known of sequence b before the start. By value: taken apart by reference it costs the fused kernel spills.
struct FusedRow {
  std::int64_t slot;
  int status;  // what row_status is to say
  int count, blocks, steps;
  bool padding;  // slot <= padding_slot: to be left alone

  __device__ __forceinline__ FusedRow(const FusedArguments& a, const DevicePlan& plan, int b) : slot(b) {
    if (a.slot_index)
      slot = a.long_slots ? static_cast<const std::int64_t*>(a.slot_index)[b]
                          : static_cast<const std::int32_t*>(a.slot_index)[b];
    const int4 header = *reinterpret_cast<const int4*>(&plan);
    count = header.y, blocks = header.w, steps = plan.steps;
    padding = a.slot_index && slot <= a.padding_slot;
    status = padding ? 0 : header.x | (slot >= a.slots ? CANOPY_ROW_BAD_SLOT : 0);
  }
  __device__ __forceinline__ bool computes() const { return !padding && !status && count > 0; }
  __device__ __forceinline__ void give(FusedWork& work) const {
    work.slot = slot, work.count = count, work.blocks = blocks, work.steps = steps;
  }
};

// Rows of a sequence with a malformed tree, by kThreads threads.
template <int kColumns, int kThreads>
__device__ void write_nan(const FusedArguments& a, const FusedWork& work, int thread) {
  const float nan = __int_as_float(0x7fffffff);
  for (int i = thread; i < work.count * kColumns; i += kThreads) {
    const int node = i / kColumns, v = work.column + i % kColumns;
    auto row = [&](const Rows& t) { return t.of(work.b, work.head) + std::int64_t{node} * t.node; };
    if (a.o.dtype == CANOPY_F32)
      reinterpret_cast<float*>(row(a.o))[v] = nan;
    else
      reinterpret_cast<std::uint16_t*>(row(a.o))[v] = 0x7fff;  // a NaN as bf16 and as f16
    if (a.u.data) reinterpret_cast<float*>(row(a.u))[v] = nan;
    if (a.l.data && v == 0) *reinterpret_cast<float*>(row(a.l)) = nan;
  }
}

}  // namespace canopy::cuda
