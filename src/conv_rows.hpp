// What the implementations of the tree convolution share: the rows of a problem, and where a tap's input comes from.
#pragma once

#include "canopy/conv.hpp"

namespace canopy {

inline constexpr int kConvTaps = 4;  // the most

// Batch, trees and slots as the checks, row_flags() and the plan read them.
Problem rows_of(const ConvProblem& problem);
CommitParams rows_of(const ConvCommitParams& params);  // with leaves and destinations

// NaN into the outputs of a sequence whose tree is malformed, in host memory.
void write_nan(const ConvVerifyParams& params, int b, int nodes);

// The input `back` steps before a node's own: a node of its root path, or past the root ~i for entry i of the committed
// window of `window` = W-1 inputs, oldest first. parents[0] = -1.
int input_before(const std::int32_t* parents, int node, int back, int window);

}  // namespace canopy
