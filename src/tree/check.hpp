// What makes a parent array a tree, and the sentence for each way it can fail.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "canopy/tree.hpp"

namespace canopy {

inline Error node_count_error(std::size_t nodes, const std::string& label) {
  if (nodes == 0) return Error::invalid(label + " is empty: expected 1 to " + std::to_string(kMaxNodes) + " nodes");
  if (nodes > kMaxNodes) {
    return Error::invalid(label + " has " + std::to_string(nodes) + " nodes: expected 1 to " +
                          std::to_string(kMaxNodes) + "; split the tree or draft fewer nodes");
  }
  return {};
}

// `label` is what the caller knows the array as: "parents", "trees[1].parents". Int is the width it was read in, so
// that a number past 32 bits is reported as it stands.
template <class Int>
Error parents_error(std::span<const Int> parents, const std::string& label) {
  if (Error error = node_count_error(parents.size(), label); !error.ok()) return error;
  const auto place = [&](std::size_t i) {
    return label + "[" + std::to_string(i) + "] = " + std::to_string(parents[i]) + ": ";
  };
  if (parents[0] != -1) return Error::invalid(place(0) + "the root's parent is -1");
  for (std::size_t i = 1; i < parents.size(); ++i) {
    if (parents[i] == -1) return Error::invalid(place(i) + "a second root (node 0 is the root)");
    if (parents[i] < 0 || parents[i] >= static_cast<Int>(i)) {
      return Error::invalid(place(i) + "a parent must precede its child (expected 0 <= parent < " + std::to_string(i) +
                            ")");
    }
  }
  return {};
}

}  // namespace canopy
