// The best-first family: the shape that a draft model's probabilities give a tree.
#pragma once

#include <cstdint>
#include <vector>

#include "canopy/tree.hpp"

namespace canopy {

// Parents in the order in which nodes were taken. `spec` is checked: the full top_k-ary tree holds spec.nodes.
std::vector<std::int32_t> best_first_parents(const FamilySpec& spec);

}  // namespace canopy
