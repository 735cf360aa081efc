// What a kernel asks about one sequence: its slot, its health, its gates. Strides are in elements, 64-bit.
#pragma once

#include "canopy/problem.hpp"
#include "cuda/ptx.cuh"
#include "gates.hpp"

namespace canopy::cuda {

// Slot of sequence b: -1 for a padding row. `index` is slot_index, dst_slot or track_slot (NULL: b itself).
template <class Rows>  // Problem or ConvProblem
__device__ __forceinline__ std::int64_t device_slot(const Rows& p, const void* index, int b) {
  if (!index) return b;
  const std::int64_t slot = p.slot_index_dtype == CANOPY_I64 ? static_cast<const std::int64_t*>(index)[b]
                                                             : static_cast<const std::int32_t*>(index)[b];
  return slot <= p.padding_slot ? -1 : slot;
}

// floor(head / (HV / H)), the key head of a value head, without a division of integers; the half keeps rounding away
// from the edges.
__device__ __forceinline__ int key_head_of(int head, float key_heads_each) {
  return static_cast<int>((head + 0.5f) * key_heads_each);
}

__device__ __forceinline__ float load_float(const void* data, int dtype, std::int64_t at) {
  if (dtype == CANOPY_F32) return static_cast<const float*>(data)[at];
  if (dtype == CANOPY_BF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  return __half2float(static_cast<const __half*>(data)[at]);
}

struct Gate {
  float log_gate, beta;  // log alpha clamped as on the host, beta
};
// What a node's gates are made of, and what its head adds to raw ones, as it lies in memory.
struct GateBits {
  std::uint32_t g, beta;
};
struct HeadBits {
  std::uint32_t a_log, dt_bias;
};
// Gates of one node, given (g, beta) or raw (a, b, A_log, dt_bias).
__device__ __forceinline__ Gate load_gate(const Problem& p, int b, int node, int head) {
  auto at = [&](const Tensor& t) { return b * t.stride[1] + node * t.stride[2] + head * t.stride[3]; };
  if (p.g.data)
    return {clamp_log_gate(static_cast<const float*>(p.g.data)[at(p.g)]),
            static_cast<const float*>(p.beta.data)[at(p.beta)]};
  const float x = load_float(p.a.data, p.a.dtype, at(p.a)) +
                  load_float(p.dt_bias.data, p.dt_bias.dtype, head * p.dt_bias.stride[1]);
  return {log_gate_from_raw(load_float(p.a_log.data, p.a_log.dtype, head * p.a_log.stride[1]), x),
          beta_from_raw(load_float(p.b.data, p.b.dtype, at(p.b)), p.beta_doubled != 0)};
}

}  // namespace canopy::cuda
