// What holds of every tree: orders, masks, chains, relabelling, the plan.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "canopy/plan.hpp"
#include "property/tree_generators.hpp"

namespace canopy {
namespace {

using test::any_tree;
using Ints = std::vector<std::int32_t>;

// By walking parents, the definition that everything else is compared with.
bool is_ancestor(const Tree& tree, int ancestor, int node) {
  for (int i = tree.parents()[node]; i >= 0; i = tree.parents()[i]) {
    if (i == ancestor) return true;
  }
  return false;
}

RC_GTEST_PROP(TreeProperty, OrdersAreInversePermutations, ()) {
  const Tree tree = any_tree();
  for (int r = 0; r < tree.size(); ++r) {
    RC_ASSERT(tree.dfs_rank()[tree.dfs_order()[r]] == r);
    RC_ASSERT(tree.level_rank()[tree.level_order()[r]] == r);
  }
  for (int r = 1; r < tree.size(); ++r) {
    const int a = tree.level_order()[r - 1], b = tree.level_order()[r];
    RC_ASSERT(tree.depths()[a] < tree.depths()[b] || (tree.depths()[a] == tree.depths()[b] && a < b));
  }
}

RC_GTEST_PROP(TreeProperty, SubtreesAreContiguousInDepthFirstOrder, ()) {
  const Tree tree = any_tree();
  for (int i = 0; i < tree.size(); ++i) {
    const int first = tree.dfs_rank()[i], end = first + tree.subtree_sizes()[i];
    for (int j = 0; j < tree.size(); ++j) {
      const bool inside = tree.dfs_rank()[j] >= first && tree.dfs_rank()[j] < end;
      RC_ASSERT(inside == (j == i || is_ancestor(tree, i, j)));
    }
  }
  // Siblings follow in ascending node number.
  for (int i = 1; i < tree.size(); ++i) {
    for (int j = 1; j < i; ++j) {
      if (tree.parents()[i] == tree.parents()[j]) RC_ASSERT(tree.dfs_rank()[j] < tree.dfs_rank()[i]);
    }
  }
}

RC_GTEST_PROP(TreeProperty, MasksDepthsAndPathsEqualWalkingParents, ()) {
  const Tree tree = any_tree();
  int deepest = 0;
  for (int i = 0; i < tree.size(); ++i) {
    int ancestors = 0;
    for (int j = 0; j < kMaxNodes; ++j) {
      const bool expected = j < tree.size() && is_ancestor(tree, j, i);
      RC_ASSERT(contains(tree.ancestors(i), j) == expected);
      ancestors += expected;
    }
    RC_ASSERT(tree.depths()[i] == ancestors);
    deepest = std::max(deepest, ancestors);
    const Ints path = tree.path(i);
    RC_ASSERT(static_cast<int>(path.size()) == ancestors + 1);
    RC_ASSERT(path.front() == 0 && path.back() == i);
    for (std::size_t n = 1; n < path.size(); ++n) RC_ASSERT(tree.parents()[path[n]] == path[n - 1]);
  }
  RC_ASSERT(tree.depth() == deepest);
}

RC_GTEST_PROP(TreeProperty, ChainsPartitionTheNodes, ()) {
  const Tree tree = any_tree();
  const ChainDecomposition result = decompose_chains(tree);
  std::set<std::int32_t> seen;
  int last_top = -1;
  for (std::size_t c = 0; c < result.chains.size(); ++c) {
    const Ints& chain = result.chains[c];
    RC_ASSERT(!chain.empty());
    RC_ASSERT(tree.dfs_rank()[chain[0]] > last_top);
    last_top = tree.dfs_rank()[chain[0]];
    if (chain[0] > 0) {
      RC_ASSERT(result.chain_of[tree.parents()[chain[0]]] < static_cast<int>(c));
      // A light edge at least halves the subtree: a root path crosses at most log2(T) of them.
      RC_ASSERT(2 * tree.subtree_sizes()[chain[0]] <= tree.subtree_sizes()[tree.parents()[chain[0]]]);
    }
    for (std::size_t n = 0; n < chain.size(); ++n) {
      RC_ASSERT(seen.insert(chain[n]).second);
      RC_ASSERT(result.chain_of[chain[n]] == static_cast<int>(c));
      if (n > 0) RC_ASSERT(tree.parents()[chain[n]] == chain[n - 1]);
    }
    RC_ASSERT(tree.subtree_sizes()[chain.back()] == 1);
  }
  RC_ASSERT(static_cast<int>(seen.size()) == tree.size());
}

RC_GTEST_PROP(TreeProperty, RandomLabelsKeepTheStructure, (std::uint64_t seed)) {
  const Tree tree = any_tree();
  const Ints labels = random_topological_labels(tree, seed);
  const auto renamed = relabel(tree, labels);
  RC_ASSERT(renamed.ok());
  for (int i = 0; i < tree.size(); ++i) {
    const int parent = tree.parents()[i];
    RC_ASSERT(renamed->parents()[labels[i]] == (parent < 0 ? -1 : labels[parent]));
    RC_ASSERT(renamed->subtree_sizes()[labels[i]] == tree.subtree_sizes()[i]);
  }
  Ints back(tree.size());
  for (int i = 0; i < tree.size(); ++i) back[labels[i]] = i;
  const auto original = relabel(*renamed, back);
  RC_ASSERT(original.ok());
  RC_ASSERT(std::ranges::equal(original->parents(), tree.parents()));
}

RC_GTEST_PROP(PlanProperty, SaysWhatTheTreeSays, ()) {
  const Tree tree = any_tree();
  Plan plan;
  RC_ASSERT(build_plan(tree.parents().data(), tree.size(), plan));
  RC_ASSERT(plan.nodes == tree.size());
  RC_ASSERT(plan.depth == tree.depth());
  for (int r = 0; r < plan.nodes; ++r) {
    const int node = plan.order[r], parent = tree.parents()[node];
    RC_ASSERT(node == tree.dfs_order()[r]);
    RC_ASSERT(plan.rank[node] == r);
    RC_ASSERT(plan.parent[r] == (parent < 0 ? -1 : tree.dfs_rank()[parent]));
    RC_ASSERT(plan.depths[r] == tree.depths()[node]);
    RC_ASSERT(plan.subtree[r] == tree.subtree_sizes()[node]);
    const int first = r / kBlockRows * kBlockRows;
    for (int j = 0; j < kBlockRows; ++j) {
      const bool ancestor = first + j < plan.nodes && is_ancestor(tree, plan.order[first + j], node);
      RC_ASSERT(((plan.in_block[r] >> j) & 1) == (ancestor ? 1 : 0));
    }
    RC_ASSERT(plan.prefix[r] + std::popcount(plan.in_block[r]) == plan.depths[r]);
  }
  const std::vector<Block> blocks = block_plan(tree);
  RC_ASSERT(plan.blocks == static_cast<int>(blocks.size()));
  for (int b = 0; b < plan.blocks; ++b) {
    RC_ASSERT(plan.block[b].first == blocks[b].first && plan.block[b].rows == blocks[b].rows &&
              plan.block[b].ancestors == blocks[b].ancestors);
  }
}

// docs/math.md: every outside ancestor of a block's row lies on the root path of the block's first node, and they are
// the prefix of that path of the length that the plan gives.
RC_GTEST_PROP(PlanProperty, OutsideAncestorsArePrefixesOfTheFirstNodesPath, ()) {
  const Tree tree = any_tree();
  const int rows = *rc::gen::element(1, 3, 8, kBlockRows, 64);
  int covered = 0;
  for (const Block& block : block_plan(tree, rows)) {
    RC_ASSERT(block.first == covered);
    covered += block.rows;
    Ints path = tree.path(tree.dfs_order()[block.first]);
    path.pop_back();  // the first node itself is inside
    RC_ASSERT(static_cast<int>(path.size()) == block.ancestors);
    for (int r = block.first; r < block.first + block.rows; ++r) {
      Ints outside;
      for (const int a : tree.path(tree.dfs_order()[r])) {
        if (tree.dfs_rank()[a] < block.first) outside.push_back(a);
      }
      RC_ASSERT(outside.size() <= path.size());
      RC_ASSERT(std::equal(outside.begin(), outside.end(), path.begin()));
    }
  }
  RC_ASSERT(covered == tree.size());
  RC_ASSERT(compressed_block_count(tree, rows) <= dense_block_count(tree.size(), rows));
}

RC_GTEST_PROP(PlanProperty, GarbageParentsAreRefusedAtTheFirstBadNode, ()) {
  const auto parents =
      *rc::gen::container<Ints>(*rc::gen::inRange(1, kMaxNodes + 1),
                                rc::gen::oneOf(rc::gen::inRange(-3, 260), rc::gen::arbitrary<std::int32_t>()));
  int first_bad = -1;
  for (std::size_t i = 1; i < parents.size() && first_bad < 0; ++i) {
    if (parents[i] < 0 || parents[i] >= static_cast<int>(i)) first_bad = static_cast<int>(i);
  }
  Plan plan;
  int bad = -1;
  RC_ASSERT(build_plan(parents.data(), static_cast<int>(parents.size()), plan, &bad) == (first_bad < 0));
  RC_ASSERT(bad == first_bad);
}

RC_GTEST_PROP(PlanProperty, OneBadParentIsFound, ()) {
  const Tree tree = any_tree();
  RC_PRE(tree.size() > 1);
  Ints parents(tree.parents().begin(), tree.parents().end());
  const int node = *rc::gen::inRange(1, tree.size());
  parents[node] = *rc::gen::oneOf(rc::gen::inRange(node, 2 * kMaxNodes), rc::gen::inRange(-5, 0));
  Plan plan;
  int bad = -1;
  RC_ASSERT(!build_plan(parents.data(), tree.size(), plan, &bad));
  RC_ASSERT(bad == node);
  const auto refused = Tree::from_parents(parents);
  RC_ASSERT(!refused.ok());
  const std::string place = "parents[" + std::to_string(node) + "] = " + std::to_string(parents[node]) + ": ";
  RC_ASSERT(refused.error().message.rfind(place, 0) == 0);
}

RC_GTEST_PROP(LinksProperty, ShuffledSiblingsGiveTheSameParents, ()) {
  const Tree tree = any_tree();
  Ints token(tree.size(), -1), sibling(tree.size(), -1), parents(tree.size());
  std::vector<Ints> children(tree.size());
  for (int i = 1; i < tree.size(); ++i) children[tree.parents()[i]].push_back(i);
  for (int p = 0; p < tree.size(); ++p) {
    const Ints order = *rc::gen::container<Ints>(children[p].size(), rc::gen::arbitrary<std::int32_t>());
    Ints by_key(children[p].size());
    for (std::size_t j = 0; j < by_key.size(); ++j) by_key[j] = static_cast<int>(j);
    std::sort(by_key.begin(), by_key.end(),
              [&](int a, int b) { return std::pair(order[a], a) < std::pair(order[b], b); });
    std::int32_t* link = &token[p];
    for (const int j : by_key) {
      *link = children[p][j];
      link = &sibling[children[p][j]];
    }
  }
  RC_ASSERT(parents_from_links(token.data(), sibling.data(), tree.size(), parents.data()));
  RC_ASSERT(std::ranges::equal(parents, tree.parents()));
}

// Links drawn at random: whatever is accepted is a tree that has exactly these links.
RC_GTEST_PROP(LinksProperty, GarbageEndsAndWhatIsAcceptedIsATree, ()) {
  const int nodes = *rc::gen::inRange(1, 6);
  const auto row = rc::gen::container<Ints>(nodes, rc::gen::inRange(-1, nodes + (*rc::gen::inRange(0, 4) == 0)));
  const Ints token = *row, sibling = *row;
  Ints parents(nodes, -9);
  int bad = -9;
  if (parents_from_links(token.data(), sibling.data(), nodes, parents.data(), &bad)) {
    RC_ASSERT(Tree::from_parents(parents).ok());
    for (int i = 0; i < nodes; ++i) {
      if (token[i] >= 0) RC_ASSERT(parents[token[i]] == i);
      if (sibling[i] >= 0) RC_ASSERT(parents[sibling[i]] == parents[i]);
    }
    RC_TAG("accepted");
  } else {
    RC_ASSERT(bad >= 0 && bad < nodes);
  }
}

}  // namespace
}  // namespace canopy
