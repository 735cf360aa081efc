// Vectors of fp32 in the width of the instruction set this file is compiled for, through the vector extensions that
// GCC and clang share: one source for SSE2, AVX2, AVX-512 and NEON.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__clang__)
#define CANOPY_UNROLL _Pragma("unroll")
#else
#define CANOPY_UNROLL _Pragma("GCC unroll 16")
#endif
#define CANOPY_INLINE inline __attribute__((always_inline))

namespace canopy::cpu::CANOPY_ISA {

#if defined(__AVX512F__)
inline constexpr int W = 16;   // fp32 lanes
inline constexpr int MR = 12;  // rows of a register tile: MR * NR accumulators + NR + 1 <= registers
#elif defined(__AVX__)
inline constexpr int W = 8;
inline constexpr int MR = 6;
#elif defined(__aarch64__)
inline constexpr int W = 4;
inline constexpr int MR = 12;
#else
inline constexpr int W = 4;
inline constexpr int MR = 6;
#endif
inline constexpr int NR = 2;        // vectors of a register tile
inline constexpr int NV = NR * W;   // columns of one value tile

typedef float Vec __attribute__((vector_size(4 * W)));
typedef float VecMem __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef std::int32_t IVec __attribute__((vector_size(4 * W)));
typedef std::uint32_t UVec __attribute__((vector_size(4 * W)));
typedef std::uint16_t HVec __attribute__((vector_size(2 * W)));
typedef std::uint16_t HVecMem __attribute__((vector_size(2 * W), aligned(2), may_alias));

CANOPY_INLINE Vec load(const float* p) { return *reinterpret_cast<const VecMem*>(p); }
CANOPY_INLINE void store(float* p, Vec x) { *reinterpret_cast<VecMem*>(p) = x; }
CANOPY_INLINE Vec splat(float x) { return x - Vec{}; }
CANOPY_INLINE Vec select(IVec mask, Vec a, Vec b) { return mask ? a : b; }

// a b + c with one rounding, where that is the definition of a result and not only faster (E9).
CANOPY_INLINE Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else  // no such instruction to rely on: the C library's, which is exact in software too
  Vec out;
  for (int i = 0; i < W; ++i) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return out;
#endif
}

CANOPY_INLINE float sum(Vec x) {
  float total = 0;
  for (int i = 0; i < W; ++i) total += x[i];
  return total;
}

// exp to 1 ulp or so over the whole fp32 range, denormal results included; exp(NaN) is NaN. 2^n is applied in two
// halves so that n down to -150 underflows gradually and n = 128 overflows to infinity.
CANOPY_INLINE Vec exp(Vec x) {
  const Vec clamped = select(x < -110.0f, splat(-110.0f), select(x > 89.0f, splat(89.0f), x));
  const Vec shifted = clamped * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
  const Vec n = shifted - 12582912.0f;
  const Vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts (Cody and Waite)
  Vec p = splat(1.9875691500e-4f);  // minimax polynomial of Cephes expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const IVec k = __builtin_convertvector(select(x == x, n, Vec{}), IVec);
  const IVec half = k >> 1;
  const Vec scale_a = (Vec)((half + 127) << 23), scale_b = (Vec)((k - half + 127) << 23);
  return p * scale_a * scale_b;
}

