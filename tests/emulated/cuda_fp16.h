// Stands in for CUDA's header of this name: what src uses of it, by the library's own conversions.
#pragma once

#include <cmath>

#include "cuda_runtime.h"
#include "element.hpp"

struct __half {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
inline float __half2float(__half x) { return canopy::from_f16(x.bits); }
inline __half __float2half_rn(float x) { return {canopy::to_f16(x)}; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
inline float __low2float(__half2 x) { return __half2float(x.x); }
inline float __high2float(__half2 x) { return __half2float(x.y); }
// An fp32 fma of halves is exact but for its own rounding, which is not to be followed by another: to odd, then to fp16.
inline __half emulated_fma(__half a, __half b, __half c) {
  const double product = static_cast<double>(__half2float(a)) * __half2float(b), addend = __half2float(c);
  const double sum = product + addend;
  float rounded = static_cast<float>(sum);
  if (std::isfinite(sum) && rounded != sum) {
    if (std::fabs(rounded) > std::fabs(sum)) rounded = std::nextafterf(rounded, 0);
    rounded = std::bit_cast<float>(std::bit_cast<std::uint32_t>(rounded) | 1u);
  }
  return __float2half_rn(rounded);
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {emulated_fma(a.x, b.x, c.x), emulated_fma(a.y, b.y, c.y)};
}
inline __half2 __habs2(__half2 x) {
  return {{static_cast<std::uint16_t>(x.x.bits & 0x7fff)}, {static_cast<std::uint16_t>(x.y.bits & 0x7fff)}};
}
// Of a number and a NaN, the number.
inline __half emulated_max(__half x, __half y) {
  const float a = __half2float(x), b = __half2float(y);
  return std::isnan(a) || b > a ? y : x;
}
inline __half2 __hmax2(__half2 x, __half2 y) { return {emulated_max(x.x, y.x), emulated_max(x.y, y.y)}; }
