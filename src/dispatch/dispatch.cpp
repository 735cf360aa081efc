// The dispatcher: the first row of the device's table whose conditions hold and whose implementation takes the params.
#include "dispatch/dispatch.hpp"

#include <algorithm>

#include "check.hpp"
#include "dispatch/file.hpp"
#include "message.hpp"
#include "precision.hpp"

namespace canopy {
namespace dispatch {
namespace {

const char* device_name(int device) { return device == CANOPY_CPU ? "cpu" : "cuda"; }

// Without `words` a choice allocates nothing unless an earlier row refuses; an error is in words all the same.
// `instead`: which rows decide where none for a stash does, said where that happens.
template <class Params>
Result<Choice<Params>> walk(const Table& table, std::span<const Implementation<Params>> all, const Params& params,
                            const Asked& asked, bool words, const std::string& instead = {}) {
  std::string refused;
  int number = 0;
  for (const Row& row : table.rows) {
    ++number;
    if (!holds(row, asked)) continue;
    const Implementation<Params>* implementation = nullptr;
    for (const auto& candidate : all) {
      if (std::string_view(row.implementation) == candidate.name) implementation = &candidate;
    }
    const std::string why = implementation ? objection_unnamed(*implementation, params) : "not part of this build";
    if (!why.empty()) {
      refused += text("; ", row.implementation, ": ", why);
      continue;
    }
    if (!words) return Choice<Params>{implementation, {}};
    std::string because =
        text("row ", number, " of the ", table.name, ": ", condition(row), " -> ", row.implementation);
    if (table.measured_on)
      because += text("; measured on ", table.measured_on, ", since ", machine(params.problem.device).name,
                      " has no table: canopy tune makes one");
    return Choice<Params>{implementation, because + refused + (row.stash ? std::string{} : instead)};
  }
  const char* device = device_name(params.problem.device);
  if (refused.empty()) {
    return Error::unsupported(text("device = ", params.problem.device, " (", device,
                                   "): expected a device this build has "
                                   "implementations for; copy the tensors to the host and use 0 (cpu)"));
  }
  return Error::unsupported(
      text("no implementation on ", device, " takes this problem", refused, "; change what the reasons name",
           params.problem.device == CANOPY_CPU ? "" : ", or copy the tensors to the host and use 0 (cpu)"));
}

}  // namespace

Asked asked(const VerifyParams& params) {
  const Problem& p = params.problem;
  const int depth = std::min(params.max_depth, p.nodes - 1);  // a loose bound says no more than the size
  const bool by_stash = p.device == CANOPY_CUDA && params.precision == CANOPY_PRECISION_DEFAULT && params.stash_u.data;
  const int precision = by_stash ? precision_on_gpu(params) : params.precision;
  return {.nodes = p.nodes,
          .heads = std::int64_t{p.batch} * p.heads_v,
          .depth = depth,
          .precision = precision,
          .stash = by_stash && precision == CANOPY_PRECISION_PRECISE};
}

Result<Choice<VerifyParams>> pick(const VerifyParams& params, bool words) {
  const auto table = verify_table(params.problem.device);
  if (!table) return table.error();
  const Asked wanted = asked(params);
  std::string instead;
  if (words && wanted.precision != params.precision)
    instead = text("; with stash_u, default asks the rows of ", kPrecisions[wanted.precision]);
  return walk(*table, verify_implementations(), params, wanted, words, instead);
}

Result<Choice<CommitParams>> pick(const CommitParams& params, bool words) {
  const Problem& p = params.problem;
  return walk(commit_table(p.device), commit_implementations(), params,
              {p.nodes, std::int64_t{p.batch} * p.heads_v, 0, CANOPY_PRECISION_DEFAULT, params.method}, words);
}

}  // namespace dispatch

Result<Choice<VerifyParams>> choose(const VerifyParams& params) {
  if (Error error = check(params); !error.ok()) return error;
  return dispatch::pick(params, true);
}

Result<Choice<CommitParams>> choose(const CommitParams& params) {
  if (Error error = check(params); !error.ok()) return error;
  return dispatch::pick(params, true);
}

Result<std::string> explain(const VerifyParams& request) {
  VerifyParams params = request;
  if (!params.o.data) params.o = stand_in_output(params.problem);
  if (Error error = check(params); !error.ok()) return error;
  const auto choice = dispatch::pick(params, true);
  std::string out = choice ? text("runs ", choice->implementation->name, "\n  because ", choice->because, "\n")
                           : text("runs nothing\n  because ", choice.error().message, "\n");
  for (const auto& implementation : verify_implementations()) {
    const std::string why = dispatch::objection(implementation, params),
                      unnamed = dispatch::objection_unnamed(implementation, params);
    out += text("  ", implementation.name,
                !why.empty()       ? ": refuses: "
                : !unnamed.empty() ? ": only if named: "
                                   : ": can run it, ",
                !unnamed.empty() ? unnamed : std::string(implementation.description), "\n");
  }
  return out;
}

}  // namespace canopy
