// src/cuda/ptx.cuh in plain C++, for the emulated GPU: the same functions, the same lanes and registers (PTX ISA 9.7.14
// and 9.7.15, "Matrix Fragments"). Products are added up in fp32 in the order of k; tensor cores round otherwise.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace canopy::cuda {

inline std::uint8_t* dynamic_shared() { return emulated::shared_memory(); }

inline float of_16_bits(bool bf16, std::uint32_t bits) {
  return bf16 ? from_bf16(static_cast<std::uint16_t>(bits)) : from_f16(static_cast<std::uint16_t>(bits));
}

template <class Operand>
void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Fragments {
    float a[4][2], b[2][2];
  } mine;
  constexpr bool bf16 = std::is_same_v<Operand, __nv_bfloat16>;
  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half) mine.a[i][half] = of_16_bits(bf16, a[i] >> (16 * half) & 0xffff);
  for (int half = 0; half < 2; ++half)
    mine.b[0][half] = of_16_bits(bf16, b0 >> (16 * half) & 0xffff),
    mine.b[1][half] = of_16_bits(bf16, b1 >> (16 * half) & 0xffff);
  const auto& all = emulated::deposit(~0u, "mma", mine);
  const auto fragments = [&](int lane) { return reinterpret_cast<const Fragments*>(all.bytes[lane]); };
  const int lane = emulated::lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k)
      d[i] += fragments(row % 8 * 4 + k % 8 / 2)->a[row / 8 + k / 8 * 2][k % 2] *
              fragments(column * 4 + k % 8 / 2)->b[k / 8][k % 2];
  }
}

struct MatrixRow {
  std::uint16_t x[8];
};
inline MatrixRow matrix_row(const void* at) {
  emulated::expect_shared(at, 16, 16);
  MatrixRow row;
  std::memcpy(&row, at, 16);
  return row;
}
inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto& all = emulated::deposit(~0u, "ldmatrix", matrix_row(row));
  const int lane = emulated::lane();
  for (int i = 0; i < 4; ++i) {
    const auto from = emulated::of_lane<MatrixRow>(all, 8 * i + lane / 4);
    r[i] = from.x[2 * (lane % 4)] | static_cast<std::uint32_t>(from.x[2 * (lane % 4) + 1]) << 16;
  }
}
template <int N>
void load_transposed(std::uint32_t (&r)[N], const void* row) {
  const int lane = emulated::lane();
  const auto& all = emulated::deposit(~0u, N == 4 ? "ldmatrix.trans" : "ldmatrix.x2.trans",
                                      lane < 8 * N ? matrix_row(row) : MatrixRow{});
  for (int i = 0; i < N; ++i)
    r[i] = emulated::of_lane<MatrixRow>(all, 8 * i + 2 * (lane % 4)).x[lane / 4] |
           static_cast<std::uint32_t>(emulated::of_lane<MatrixRow>(all, 8 * i + 2 * (lane % 4) + 1).x[lane / 4]) << 16;
}
struct FourRegisters {
  std::uint32_t r[4];
};
inline void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  const auto& all = emulated::deposit(~0u, "stmatrix", FourRegisters{{r[0], r[1], r[2], r[3]}});
  const int lane = emulated::lane();
  std::uint32_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = emulated::of_lane<FourRegisters>(all, lane % 8 * 4 + i).r[lane / 8];
  emulated::expect_shared(row, 16, 16);
  std::memcpy(row, words, 16);
}
inline void store_transposed(void* row, const std::uint32_t (&r)[4]) {
  const auto& all = emulated::deposit(~0u, "stmatrix.trans", FourRegisters{{r[0], r[1], r[2], r[3]}});
  const int lane = emulated::lane();
  MatrixRow words;
  for (int i = 0; i < 8; ++i)
    words.x[i] = static_cast<std::uint16_t>(emulated::of_lane<FourRegisters>(all, 4 * i + lane % 8 / 2).r[lane / 8] >>
                                            (16 * (lane % 2)));
  emulated::expect_shared(row, 16, 16);
  std::memcpy(row, &words, 16);
}

inline void copy_async(void* to, const void* from, bool valid) { emulated::copy(to, from, 16, valid); }
template <int kBytes>
void copy_async(void* to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  emulated::copy(to, from, kBytes, true);
}
inline void end_copies() { emulated::end_copies(); }
template <int kLatest>
void wait_for_copies() {
  emulated::wait_for_copies(kLatest);
}
inline void wait_for_all_copies() { emulated::wait_for_copies(-1); }

inline void meet(int threads) { emulated::meet_block(1, threads, 0); }
inline void wait_at(int barrier, int threads) { emulated::meet_block(barrier, threads, 0); }
inline void arrive_at(int barrier, int threads) { emulated::arrive_block(barrier, threads); }
inline void barrier_init(std::uint64_t* barrier, int arrivals) { emulated::barrier_init(barrier, arrivals); }
inline void barrier_arrive(std::uint64_t* barrier) { emulated::barrier_arrive(barrier); }
inline void barrier_arrive_async(std::uint64_t* barrier) { emulated::barrier_arrive_after_copies(barrier); }
inline void barrier_wait(std::uint64_t* barrier, std::uint32_t phase) { emulated::barrier_wait(barrier, phase); }

inline void wait_for_previous_kernel() {}
inline void let_next_kernel_start() {}

inline float without_denormals(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
inline float exp2_fast(float x) { return without_denormals(std::exp2(without_denormals(x))); }
inline float reciprocal_fast(float x) { return without_denormals(1 / without_denormals(x)); }

template <int>
void give_registers() {}
template <int>
void take_registers() {}

template <class T>
void hold(T&) {}
template <class T>
T* held(T* pointer) {
  return pointer;
}
inline void touch(int) {}

inline std::uint32_t load_bits(const void* at, bool is_float) {
  return is_float ? *static_cast<const std::uint32_t*>(at) : *static_cast<const std::uint16_t*>(at);
}
inline std::int64_t load_index(const void* indices, bool is_long, int at) {
  if (indices == nullptr) return at;
  return is_long ? static_cast<const std::int64_t*>(indices)[at] : static_cast<const std::int32_t*>(indices)[at];
}
inline void store_global(void* p, uint4 x) { *static_cast<uint4*>(p) = x; }
inline void store_float_or_half(void* at, bool is_float, float x, unsigned short half) {
  if (is_float)
    *static_cast<float*>(at) = x;
  else
    *static_cast<unsigned short*>(at) = half;
}

}  // namespace canopy::cuda
