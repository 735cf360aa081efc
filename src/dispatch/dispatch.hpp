// Picks for params that check() already passed; the public choose() checks first. `words`: whether to say why, which
// allocates.
#pragma once

#include "canopy/backend.hpp"
#include "canopy/conv.hpp"
#include "dispatch/table.hpp"

namespace canopy::dispatch {

// What a call is looked up by. In default precision on a GPU, a stored u asks for the rows of calls with a stash, and
// where none holds for those of what it is computed in. f32 inputs are computed in fp32 then, and ask for its rows
// alone: calls with a stash are measured on 16-bit inputs.
Asked asked(const VerifyParams& params);

Result<Choice<VerifyParams>> pick(const VerifyParams& params, bool words);
Result<Choice<CommitParams>> pick(const CommitParams& params, bool words);
Result<Choice<ConvVerifyParams>> pick(const ConvVerifyParams& params, bool words);  // src/conv.cpp
Result<Choice<ConvCommitParams>> pick(const ConvCommitParams& params, bool words);

// "" if `implementation` can run these params here, else why not: this machine's reason or its own.
template <class Params>
std::string objection(const Implementation<Params>& implementation, const Params& params) {
  if (std::string why = implementation.missing(); !why.empty()) return "not on this machine: " + why;
  return implementation.refuses(params);
}
// "" if the dispatcher may pick it, else why not.
template <class Params>
std::string objection_unnamed(const Implementation<Params>& implementation, const Params& params) {
  std::string why = objection(implementation, params);
  if (why.empty() && implementation.unless_named) why = implementation.unless_named(params);
  return why;
}

}  // namespace canopy::dispatch
