// Where each part of the library hands its implementations to the registry (src/backend.cpp).
#pragma once

#include <span>

#include "canopy/backend.hpp"

namespace canopy {

std::span<const VerifyImplementation> cpu_verify_implementations();     // src/cpu/backend.cpp
std::span<const CommitImplementation> cpu_commit_implementations();
std::span<const VerifyImplementation> reference_verify_implementations();  // src/reference/backend.cpp
std::span<const CommitImplementation> reference_commit_implementations();

}  // namespace canopy
