// Pieces of error messages: text("q.dtype = ", 3, ": expected ...") without <format>.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

#include "canopy/canopy.h"

namespace canopy {

inline void append(std::string& out, std::string_view piece) { out += piece; }
template <std::integral Int>
void append(std::string& out, Int number) {
  out += std::to_string(number);
}
inline void append(std::string& out, double number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", number);
  out += digits;
}

template <class... Pieces>
std::string text(const Pieces&... pieces) {
  std::string out;
  (append(out, pieces), ...);
  return out;
}

// "bf16", or "dtype 9" for a value that is none of canopy_dtype.
inline std::string dtype_name(int dtype) {
  constexpr const char* names[] = {"f32", "bf16", "f16", "i32", "i64"};
  return dtype >= 0 && dtype < 5 ? names[dtype] : "dtype " + std::to_string(dtype);
}

}  // namespace canopy
