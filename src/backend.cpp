// The registry: what every part of the library offers, in one list.
#include "canopy/backend.hpp"

#include <vector>

#include "registry.hpp"

namespace canopy {
namespace {

template <class T>
std::vector<T> joined(std::initializer_list<std::span<const T>> parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

template <class T>
const T* find(std::span<const T> all, std::string_view name) {
  for (const T& implementation : all) {
    if (name == implementation.name) return &implementation;
  }
  return nullptr;
}

}  // namespace

std::span<const VerifyImplementation> verify_implementations() {
  static const auto all = joined<VerifyImplementation>({cpu_verify_implementations(), cuda_verify_implementations(),
                                                        reference_verify_implementations()});
  return all;
}

std::span<const CommitImplementation> commit_implementations() {
  static const auto all = joined<CommitImplementation>({cpu_commit_implementations(), cuda_commit_implementations(),
                                                        reference_commit_implementations()});
  return all;
}

const VerifyImplementation* find_verify(std::string_view name) { return find(verify_implementations(), name); }
const CommitImplementation* find_commit(std::string_view name) { return find(commit_implementations(), name); }

}  // namespace canopy
