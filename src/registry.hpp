// Where each part of the library hands its implementations to the registry (src/backend.cpp).
#pragma once

#include <span>

#include "canopy/backend.hpp"
#include "canopy/conv.hpp"

namespace canopy {

std::span<const VerifyImplementation> cpu_verify_implementations();     // src/cpu/backend.cpp
std::span<const CommitImplementation> cpu_commit_implementations();
std::span<const VerifyImplementation> reference_verify_implementations();  // src/reference/backend.cpp
std::span<const CommitImplementation> reference_commit_implementations();

std::span<const ConvVerifyImplementation> cpu_conv_verify_implementations();  // src/cpu/conv.cpp
std::span<const ConvCommitImplementation> cpu_conv_commit_implementations();
std::span<const ConvVerifyImplementation> reference_conv_verify_implementations();  // src/reference/conv.cpp
std::span<const ConvCommitImplementation> reference_conv_commit_implementations();

#if CANOPY_WITH_CUDA  // src/cuda/backend.cu
std::span<const VerifyImplementation> cuda_verify_implementations();
std::span<const CommitImplementation> cuda_commit_implementations();
std::size_t cuda_plans_bytes(const Problem& problem);
Error cuda_make_plans(const Problem& problem, void* plans, void* stream);
std::span<const ConvVerifyImplementation> cuda_conv_verify_implementations();  // src/cuda/conv.cu
std::span<const ConvCommitImplementation> cuda_conv_commit_implementations();
#else
inline std::span<const VerifyImplementation> cuda_verify_implementations() { return {}; }
inline std::span<const CommitImplementation> cuda_commit_implementations() { return {}; }
inline std::span<const ConvVerifyImplementation> cuda_conv_verify_implementations() { return {}; }
inline std::span<const ConvCommitImplementation> cuda_conv_commit_implementations() { return {}; }
#endif

}  // namespace canopy
