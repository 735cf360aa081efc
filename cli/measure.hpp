// What times are measured against: counted flops and bytes, the machine's peak; and their order statistics.
#pragma once

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

}  // namespace canopy::cli
