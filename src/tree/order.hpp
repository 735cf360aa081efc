// Depth-first pre-order of a parent array, without a stack and without allocation.
#pragma once

#include <cstdint>

#include "canopy/tree.hpp"

namespace canopy {

// subtree[i]: nodes of i's subtree, i included. rank[i]: i's place in pre-order, children in ascending node number.
// Parents precede their children, so one backward pass sums the sizes and one forward pass hands each child the range
// that follows its elder siblings'. parents[0] is not read; nodes <= kMaxNodes.
template <class Int>
void depth_first(const std::int32_t* parents, int nodes, Int* subtree, Int* rank) {
  std::int16_t next_free[kMaxNodes];  // first rank inside i's range that no child has taken
  for (int i = 0; i < nodes; ++i) subtree[i] = 1;
  for (int i = nodes - 1; i > 0; --i) subtree[parents[i]] = static_cast<Int>(subtree[parents[i]] + subtree[i]);
  rank[0] = 0;
  next_free[0] = 1;
  for (int i = 1; i < nodes; ++i) {
    std::int16_t& free = next_free[parents[i]];
    rank[i] = static_cast<Int>(free);
    next_free[i] = static_cast<std::int16_t>(free + 1);
    free = static_cast<std::int16_t>(free + subtree[i]);
  }
}

}  // namespace canopy
