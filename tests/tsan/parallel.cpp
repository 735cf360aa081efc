// Every implementation that runs here, verify and commit, with four threads over a ragged batch: ThreadSanitizer must
// stay silent. What it computes is checked elsewhere; here it only has to succeed.
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "host/host_problem.hpp"

namespace {

using namespace canopy;

int runs = 0;

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

void verify_and_commit(host::HostProblem& problem) {
  auto params = problem.verify();
  if (!params) die(params.error().message);
  host::VerifyRun stash;
  for (const VerifyImplementation& implementation : verify_implementations()) {
    if (!std::string(implementation.missing()).empty() || implementation.device != CANOPY_CPU) continue;
    auto run = host::run_verify(problem, implementation, CANOPY_F32, true);
    if (!run) die(std::string(implementation.name) + ": " + run.error().message);
    stash = std::move(*run);
    ++runs;
  }
  CommitParams commit = commit_params();
  commit.problem = params->problem;
  const std::vector<std::int32_t> leaf(commit.problem.batch, 1);
  commit.leaf = leaf.data();
  commit.stash_u = stash.u.view();
  commit.stash_l = stash.l.view();
  for (const CommitImplementation& implementation : commit_implementations())
    for (const int method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      commit.method = method;
      if (!std::string(implementation.missing()).empty() || !implementation.refuses(commit).empty()) continue;
      const auto bytes = commit_workspace(commit, implementation.name);
      if (!bytes) die(bytes.error().message);
      std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(64, (*bytes + 127) / 64 * 64), std::free);
      const Error error = canopy::commit(commit, implementation.name, workspace.get(), *bytes);
      if (!error.ok()) die(std::string(implementation.name) + ": " + error.message);
      ++runs;
    }
}

}  // namespace

int main() {
  omp_set_num_threads(4);
  for (const bool slots : {false, true}) {
    host::ProblemSpec spec;
    spec.batch = 5;
    spec.heads_k = 2;
    spec.heads_v = 4;
    spec.dim_k = spec.dim_v = 32;
    spec.family.nodes = 40;
    spec.ragged = true;
    spec.slots = slots;
    auto problem = host::make_problem(spec);
    if (!problem) die(problem.error().message);
    verify_and_commit(*problem);
  }
  if (runs == 0) die("no implementation ran");
  std::printf("%d runs\n", runs);
}
