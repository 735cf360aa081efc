#include "canopy/commit.hpp"

#include "call.hpp"

namespace canopy {

Result<std::size_t> commit_workspace(const CommitParams& params, std::string_view implementation) {
  return workspace_bytes(params, implementation, commit_implementations());
}

Error commit(const CommitParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
             void* stream) {
  return call(params, implementation, commit_implementations(), workspace, bytes, stream);
}

Error commit(const CommitParams& params, std::string_view implementation) {
  return call_once(params, implementation, commit_implementations());
}

}  // namespace canopy
