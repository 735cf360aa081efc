// What a CTA asks about its sequence and value head before it starts: slot, size, health, gates.
#pragma once

#include "cuda/row.cuh"
#include "cuda/tile/shape.cuh"

namespace canopy::cuda {

// Raw gates: asked for all at once, and looked at later.
__device__ __forceinline__ GateBits load_raw(const FusedArguments& a, const char* g, const char* beta) {
  return {load_bits(g, a.g.dtype == CANOPY_F32), load_bits(beta, a.beta.dtype == CANOPY_F32)};
}
__device__ __forceinline__ HeadBits load_head(const FusedArguments& a, int head) {
  return {load_bits(a.a_log.data + head * a.a_log.step, a.a_log_dtype == CANOPY_F32),
          load_bits(a.dt_bias.data + head * a.dt_bias.step, a.dt_bias_dtype == CANOPY_F32)};
}

__device__ __forceinline__ float float_of_bits(std::uint32_t bits, int dtype) {
  const float half = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  return dtype == CANOPY_F32 ? __uint_as_float(bits) : dtype == CANOPY_BF16 ? __uint_as_float(bits << 16) : half;
}
// gates.hpp's log_gate_from_raw() and beta_from_raw() in some 35 instructions. Relative error below 1e-6, of g by
// another 1.2e-7 |A_log + x|. The library's functions are 200, which take a microsecond where they run once and cold.
__device__ __forceinline__ Gate gate_from_raw(float a_log, float x, float b, bool beta_doubled) {
  constexpr float kLog2e = 1.4426950408889634f;
  // softplus(x) = max(x, 0) + log1p(t), t = exp(-|x|); log1p(t) / t by Chebyshev, within 1.2e-7 on 0 .. 1.
  const float t = exp2_fast(-fabsf(x) * kLog2e);
  float p = 5.253457929939032e-3f;
  constexpr float kSeries[] = {
      -2.958850748836994e-2f, 7.836166769266129e-2f, -0.13674770295619965f, 0.19111430644989014f,
      -0.24844369292259216f,  0.33319270610809326f,  -0.49999502301216125f, 1.f};
#pragma unroll
  for (const float coefficient : kSeries) p = fmaf(p, t, coefficient);
  // exp(A_log) t is one exponential, which neither overflows nor vanishes before their product does.
  const bool below = x < 0.f;
  const float magnitude = exp2_fast((below ? a_log + x : a_log) * kLog2e) * (below ? p : fmaf(t, p, x));
  const float sigmoid = reciprocal_fast(1.f + exp2_fast(-b * kLog2e));
  return {clamp_log_gate(-magnitude), beta_doubled ? 2.f * sigmoid : sigmoid};
}
__device__ __forceinline__ Gate raw_gate(const FusedArguments& a, GateBits node, HeadBits head) {
  const float x = float_of_bits(node.g, a.g.dtype) + float_of_bits(head.dt_bias, a.dt_bias_dtype);
  return gate_from_raw(float_of_bits(head.a_log, a.a_log_dtype), x, float_of_bits(node.beta, a.beta.dtype),
                       a.beta_doubled);
}
__device__ __forceinline__ Gate given_gate(GateBits node) {
  return {clamp_log_gate(__uint_as_float(node.g)), __uint_as_float(node.beta)};
}
// A node's gates, where `g` and `beta` are those of the sequence's first; or what they are made of.
__device__ __forceinline__ GateBits load_gate(const FusedArguments& a, const char* g, const char* beta, int node) {
  g += std::uint64_t{static_cast<std::uint32_t>(node)} * a.g.node;
  beta += std::uint64_t{static_cast<std::uint32_t>(node)} * a.beta.node;
  if (a.raw_gates) return load_raw(a, g, beta);
  return {*reinterpret_cast<const std::uint32_t*>(g), *reinterpret_cast<const std::uint32_t*>(beta)};
}
// Out of line, where what is inlined costs the wide kernels spills.
inline __device__ __noinline__ Gate raw_gate_apart(const FusedArguments& a, GateBits node, HeadBits head) {
  return raw_gate(a, node, head);
}
__device__ __forceinline__ Gate fused_gate(const FusedArguments& a, int b, int node, int head) {
  const GateBits bits = load_gate(a, a.g.of(b, head), a.beta.of(b, head), node);
  return a.raw_gates ? raw_gate_apart(a, bits, load_head(a, head)) : given_gate(bits);
}

// What is known of sequence b before the start. By value: taken apart by reference it costs the fused kernel spills.
struct FusedRow {
  std::int64_t slot;
  int status;  // what row_status is to say
  int count, blocks, steps;
  bool padding;  // slot <= padding_slot: to be left alone

  __device__ __forceinline__ FusedRow(const FusedArguments& a, const DevicePlan& plan, int b)
      : FusedRow(a, load_index(a.slot_index, a.long_slots, b), *reinterpret_cast<const int4*>(&plan), plan.steps) {}
  // `header`: the first four numbers of the plan.
  __device__ __forceinline__ FusedRow(const FusedArguments& a, std::int64_t slot_, int4 header, int steps_)
      : slot(slot_), count(header.y), blocks(header.w), steps(steps_) {
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
