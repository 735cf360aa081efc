// From the C++ core to the C interface: statuses and messages.
#pragma once

#include <algorithm>
#include <cstring>

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

inline canopy_status null_argument(const char* name, canopy_error* out) {
  return report(Error::invalid(std::string(name) + " is NULL: expected a pointer"), out);
}

}  // namespace canopy
