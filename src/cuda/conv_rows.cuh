// What the kernels of the tree convolution share: elements and rows of 16 bytes, SiLU, and where the rows of a node's
// taps lie.
#pragma once

#include <type_traits>

#include "conv_rows.hpp"
#include "cuda/plan.cuh"
#include "cuda/ptx.cuh"

namespace canopy::cuda {

inline constexpr int kConvLanes = 8, kConvBytes = 16 * kConvLanes;  // of a node in a CTA
inline constexpr int kMostConvThreads = 256;

template <class Input>
inline constexpr int kConvEach = 16 / static_cast<int>(sizeof(Input));  // channels a thread

// An element's bits, so that the load does not wait for the conversion.
__device__ __forceinline__ std::uint32_t load_bits(const Tensor& from, std::int64_t at) {
  return from.dtype == CANOPY_F32 ? static_cast<const std::uint32_t*>(from.data)[at]
                                  : static_cast<const std::uint16_t*>(from.data)[at];
}
__device__ __forceinline__ float from_bits(int dtype, std::uint32_t bits) {
  if (dtype == CANOPY_F32) return __uint_as_float(bits);
  if (dtype == CANOPY_BF16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ __forceinline__ std::uint32_t to_bits(int dtype, float value) {
  if (dtype == CANOPY_F32) return __float_as_uint(value);
  if (dtype == CANOPY_BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ void store_bits(const Tensor& to, std::int64_t at, std::uint32_t bits) {
  if (to.dtype == CANOPY_F32)
    static_cast<std::uint32_t*>(to.data)[at] = bits;
  else
    static_cast<std::uint16_t*>(to.data)[at] = static_cast<std::uint16_t>(bits);
}

// 16 bytes of Input as fp32, and back.
template <class Input, int N = kConvEach<Input>>
__device__ __forceinline__ void widen_16(uint4 bits, float (&out)[N]) {
  const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<Input, float>) {
      out[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<Input, __nv_bfloat16>) {
      out[2 * i] = __uint_as_float(words[i] << 16), out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
    }
  }
}
template <class Input, int N = kConvEach<Input>>
__device__ __forceinline__ uint4 narrow_16(const float (&in)[N]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<Input, float>) {
      words[i] = __float_as_uint(in[i]);
    } else if constexpr (std::is_same_v<Input, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(in[2 * i], in[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// y / (1 + exp(-y)) by the approximations of the special function unit, two numbers to a reciprocal, within 5e-7 of
// |y|. The exponent is held under 60, so that the product of both sums stays finite.
__device__ __forceinline__ void silu(float& a, float& b) {
  constexpr float kPerLog2 = -1.44269504088896341f, kMost = 60;
  const float of_a = 1.0f + exp2_fast(fminf(a * kPerLog2, kMost)), of_b = 1.0f + exp2_fast(fminf(b * kPerLog2, kMost));
  const float both = reciprocal_fast(of_a * of_b);
  a *= of_b * both, b *= of_a * both;
}
template <int N>
__device__ __forceinline__ void silu(float (&y)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) silu(y[i], y[i + 1]);
}

// A thread's weights or bias as they lie in memory when they are packed, so that other loads need not wait for them.
template <class Input, int kNumbers>
struct alignas(kNumbers % 8 == 0 ? 16 : 8) Packed {
  std::uint32_t word[kNumbers / 2];
  __device__ __forceinline__ float operator[](int i) const {
    constexpr int dtype = std::is_same_v<Input, __nv_bfloat16> ? CANOPY_BF16 : CANOPY_F16;
    return from_bits(dtype, word[i / 2] >> (16 * (i % 2)) & 0xffff);
  }
};

// By node: where the rows of its taps begin, in bytes, the oldest first. Row i of x lies at i, the committed window
// behind the rows of all nodes.
using ConvTaps = uint4;

// The table. `order` is the plan's, in shared memory; `up` what the plan says of rank threadIdx.x, asked for early.
template <int W>
__device__ __forceinline__ void make_taps(ConvTaps* taps, const std::uint8_t* order, const DevicePlan& plan,
                                          std::uint32_t up, int count, int nodes) {
#pragma unroll 1
  for (int rank = threadIdx.x; rank < count; rank += blockDim.x) {
    const std::uint32_t above =
        rank == static_cast<int>(threadIdx.x) ? up : *reinterpret_cast<const std::uint32_t*>(plan.up[rank]);
    std::uint32_t at[kConvTaps] = {};
    int outside = 0;
#pragma unroll
    for (int back = 1; back < W; ++back) {
      const int ancestor = above >> (8 * (back - 1)) & 255;
      const bool past = outside || ancestor == kNone;
      at[W - 1 - back] = past ? nodes + W - 2 - outside : static_cast<int>(order[ancestor]);
      outside += past;
    }
    const int node = at[W - 1] = order[rank];
    taps[node] = {at[0] * kConvBytes, at[1] * kConvBytes, at[2] * kConvBytes, at[3] * kConvBytes};
  }
}

}  // namespace canopy::cuda
