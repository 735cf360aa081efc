// Small steps of the tile arithmetic: 16-bit operands from floats and back, masks, arrivals of a warp.
#pragma once

#include "cuda/ptx.cuh"

namespace canopy::cuda {

__device__ __forceinline__ std::uint32_t pack_half(float low, float high) {
  const __half2 x = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&x);
}
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&x);
}
template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&x));
}

template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return pack_bf16(low, high);
  else
    return pack_half(low, high);
}
// Two numbers as kParts operands each that add up to them: 11 bits (fp16) or 8 bits (bf16) a part.
template <class T, int kParts>
__device__ __forceinline__ void split(std::uint32_t (&parts)[kParts], float low, float high) {
  parts[0] = pack<T>(low, high);
  if constexpr (kParts == 2) {
    const float2 rounded = unpack<T>(parts[0]);
    parts[1] = pack<T>(low - rounded.x, high - rounded.y);
  }
}

// All ones where bit `bit` (a constant) of `bits` is set, and where x < y.
__device__ __forceinline__ std::uint32_t bit_mask(std::uint32_t bits, int bit) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(bits << (31 - bit)) >> 31);
}
__device__ __forceinline__ std::uint32_t less_mask(int x, int y) { return static_cast<std::uint32_t>((x - y) >> 31); }
// x under the mask, else 0 whatever x is: 0 * NaN would be NaN.
__device__ __forceinline__ float keep(std::uint32_t mask, float x) {
  return __uint_as_float(__float_as_uint(x) & mask);
}

__device__ __forceinline__ uint4 load_shared(const void* p) { return *static_cast<const uint4*>(p); }
__device__ __forceinline__ void store_shared(void* p, uint4 x) { *static_cast<uint4*>(p) = x; }
// One arrival of a warp, after everything its lanes did. racecheck does not follow __syncwarp() into an arrival by one
// lane; built with CANOPY_RACECHECK every lane arrives, which it does follow.
#ifdef CANOPY_RACECHECK
inline constexpr int kWarpArrivals = 32;
#else
inline constexpr int kWarpArrivals = 1;
#endif
__device__ __forceinline__ void warp_arrive(std::uint64_t* barrier, int lane) {
  __syncwarp();
  if (lane < kWarpArrivals) barrier_arrive(barrier);
}

}  // namespace canopy::cuda
