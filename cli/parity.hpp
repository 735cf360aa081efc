// Running implementations against the fp64 oracle: what verify, commit, the self-test and the demo share.
#pragma once

#include <climits>
#include <span>
#include <string>
#include <vector>

#include "command.hpp"

namespace canopy::cli {

// E1 in fp64 over every live row of a problem.
struct Oracle {
  std::vector<Tree> trees;   // [B] a dead sequence has the one-node tree
  std::vector<int> live;     // [B] live nodes; 0: padding or empty
  std::vector<int> checked;  // [C] sequences that it ran
  std::vector<double> o, u;  // [C,T,HV,V] rows past `live` are 0
  std::int64_t row = 0;      // HV*V
  std::int64_t nodes = 0;    // T
  double seconds = 0;
};
// Trees and live rows alone, for callers that need no outputs. The params must have passed check().
Result<Oracle> read_trees(const Problem& view);
// All sequences, or of the live ones so many, evenly from the first to the last.
std::vector<int> sequences_to_check(const std::vector<int>& live, int most);
Result<Oracle> run_oracle(host::HostProblem& problem, int most_sequences = INT_MAX);

// Error of `values` [B,T,HV,V], or [C,T,HV,V] of the sequences that the oracle ran, over their live rows, and the
// verdict. Written in the type of `values`: the unit roundoff of that type is added to both tolerances, since rounding
// the exact answer costs as much.
struct Check {
  host::Deviation deviation;
  double relative_tolerance = 0, absolute_tolerance = 0;  // the latter scaled by max(1, max |reference|)
  bool passed = false;
};
Check verdict(const host::DeviationSum& sum, canopy_dtype dtype, double relative_tolerance, double absolute_tolerance);
Check check_rows(const Oracle& oracle, const std::vector<double>& reference, const host::HostTensor& values,
                 double relative_tolerance, double absolute_tolerance);
// What docs/math.md allows o, before it is rounded, at a canopy_precision; by default what the registry says.
struct Tolerance {
  double relative, absolute;
};
Tolerance tolerance_of(const VerifyImplementation& implementation, int precision);

// The implementations to run: "all" that accept the params (the others go to `refused` with the reason), one by its
// name (an error if it is unknown or refuses), or for "" the dispatcher's choice.
struct Refusal {
  std::string name, reason;
};
template <class Params>
Result<std::vector<const Implementation<Params>*>> select(const Params& params, const std::string& name,
                                                          std::vector<Refusal>& refused);

// A commit into a copy of the state pool.
struct CommitRun {
  host::HostTensor state;  // the whole pool afterwards
  std::size_t workspace_bytes = 0;
};
// `stash` is nullptr for the methods that need none; `leaf` and it must outlive the params.
CommitParams commit_params_of(const Problem& view, std::span<const std::int32_t> leaf, canopy_commit_method method,
                              host::VerifyRun* stash);
Result<CommitRun> run_commit(host::HostProblem& problem, const CommitParams& params,
                             const CommitImplementation& implementation);

// The state after the path to `leaf` of sequence b, E1 in fp64, as the pool holds it: [HV,V,K] or [HV,K,V].
std::vector<double> committed_state(const Problem& view, const Tree& tree, int b, int leaf);
// The committed pool against E1 along each path in fp64; `untouched`: every slot that was not to change has its old
// bits.
struct CommitCheck {
  Check check;
  bool untouched = true;
  bool passed() const { return check.passed && untouched; }
};
CommitCheck check_commit(host::HostProblem& problem, const Oracle& oracle, std::span<const std::int32_t> leaf,
                         const host::HostTensor& state, double relative_tolerance, double absolute_tolerance);

double unit_roundoff(canopy_dtype dtype);
const char* name_of(canopy_dtype dtype);
const char* name_of(canopy_commit_method method);
std::string bytes_text(double bytes);  // "1.5 MiB"
// Shapes, types and trees, for --json and for a person.
nlohmann::ordered_json describe(const host::HostProblem& problem, const Problem& view, const Oracle& oracle);
std::string describe_line(const host::HostProblem& problem, const Problem& view, const Oracle& oracle);

}  // namespace canopy::cli
