// Times of implementations on memory that is already there: the first run touches it, later ones are only the work.
#pragma once

#include <functional>
#include <functional>
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

// Page-aligned memory that the system gives page by page as it is touched, so that a run's real need can be told from what
// the workspace query states.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes = 0);
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;
  ~Workspace();
  void* get() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t touched() const;  // bytes of the pages in use

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

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
  const host::HostTensor& output() const { return o_; }
  const Workspace& workspace() const { return workspace_; }

 private:
  host::HostTensor o_, u_, l_, state_;
  VerifyParams verify_params_{};
  CommitParams commit_params_{};
  std::function<Result<double>()> on_device_;  // the run of a CUDA implementation
  const VerifyImplementation* verify_ = nullptr;
  const CommitImplementation* commit_ = nullptr;
  Workspace workspace_;
};

// Runs each in turn, `rounds` times: a slow moment of the machine hits all alike. `cold`: the caches are filled with
// something else before each run. `tick`, if any, is called after each round.
Result<std::vector<std::vector<double>>> times_in_turn(std::vector<TimedRun>& runs, int rounds, bool cold,
                                                       const std::function<void(int)>& tick);

// Median seconds of each, interleaved, so that a slow moment of the machine hits all alike: at least `rounds` rounds,
// more of short ones (up to 50 rounds or 0.3 s).
Result<std::vector<double>> interleaved_medians(std::vector<TimedRun>& runs, int rounds);

}  // namespace canopy::cli
