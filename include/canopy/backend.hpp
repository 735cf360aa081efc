// The registry of implementations and the dispatcher that picks one. Tests, benchmarks, the dispatcher and
// `canopy explain` walk the registry: an implementation is tested on every tree the moment it is registered.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "canopy/problem.hpp"

namespace canopy {

template <class Params>
struct Implementation {
  const char* name;         // "cpu_closed_form": device, method
  const char* description;  // one line for a person
  canopy_device device;
  // How far from the fp64 oracle its results may be, relative Frobenius and max abs (docs/math.md, tolerances).
  double relative_tolerance, absolute_tolerance;
  std::string (*missing)();                       // "" if this machine can run it, else why not
  std::string (*refuses)(const Params&);          // "" if it takes these (already checked) params, else the reason
  std::size_t (*workspace)(const Params&);        // bytes, 64-byte aligned
  Error (*run)(const Params&, void* workspace, void* stream);
  // "" if the dispatcher may pick it for these params, else why only a caller who names it gets it. nullptr: it may.
  std::string (*unless_named)(const Params&) = nullptr;
};
using VerifyImplementation = Implementation<VerifyParams>;
using CommitImplementation = Implementation<CommitParams>;

std::span<const VerifyImplementation> verify_implementations();
std::span<const CommitImplementation> commit_implementations();
const VerifyImplementation* find_verify(std::string_view name);
const CommitImplementation* find_commit(std::string_view name);

// The dispatcher's answer: the row of the table that decided and the implementation it led to.
template <class Params>
struct Choice {
  const Implementation<Params>* implementation = nullptr;
  std::string because;
};
Result<Choice<VerifyParams>> choose(const VerifyParams& params);
Result<Choice<CommitParams>> choose(const CommitParams& params);
// A few lines for a person: the choice, and each implementation that refuses with its reason.
Result<std::string> explain(const VerifyParams& params);

}  // namespace canopy
