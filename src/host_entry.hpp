// What the registry entries of host memory have in common (reference, CPU): no device to miss, no other one taken.
#pragma once

#include <cstddef>
#include <string>

#include "canopy/canopy.h"

namespace canopy {

inline std::string nothing_missing() { return {}; }

// "" for tensors in host memory. Params is a call of verify, commit or the convolution.
template <class Params>
std::string refuses_device(const Params& params) {
  return params.problem.device == CANOPY_CPU ? "" : "device is cuda: expected cpu; copy the tensors to the host";
}

template <class Params>
std::size_t no_workspace(const Params&) {
  return 0;
}

}  // namespace canopy
