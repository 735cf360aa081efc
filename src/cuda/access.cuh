// Reading and writing a problem's tensors on the device: elements of the three floating types as fp32, four at a time
// where every row starts on a four-element boundary.
#pragma once

#include "cuda/row.cuh"

namespace canopy::cuda {

// Which tensors can be read four elements at a time: base address and every stride a multiple of four elements.
enum : int { kWideQ = 1, kWideK = 2, kWideV = 4, kWideState = 8, kWideO = 16, kWideU = 32 };

inline bool is_wide(const Tensor& tensor) {
  const std::int64_t bytes = tensor.dtype == CANOPY_F32 ? 4 : 2;
  return reinterpret_cast<std::uintptr_t>(tensor.data) % (4 * bytes) == 0 &&
         ((tensor.stride[0] | tensor.stride[1] | tensor.stride[2] | tensor.stride[3]) & 3) == 0;
}
inline int wide_tensors(const Problem& p) {
  return (is_wide(p.q) ? kWideQ : 0) | (is_wide(p.k) ? kWideK : 0) | (is_wide(p.v) ? kWideV : 0) |
         (is_wide(p.state) ? kWideState : 0);
}

__device__ inline float widen(int dtype, std::uint32_t bits16) {
  if (dtype == CANOPY_BF16) return __uint_as_float(bits16 << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits16)));
}

// Four elements as they lie in memory; loading and converting apart lets the load be in flight meanwhile.
struct Four {
  uint4 bits;
};

__device__ inline Four load_four(int dtype, const void* data, std::int64_t index, bool wide) {
  Four out{};
  if (dtype == CANOPY_F32) {
    const float* at = static_cast<const float*>(data) + index;
    if (wide) {
      out.bits = *reinterpret_cast<const uint4*>(at);
    } else {
      out.bits = {__float_as_uint(at[0]), __float_as_uint(at[1]), __float_as_uint(at[2]), __float_as_uint(at[3])};
    }
  } else {
    const unsigned short* at = static_cast<const unsigned short*>(data) + index;
    if (wide) {
      const uint2 pair = *reinterpret_cast<const uint2*>(at);
      out.bits.x = pair.x, out.bits.y = pair.y;
    } else {
      out.bits.x = at[0] | static_cast<unsigned>(at[1]) << 16;
      out.bits.y = at[2] | static_cast<unsigned>(at[3]) << 16;
    }
  }
  return out;
}

__device__ inline float4 to_float4(int dtype, Four four) {
  const uint4 b = four.bits;
  if (dtype == CANOPY_F32)
    return {__uint_as_float(b.x), __uint_as_float(b.y), __uint_as_float(b.z), __uint_as_float(b.w)};
  return {widen(dtype, b.x & 0xffff), widen(dtype, b.x >> 16), widen(dtype, b.y & 0xffff), widen(dtype, b.y >> 16)};
}

__device__ inline float4 load_float4(int dtype, const void* data, std::int64_t index, bool wide) {
  return to_float4(dtype, load_four(dtype, data, index, wide));
}

__device__ inline unsigned short narrow(int dtype, float value) {
  return dtype == CANOPY_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                              : __half_as_ushort(__float2half_rn(value));
}

__device__ inline void store_float4(int dtype, void* data, std::int64_t index, bool wide, float4 x) {
  if (dtype == CANOPY_F32) {
    float* at = static_cast<float*>(data) + index;
    if (wide)
      *reinterpret_cast<float4*>(at) = x;
    else
      at[0] = x.x, at[1] = x.y, at[2] = x.z, at[3] = x.w;
    return;
  }
  unsigned short* at = static_cast<unsigned short*>(data) + index;
  const unsigned short a = narrow(dtype, x.x), b = narrow(dtype, x.y), c = narrow(dtype, x.z), d = narrow(dtype, x.w);
  if (wide)
    *reinterpret_cast<uint2*>(at) = {a | static_cast<unsigned>(b) << 16, c | static_cast<unsigned>(d) << 16};
  else
    at[0] = a, at[1] = b, at[2] = c, at[3] = d;
}

// Element offset of [layer, b, t, head] in a tensor of activations.
__device__ inline std::int64_t row_offset(const Tensor& x, int layer, int b, int t, int head) {
  return layer * x.stride[0] + b * x.stride[1] + t * x.stride[2] + head * x.stride[3];
}

// Gates of one node of one layer (row.cuh has those of a single layer).
__device__ inline Gate load_gate(const Problem& p, int layer, int b, int t, int hv) {
  if (p.g.data)
    return {clamp_log_gate(static_cast<const float*>(p.g.data)[row_offset(p.g, layer, b, t, hv)]),
            static_cast<const float*>(p.beta.data)[row_offset(p.beta, layer, b, t, hv)]};
  const auto of_head = [&](const Tensor& x) {
    return load_float(x.data, x.dtype, layer * x.stride[0] + hv * x.stride[1]);
  };
  const float x = load_float(p.a.data, p.a.dtype, row_offset(p.a, layer, b, t, hv)) + of_head(p.dt_bias);
  return {log_gate_from_raw(of_head(p.a_log), x),
          beta_from_raw(load_float(p.b.data, p.b.dtype, row_offset(p.b, layer, b, t, hv)), p.beta_doubled != 0)};
}

__device__ inline float query_scale(const Problem& p) {
  return p.scale != 0 ? p.scale : 1.0f / sqrtf(static_cast<float>(p.dim_k));
}

// Sum over aligned groups of `Width` lanes, the same bits in every lane.
template <int Width>
__device__ inline float lane_sum(float x) {
#pragma unroll
  for (int step = 1; step < Width; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

}  // namespace canopy::cuda
