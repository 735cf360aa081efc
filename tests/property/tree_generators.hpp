// Random trees of 1..256 nodes for the property tests: parents drawn by RapidCheck, so that a failure shrinks.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "canopy/tree.hpp"

namespace canopy::test {

// `reach` 1 gives a chain, `nodes` a uniform random tree: both deep and bushy shapes are drawn.
inline Tree any_tree(int most = kMaxNodes) {
  const int nodes = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, most + 1)).as("nodes");
  const int reach = *rc::gen::element(1, 2, 4, 16, kMaxNodes).as("parents among the last ..");
  const auto draws = *rc::gen::container<std::vector<std::int32_t>>(nodes, rc::gen::inRange(0, 1 << 20)).as("draws");
  std::vector<std::int32_t> parents(nodes, -1);
  for (int i = 1; i < nodes; ++i) parents[i] = i - 1 - draws[i] % std::min(i, reach);
  return *Tree::from_parents(parents);
}

}  // namespace canopy::test