// ---- storage types -----------------------------------------------------------------------------------------------
CANOPY_INLINE Vec from_bf16(const std::uint16_t* p) {
#if defined(__AVX512F__)  // one instruction; GCC 12 makes five of the portable form below
  const UVec wide = (UVec)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  const UVec wide = (UVec)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  const UVec wide = __builtin_convertvector(*reinterpret_cast<const HVecMem*>(p), UVec);
#endif
  return (Vec)(wide << 16);
}
CANOPY_INLINE void to_bf16(std::uint16_t* p, Vec x) {
  const UVec bits = (UVec)x;
  const UVec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest even
  const UVec quiet = (bits >> 16) | 0x40u;
  const UVec out = (UVec)select(x == x, (Vec)rounded, (Vec)quiet);
  *reinterpret_cast<HVecMem*>(p) = __builtin_convertvector(out, HVec);
}

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  float value;
  if (magnitude >= 0x7c00u) {  // Inf, NaN
    const std::uint32_t bits = sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13);
    std::memcpy(&value, &bits, 4);
    return value;
  }
  const std::uint32_t bits = magnitude << 13;  // exponent still biased by 15: 2^112 puts it right, denormals too
  std::memcpy(&value, &bits, 4);
  value *= 5.192296858534828e33f;
  return sign ? -value : value;
}
inline std::uint16_t float_to_half(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (bits < 0x38800000u) {                        // denormal half: adding 0.5 rounds to multiples of 2^-24
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    std::memcpy(&bits, &magnitude, 4);
    return static_cast<std::uint16_t>(sign | (bits - 0x3f000000u));
  }
  bits += 0xfffu + ((bits >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((bits - 0x38000000u) >> 13));
}

CANOPY_INLINE Vec from_f16(const std::uint16_t* p) {
#if defined(__AVX512F__)  // the unmasked forms warn in GCC 12 (bug 105593)
  return (Vec)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Vec x;
  for (int i = 0; i < W; ++i) x[i] = half_to_float(p[i]);
  return x;
#endif
}
CANOPY_INLINE void to_f16(std::uint16_t* p, Vec x) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xffff, (__m512)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < W; ++i) p[i] = float_to_half(x[i]);
#endif
}

// ---- W x W transpose: dst[j * ldd + i] = src[i * lds + j] ----------------------------------------------------------
// In 128-bit lanes first (two unpack stages on groups of four rows), then the lanes among the groups.
CANOPY_INLINE void transpose(Vec (&r)[W]) {
#if defined(__AVX512F__)
#define CANOPY_LANES(a, b, c, d) a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4, (a) + 8, (b) + 8, (c) + 8, (d) + 8, (a) + 12, (b) + 12, (c) + 12, (d) + 12
#elif defined(__AVX__)
#define CANOPY_LANES(a, b, c, d) a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4
#else
#define CANOPY_LANES(a, b, c, d) a, b, c, d
#endif
  CANOPY_UNROLL
  for (int g = 0; g < W; g += 4) {
    const Vec ab_lo = __builtin_shufflevector(r[g], r[g + 1], CANOPY_LANES(0, W, 1, W + 1));
    const Vec ab_hi = __builtin_shufflevector(r[g], r[g + 1], CANOPY_LANES(2, W + 2, 3, W + 3));
    const Vec cd_lo = __builtin_shufflevector(r[g + 2], r[g + 3], CANOPY_LANES(0, W, 1, W + 1));
    const Vec cd_hi = __builtin_shufflevector(r[g + 2], r[g + 3], CANOPY_LANES(2, W + 2, 3, W + 3));
    r[g] = __builtin_shufflevector(ab_lo, cd_lo, CANOPY_LANES(0, 1, W, W + 1));
    r[g + 1] = __builtin_shufflevector(ab_lo, cd_lo, CANOPY_LANES(2, 3, W + 2, W + 3));
    r[g + 2] = __builtin_shufflevector(ab_hi, cd_hi, CANOPY_LANES(0, 1, W, W + 1));
    r[g + 3] = __builtin_shufflevector(ab_hi, cd_hi, CANOPY_LANES(2, 3, W + 2, W + 3));
  }
#if defined(__AVX512F__)
  CANOPY_UNROLL
  for (int j = 0; j < 4; ++j) {  // r[g + j] lane m holds column 4m + j of rows g .. g+3
    const Vec a = r[j], b = r[4 + j], c = r[8 + j], d = r[12 + j];
    const Vec ab_even = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const Vec ab_odd = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    const Vec cd_even = __builtin_shufflevector(c, d, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const Vec cd_odd = __builtin_shufflevector(c, d, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    // ab_even: a0 a2 b0 b2 (lanes)
    r[j] = __builtin_shufflevector(ab_even, cd_even, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    r[8 + j] = __builtin_shufflevector(ab_even, cd_even, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    r[4 + j] = __builtin_shufflevector(ab_odd, cd_odd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    r[12 + j] = __builtin_shufflevector(ab_odd, cd_odd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  }
#elif defined(__AVX__)
  CANOPY_UNROLL
  for (int j = 0; j < 4; ++j) {
    const Vec a = r[j], b = r[4 + j];
    r[j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    r[4 + j] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  }
#endif
#undef CANOPY_LANES
}

}  // namespace canopy::cpu::CANOPY_ISA
