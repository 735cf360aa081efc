// Shared by the tests of the reference: trees of every shape, without the families of src/tree, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "canopy/plan.hpp"
#include "reference/sample.hpp"
#include "reference/system.hpp"

namespace canopy::test {

inline Tree tree_of(const std::vector<std::int32_t>& parents) {
  Result<Tree> tree = Tree::from_parents(parents);
  if (!tree) ADD_FAILURE() << tree.error().message;
  return *tree;
}

inline Tree chain_of(int nodes) {
  std::vector<std::int32_t> parents(nodes);
  for (int i = 0; i < nodes; ++i) parents[i] = i - 1;
  return tree_of(parents);
}

// Every node continues its predecessor with probability `straight`, else hangs anywhere: from bushy (0) to a chain (1).
inline std::vector<std::int32_t> random_parents(int nodes, double straight, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<std::int32_t> parents{-1};
  for (int i = 1; i < nodes; ++i) {
    const bool on = static_cast<double>(engine() >> 11) * 0x1p-53 < straight;
    parents.push_back(on ? i - 1 : static_cast<std::int32_t>(engine() % i));
  }
  return parents;
}

// parent of node i from a rule.
template <class Rule>
Tree tree_by(int nodes, Rule rule) {
  std::vector<std::int32_t> parents{-1};
  for (int i = 1; i < nodes; ++i) parents.push_back(rule(i));
  return tree_of(parents);
}

// The shapes of math.md's list at one size.
inline std::vector<std::pair<std::string, Tree>> shapes(int nodes) {
  std::vector<std::pair<std::string, Tree>> list;
  list.emplace_back("chain", chain_of(nodes));
  list.emplace_back("star", tree_by(nodes, [](int) { return 0; }));
  list.emplace_back("caterpillar", tree_by(nodes, [](int i) { return i % 2 ? std::max(i - 2, 0) : i - 1; }));
  list.emplace_back("spine", tree_by(nodes, [&](int i) { return i <= nodes / 2 ? i - 1 : i - nodes / 2 - 1; }));
  list.emplace_back("heap", tree_by(nodes, [](int i) { return (i - 1) / 2; }));
  list.emplace_back("quaternary", tree_by(nodes, [](int i) { return (i - 1) / 4; }));
  list.emplace_back("random", tree_of(random_parents(nodes, 0.0, nodes)));
  list.emplace_back("random deep", tree_of(random_parents(nodes, 0.8, nodes)));
  return list;
}

inline std::vector<reference::Solver> stable_solvers() {
  std::vector<reference::Solver> list;
  for (const reference::Solver solver : reference::kSolvers) {
    if (reference::stable(solver)) list.push_back(solver);
  }
  return list;
}

// NaN equals the same NaN here: memory, not values.
template <class Real>
bool same_bits(const Real* x, const Real* y, int count) {
  return std::memcmp(x, y, sizeof(Real) * static_cast<std::size_t>(count)) == 0;
}

inline std::string parents_text(const Tree& tree) {
  std::string text = "[-1";
  for (int i = 1; i < tree.size(); ++i) {
    text += ',';
    text += std::to_string(tree.parents()[i]);
  }
  return text + "]";
}

}  // namespace canopy::test
