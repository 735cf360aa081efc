// Single instructions that C++ has no words for, as functions: all inline PTX of the project and all CuTe atoms.
// tests/emulated/cuda/ptx.cuh says the same in plain C++.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
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

// The CTA's dynamic shared memory.
__device__ __forceinline__ std::uint8_t* dynamic_shared() {
  extern __shared__ __align__(128) std::uint8_t memory[];
  return memory;
}

// ---- tensor cores ------------------------------------------------------------------------------------------------
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

// ---- copies from global to shared memory that are not waited for --------------------------------------------------
// 16 bytes; zeros if not `valid` (then `from` need only be readable).
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid) {
  cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>::copy(*static_cast<const cute::uint128_t*>(from),
                                                               *static_cast<cute::uint128_t*>(to), valid);
}
// 4, 8 or 16 bytes.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes)
                 : "memory");
}
// Ends a group of this thread's copies; all but its kLatest last groups are waited for.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLatest>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLatest) : "memory");
}
// All of them, whether a group was ended or not.
__device__ __forceinline__ void wait_for_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- threads that wait for one another ---------------------------------------------------------------------------
// The `threads` threads that use named barrier 1.
__device__ __forceinline__ void meet(int threads) { asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); }
// Named barriers from 2 on, of `threads` threads: those that wait for the others, and those that only come by.
__device__ __forceinline__ void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// mbarriers of one CTA: `phase` is the parity of the phase waited for.
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
               : "memory");
}
// This thread's arrival once its copy_async()s so far are there.
__device__ __forceinline__ void barrier_arrive_async(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
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

// ---- kernels that start before the one before them ends (sm_90 on) -----------------------------------------------
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- arithmetic --------------------------------------------------------------------------------------------------
// 2^x and 1 / x, relative error 2^-22 and 2^-23; denormals are zero.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- registers ---------------------------------------------------------------------------------------------------
// A warpgroup (four warps, all at this together) gives registers back, or waits for more, so that every thread has
// kRegisters. Only sm_90a has it; elsewhere nothing happens.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#if __CUDA_ARCH__ == 900
  if constexpr (kRegisters > 0) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if __CUDA_ARCH__ == 900
  if constexpr (kRegisters > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// ---- what the compiler shall not do ------------------------------------------------------------------------------
// Keeps a value in registers: the compiler would rather compute it from its parts again wherever it is used.
template <class T>
__device__ __forceinline__ void hold(T& x) {
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(x));
  else
    asm volatile("" : "+r"(x));
}
template <class T>
__device__ __forceinline__ T* held(T* pointer) {
  hold(pointer);
  return pointer;
}
// A use of a value that nothing uses yet.
__device__ __forceinline__ void touch(int x) {
  asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %0, 0x5a17c0de;\n@p nanosleep.u32 0;\n}" ::"r"(x));
}

// A float's 32 bits, or the 16 of a shorter type, without a branch, so that several loads are under way at once.
__device__ __forceinline__ std::uint32_t load_bits(const void* at, bool is_float) {
  std::uint32_t x;
  asm volatile(
      "{\n.reg .pred p;\n.reg .b16 h;\nsetp.ne.s32 p, %1, 0;\nmov.b16 h, 0;\n"
      "@p ld.global.u32 %0, [%2];\n@!p ld.global.u16 h, [%2];\n@!p cvt.u32.u16 %0, h;\n}"
      : "=r"(x)
      : "r"(static_cast<int>(is_float)), "l"(at));
  return x;
}
// Element `at` of an array of indices in 64 or 32 bits; `at` itself where there is no array.
__device__ __forceinline__ std::int64_t load_index(const void* indices, bool is_long, int at) {
  std::int64_t x = at;
  const char* const from = static_cast<const char*>(indices) + std::int64_t{at} * (is_long ? 8 : 4);
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.eq.s32 p, %1, 2;\nsetp.eq.s32 q, %1, 1;\n"
      "@p ld.global.s64 %0, [%2];\n@q ld.global.s32 %0, [%2];\n}"
      : "+l"(x)
      : "r"(indices == nullptr ? 0
            : is_long          ? 2
                               : 1),
        "l"(from));
  return x;
}
// Stores to global memory, where the compiler cannot tell or would branch.
__device__ __forceinline__ void store_global(void* p, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ __forceinline__ void store_float_or_half(void* at, bool is_float, float x, unsigned short half) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %0, 0;\n"
      "@p st.global.f32 [%1], %2;\n@!p st.global.b16 [%1], %3;\n}" ::"r"(static_cast<int>(is_float)),
      "l"(at), "f"(x), "h"(half)
      : "memory");
}

}  // namespace canopy::cuda
