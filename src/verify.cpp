#include "canopy/verify.hpp"

#include "call.hpp"

namespace canopy {

Result<std::size_t> verify_workspace(const VerifyParams& params, std::string_view implementation) {
  return workspace_bytes(params, implementation, verify_implementations());
}

Error verify(const VerifyParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
             void* stream) {
  return call(params, implementation, verify_implementations(), workspace, bytes, stream);
}

Error verify(const VerifyParams& params, std::string_view implementation) {
  return call_once(params, implementation, verify_implementations());
}

}  // namespace canopy
