// The C interface of the tree convolution.
#include <string_view>

#include "canopy/conv.hpp"
#include "capi.hpp"

using namespace canopy;

namespace {

std::string_view name_or_none(const char* name) { return name ? std::string_view(name) : std::string_view{}; }

template <class Params>
canopy_status workspace(const Params* params, const char* name, std::size_t* bytes, canopy_error* error,
                        Result<std::size_t> (*query)(const Params&, std::string_view)) {
  if (!params) return null_argument("params", error);
  if (!bytes) return null_argument("bytes", error);
  const Result<std::size_t> result = query(*params, name_or_none(name));
  if (!result) return report(result.error(), error);
  *bytes = *result;
  return report({}, error);
}

}  // namespace

extern "C" {

canopy_status canopy_conv_verify_workspace(const canopy_conv_verify_params* params, const char* implementation,
                                           size_t* bytes, canopy_error* error) {
  return workspace(params, implementation, bytes, error, conv_verify_workspace);
}

canopy_status canopy_conv_verify(const canopy_conv_verify_params* params, const char* implementation, void* memory,
                                 size_t bytes, void* stream, canopy_error* error) {
  if (!params) return null_argument("params", error);
  return report(conv_verify(*params, name_or_none(implementation), memory, bytes, stream), error);
}

canopy_status canopy_conv_commit_workspace(const canopy_conv_commit_params* params, const char* implementation,
                                           size_t* bytes, canopy_error* error) {
  return workspace(params, implementation, bytes, error, conv_commit_workspace);
}

canopy_status canopy_conv_commit(const canopy_conv_commit_params* params, const char* implementation, void* memory,
                                 size_t bytes, void* stream, canopy_error* error) {
  if (!params) return null_argument("params", error);
  return report(conv_commit(*params, name_or_none(implementation), memory, bytes, stream), error);
}
}
