// Commit: the state of the accepted node (E8) into the pool, for one layer or all of them in one call.
#pragma once

#include <cstddef>
#include <string_view>

#include "canopy/problem.hpp"

namespace canopy {

Result<std::size_t> commit_workspace(const CommitParams& params, std::string_view implementation = {});
Error commit(const CommitParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
             void* stream = nullptr);
// The same for a trial on the CPU: the workspace is allocated for this one call.
Error commit(const CommitParams& params, std::string_view implementation = {});

}  // namespace canopy
