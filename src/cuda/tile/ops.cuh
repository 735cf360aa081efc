// Single instructions: tensor-core products and tile copies as CuTe atoms, mbarriers (CuTe has them from sm_90 on
// only).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/mma_sm80.hpp>
#include <type_traits>

namespace canopy::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// d += a b, 16 x 8 x 16, fp32 accumulators; a in row-major, b in column-major fragments.
template <class Operand>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<Operand, __nv_bfloat16>)
    cute::SM80_16x8x16_F32BF16BF16F32_TN::fma(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b0, b1, d[0], d[1], d[2],
                                              d[3]);
  else
    cute::SM80_16x8x16_F32F16F16F32_TN::fma(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b0, b1, d[0], d[1], d[2],
                                            d[3]);
}

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

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
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
__device__ __forceinline__ void store_global(void* p, uint4 x) {  // where the compiler cannot tell
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto& source = *static_cast<const cute::uint128_t*>(row);
  cute::SM75_U32x4_LDSM_N::copy(source, r[0], r[1], r[2], r[3]);
}
// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto& source = *static_cast<const cute::uint128_t*>(row);
  cute::SM75_U16x8_LDSM_T::copy(source, r[0], r[1], r[2], r[3]);
}
// Two of them: lanes 0 .. 15 give the addresses.
__device__ __forceinline__ void load_transposed(std::uint32_t (&r)[2], const void* row) {
  cute::SM75_U16x4_LDSM_T::copy(*static_cast<const cute::uint128_t*>(row), r[0], r[1]);
}
// The inverse of load_matrices. sm_80 has no stmatrix: there each lane stores the pairs that it holds, for the row that
// lane 8 i + lane / 4 gave.
__device__ __forceinline__ void store_matrices(void* row, const std::uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  cute::SM90_U32x4_STSM_N::copy(r[0], r[1], r[2], r[3], *static_cast<cute::uint128_t*>(row));
#else
  const std::uint32_t mine = shared_address(row);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(__shfl_sync(~0u, mine, 8 * i + lane / 4) + 4 * (lane % 4)), "r"(r[i])
                 : "memory");
#endif
}
// The inverse of load_transposed; on sm_80 each lane stores its eight elements one by one.
__device__ __forceinline__ void store_transposed(void* row, const std::uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  cute::SM90_U16x8_STSM_T::copy(r[0], r[1], r[2], r[3], *static_cast<cute::uint128_t*>(row));
#else
  const std::uint32_t mine = shared_address(row);
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t to = __shfl_sync(~0u, mine, 8 * i + 2 * (lane % 4) + half) + 2 * (lane / 4);
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(static_cast<std::uint16_t>(r[i] >> (16 * half)))
                   : "memory");
    }
  }
#endif
}

// 16 bytes from global to shared memory without waiting; zeros if not `valid` (then `from` need only be readable).
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
  cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*static_cast<const cute::uint128_t*>(from),
                                                               *static_cast<cute::uint128_t*>(to), valid);
}

// This thread's arrival at a barrier once its copy_async()s so far are there.
__device__ __forceinline__ void barrier_arrive_async(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Keeps a pointer in registers: the compiler would rather compute it from its parts again wherever it is used.
template <class T>
__device__ __forceinline__ T* held(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// The `threads` threads that use named barrier 1 wait for one another.
__device__ __forceinline__ void meet(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }

// mbarriers of one CTA: `phase` is the parity of the phase waited for.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
               : "memory");
}
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
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, std::uint32_t phase) {
  std::uint32_t done;
  do {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
#else
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(phase)
                 : "memory");
#endif
  } while (!done);
}

}  // namespace canopy::cuda
