// Verification: every node's output (E7), and on request the stash U, l, from one call per layer.
#pragma once

#include <cstddef>
#include <string_view>

#include "canopy/problem.hpp"

namespace canopy {

// Workspace bytes of the named implementation; an empty name asks the dispatcher.
Result<std::size_t> verify_workspace(const VerifyParams& params, std::string_view implementation = {});
// Runs it. `workspace` is 64-byte aligned memory on the problem's device.
Error verify(const VerifyParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
             void* stream = nullptr);
// The same for a trial on the CPU: the workspace is allocated for this one call.
Error verify(const VerifyParams& params, std::string_view implementation = {});

}  // namespace canopy
