// From the C++ core to the C interface: statuses and messages.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "canopy/result.hpp"

namespace canopy {

inline canopy_status report(const Error& error, canopy_error* out) {
  if (out) {
    out->status = error.status;
    const std::size_t length = std::min(error.message.size(), sizeof out->message - 1);
    std::memcpy(out->message, error.message.data(), length);
    out->message[length] = '\0';
  }
  return error.status;
}

// A text into the caller's memory, cut to `capacity` with its NUL; `needed` gets the whole length with the NUL.
inline void copy_text(std::string_view from, char* to, std::size_t capacity, std::size_t* needed) {
  if (needed) *needed = from.size() + 1;
  if (capacity == 0) return;
  const std::size_t length = std::min(from.size(), capacity - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

inline canopy_status null_argument(const char* name, canopy_error* out) {
  return report(Error::invalid(std::string(name) + " is NULL: expected a pointer"), out);
}

}  // namespace canopy
