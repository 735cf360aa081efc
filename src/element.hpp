// Elements of the three floating types as fp32 and back, the same bits on every platform.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "canopy/canopy.h"

namespace canopy {

inline std::int64_t element_bytes(int dtype) {
  return dtype == CANOPY_BF16 || dtype == CANOPY_F16 ? 2 : dtype == CANOPY_I64 ? 8 : 4;
}

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

// Round to nearest even; a NaN stays a (quiet) NaN.
inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, exponent = (half >> 10) & 31u,
                      mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Round to nearest even, overflow to infinity, gradual underflow; a NaN stays a (quiet) NaN.
inline std::uint16_t to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 puts the half's last bit at the float's last bit
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);  // may carry into infinity: right
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float load_element(int dtype, const void* data, std::int64_t index) {
  if (dtype == CANOPY_F32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * index, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 2 * index, sizeof bits);
  return dtype == CANOPY_BF16 ? from_bf16(bits) : from_f16(bits);
}

inline void store_element(int dtype, void* data, std::int64_t index, float value) {
  if (dtype == CANOPY_F32) {
    std::memcpy(static_cast<char*>(data) + 4 * index, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == CANOPY_BF16 ? to_bf16(value) : to_f16(value);
  std::memcpy(static_cast<char*>(data) + 2 * index, &bits, sizeof bits);
}

}  // namespace canopy
