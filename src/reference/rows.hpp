// Rows of a whole problem for the reference implementations: flags, trees, states in and out of the pool.
#pragma once

#include <vector>

#include "canopy/reference.hpp"

namespace canopy::reference {

// The CANOPY_ROW_* flags and the tree of each sequence. A tree of size 0 marks a row with nothing to compute: padding,
// flagged, or no live nodes.
struct Rows {
  std::vector<std::int32_t> flags;
  std::vector<Tree> trees;
};
Rows load_rows(const VerifyParams& params);
Rows load_rows(const CommitParams& params);

// S0 [K,V] of one slot and value head, and a state back into the pool, rounded to its dtype. `layer` steps stride[0].
std::vector<double> load_state(const Problem& problem, int layer, std::int64_t slot, int hv);
void store_state(const Problem& problem, int layer, std::int64_t slot, int hv, const std::vector<double>& state);

// A problem of one layer: every view stepped to layer `layer`.
Tensor at_layer(const Tensor& tensor, int layer);
Problem at_layer(const Problem& problem, int layer);

// Row [b,t,hv,:] of an output, rounded to its dtype. Absent outputs are passed over.
template <class Real>
void store_row(const Tensor& out, int b, int t, int hv, const Real* values, int width);

}  // namespace canopy::reference
