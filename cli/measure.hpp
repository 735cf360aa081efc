// Measuring implementations on the CPU: interleaved runs, order statistics, counted flops, extra memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "parity.hpp"

namespace canopy::cli {

// Median and the 10th and 90th percentile, seconds.
struct Quantiles {
  double median = 0, p10 = 0, p90 = 0;
};
Quantiles quantiles(std::vector<double> values);

// Multiply-adds count two. The closed form: keys and queries against S0, and G, C and u for ancestors only. The
// recurrence: decay, recall, update and output of a K x V state per node.
double closed_form_flops(const Problem& view, const Oracle& oracle);
double recurrence_flops(const Problem& view, const Oracle& oracle);
// Inputs, state and outputs, each once.
double least_bytes(host::HostProblem& problem, const Oracle& oracle);

// fp32 multiply-add rate of `threads` cores in the instruction set in use, flop/s: the best of several bursts.
double measured_peak(int threads);

// Page-aligned memory that the system has not touched yet, so that what a run touches shows as resident.
class FreshMemory {
 public:
  explicit FreshMemory(std::size_t bytes);
  ~FreshMemory();
  FreshMemory(const FreshMemory&) = delete;
  FreshMemory& operator=(const FreshMemory&) = delete;
  void* data() const { return data_; }
  std::size_t resident() const;  // bytes in pages that were touched

 private:
  void* data_;
  std::size_t bytes_;
};

// One implementation on one problem, ready to be timed: output buffer and workspace allocated.
class Contender {
 public:
  static Result<std::unique_ptr<Contender>> make(host::HostProblem& problem, const VerifyImplementation& implementation);
  const VerifyImplementation& implementation() const { return *implementation_; }
  double run();  // seconds of one call
  Check parity(const Oracle& oracle) const;
  std::size_t workspace_stated() const { return stated_; }
  std::size_t workspace_touched() const { return memory_.resident(); }

 private:
  Contender(const VerifyImplementation& implementation, const VerifyParams& params, host::HostTensor o);
  const VerifyImplementation* implementation_;
  host::HostTensor o_;
  VerifyParams params_;  // o is o_
  std::size_t stated_;
  FreshMemory memory_;
};

// Runs every contender once for warm-up, then `repeat` times in turn. `cold`: the caches are filled with something else
// before each run. `tick` is called after each round.
std::vector<std::vector<double>> time_in_turn(std::vector<std::unique_ptr<Contender>>& contenders, int repeat, bool cold,
                                              const std::function<void(int)>& tick);

}  // namespace canopy::cli
