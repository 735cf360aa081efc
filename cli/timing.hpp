// Times of implementations on memory that is already there: the first run touches it, later ones are only the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parity.hpp"

namespace canopy::cli {

// OpenMP threads for a while; 0 leaves them as they are.
class ThreadCount {
 public:
  explicit ThreadCount(int threads);
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;

 private:
  int before_;
};

struct FreeMemory {
  void operator()(void* memory) const;
};
using Workspace = std::unique_ptr<void, FreeMemory>;
Workspace make_workspace(std::size_t bytes);  // 64-byte aligned

// Runs one implementation again and again into buffers of its own. Problem and stash must outlive it.
class TimedRun {
 public:
  static Result<TimedRun> verify(host::HostProblem& problem, const VerifyImplementation& implementation,
                                 canopy_dtype output, bool stash);
  // Commits into a copy of the pool, each run from the state that the last one left.
  static Result<TimedRun> commit(host::HostProblem& problem, const CommitParams& params,
                                 const CommitImplementation& implementation);
  // Seconds of one run.
  Result<double> run();

 private:
  host::HostTensor o_, u_, l_, state_;
  VerifyParams verify_params_{};
  CommitParams commit_params_{};
  const VerifyImplementation* verify_ = nullptr;
  const CommitImplementation* commit_ = nullptr;
  Workspace workspace_;
};

// Median seconds of each, interleaved, so that a slow moment of the machine hits all alike: at least `rounds` rounds,
// more of short ones (up to 50 rounds or 0.3 s).
Result<std::vector<double>> interleaved_medians(std::vector<TimedRun>& runs, int rounds);

}  // namespace canopy::cli
