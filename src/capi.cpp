// The C interface of verify, commit, the registry and the dispatcher: thin over the C++ calls.
#include "capi.hpp"

#include <string_view>
#include <vector>

#include "canopy/backend.hpp"
#include "canopy/commit.hpp"
#include "canopy/conv.hpp"
#include "canopy/verify.hpp"
#include "message.hpp"

using namespace canopy;

namespace {

std::string_view name_or_none(const char* name) { return name ? std::string_view(name) : std::string_view{}; }

canopy_status give(const Result<std::size_t>& result, std::size_t* bytes, canopy_error* error) {
  if (!result) return report(result.error(), error);
  *bytes = *result;
  return report({}, error);
}

template <class Params>
int32_t count(std::span<const Implementation<Params>> all) {
  return static_cast<int32_t>(all.size());
}

// missing() makes its text anew each time; the interface promises strings that live as long as the library.
template <class Params>
std::vector<std::string> missing_texts(std::span<const Implementation<Params>> all) {
  std::vector<std::string> texts;
  for (const auto& implementation : all) texts.push_back(implementation.missing());
  return texts;
}

template <class Params>
canopy_status describe(std::span<const Implementation<Params>> all, const std::vector<std::string>& missing,
                       int32_t index, canopy_implementation_info* info) {
  if (index < 0 || static_cast<std::size_t>(index) >= all.size()) return CANOPY_INVALID;
  const auto& implementation = all[static_cast<std::size_t>(index)];
  const std::string& why = missing[static_cast<std::size_t>(index)];
  *info = {implementation.name, implementation.description, implementation.device, why.empty(), why.c_str()};
  return CANOPY_OK;
}

}  // namespace

extern "C" {

canopy_status canopy_verify_workspace(const canopy_verify_params* params, const char* implementation, size_t* bytes,
                                      canopy_error* error) {
  if (!params) return null_argument("params", error);
  if (!bytes) return null_argument("bytes", error);
  return give(verify_workspace(*params, name_or_none(implementation)), bytes, error);
}

canopy_status canopy_verify(const canopy_verify_params* params, const char* implementation, void* workspace,
                            size_t bytes, void* stream, canopy_error* error) {
  if (!params) return null_argument("params", error);
  return report(verify(*params, name_or_none(implementation), workspace, bytes, stream), error);
}

canopy_status canopy_commit_workspace(const canopy_commit_params* params, const char* implementation, size_t* bytes,
                                      canopy_error* error) {
  if (!params) return null_argument("params", error);
  if (!bytes) return null_argument("bytes", error);
  return give(commit_workspace(*params, name_or_none(implementation)), bytes, error);
}

canopy_status canopy_commit(const canopy_commit_params* params, const char* implementation, void* workspace,
                            size_t bytes, void* stream, canopy_error* error) {
  if (!params) return null_argument("params", error);
  return report(commit(*params, name_or_none(implementation), workspace, bytes, stream), error);
}

int32_t canopy_implementation_count(int32_t kind) {
  switch (kind) {
    case 0:
      return count(verify_implementations());
    case 1:
      return count(commit_implementations());
    case 2:
      return count(conv_verify_implementations());
    case 3:
      return count(conv_commit_implementations());
    default:
      return 0;
  }
}

canopy_status canopy_implementation_at(int32_t kind, int32_t index, canopy_implementation_info* info) {
  static const auto verify_missing = missing_texts(verify_implementations());
  static const auto commit_missing = missing_texts(commit_implementations());
  static const auto conv_verify_missing = missing_texts(conv_verify_implementations());
  static const auto conv_commit_missing = missing_texts(conv_commit_implementations());
  if (!info) return CANOPY_INVALID;
  switch (kind) {
    case 0:
      return describe(verify_implementations(), verify_missing, index, info);
    case 1:
      return describe(commit_implementations(), commit_missing, index, info);
    case 2:
      return describe(conv_verify_implementations(), conv_verify_missing, index, info);
    case 3:
      return describe(conv_commit_implementations(), conv_commit_missing, index, info);
    default:
      return CANOPY_INVALID;
  }
}

canopy_status canopy_explain(const canopy_verify_params* params, char* text, size_t capacity, size_t* needed,
                             canopy_error* error) {
  if (!params) return null_argument("params", error);
  if (!text && capacity > 0) return null_argument("text", error);
  const Result<std::string> result = explain(*params);
  if (!result) return report(result.error(), error);
  copy_text(*result, text, capacity, needed);
  return report({}, error);
}

const char* canopy_version(void) { return CANOPY_VERSION; }
}
