// The short causal convolution in front of a GDN layer, on the tree (E9): every node's output, and after acceptance the
// committed window of its slot. The structs are the C ABI's own (canopy.h).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "canopy/backend.hpp"

namespace canopy {

using ConvProblem = canopy_conv_problem;
using ConvVerifyParams = canopy_conv_verify_params;
using ConvCommitParams = canopy_conv_commit_params;

inline ConvVerifyParams conv_verify_params() {
  ConvVerifyParams params;
  canopy_conv_verify_params_init(&params);
  return params;
}
inline ConvCommitParams conv_commit_params() {
  ConvCommitParams params;
  canopy_conv_commit_params_init(&params);
  return params;
}

// As check() of problem.hpp: everything that can be said before anything runs.
Error check(const ConvVerifyParams& params);
Error check(const ConvCommitParams& params);

// An empty name takes the first implementation of the device that does not refuse. The overloads without a workspace
// are for a trial on the CPU: what is needed is allocated for this one call.
Result<std::size_t> conv_verify_workspace(const ConvVerifyParams& params, std::string_view implementation = {});
Error conv_verify(const ConvVerifyParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
                  void* stream = nullptr);
Error conv_verify(const ConvVerifyParams& params, std::string_view implementation = {});

Result<std::size_t> conv_commit_workspace(const ConvCommitParams& params, std::string_view implementation = {});
Error conv_commit(const ConvCommitParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
                  void* stream = nullptr);
Error conv_commit(const ConvCommitParams& params, std::string_view implementation = {});

// The registry. Before SiLU all implementations agree bit for bit; the tolerances are those of SiLU.
using ConvVerifyImplementation = Implementation<ConvVerifyParams>;
using ConvCommitImplementation = Implementation<ConvCommitParams>;
std::span<const ConvVerifyImplementation> conv_verify_implementations();
std::span<const ConvCommitImplementation> conv_commit_implementations();

}  // namespace canopy
