// Tree: validation, orders, masks, paths, relabelling, chains, the drawing.
#include "canopy/tree.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace canopy {
namespace {

using Ints = std::vector<std::int32_t>;

Ints ints(std::span<const std::int32_t> values) { return {values.begin(), values.end()}; }

// 0 has children 1, 2, 5; 1 has 3; 2 has 4, 6; 4 has 7.
Tree small() { return *Tree::from_parents(Ints{-1, 0, 0, 1, 2, 0, 2, 4}); }

std::string message(const Ints& parents) {
  const auto tree = Tree::from_parents(parents);
  return tree ? "accepted" : tree.error().message;
}

TEST(Tree, RefusesWhatIsNoTree) {
  EXPECT_EQ(message({}), "parents is empty: expected 1 to 256 nodes");
  EXPECT_EQ(message(Ints(257, 0)), "parents has 257 nodes: expected 1 to 256; split the tree or draft fewer nodes");
  EXPECT_EQ(message({3, 0}), "parents[0] = 3: the root's parent is -1");
  EXPECT_EQ(message({0, 0}), "parents[0] = 0: the root's parent is -1");
  EXPECT_EQ(message({-1, 0, 0, 0, -1}), "parents[4] = -1: a second root (node 0 is the root)");
  EXPECT_EQ(message({-1, 0, 0, 0, 0, 7}), "parents[5] = 7: a parent must precede its child (expected 0 <= parent < 5)");
  EXPECT_EQ(message({-1, 0, 2}), "parents[2] = 2: a parent must precede its child (expected 0 <= parent < 2)");
  EXPECT_EQ(message({-1, -2}), "parents[1] = -2: a parent must precede its child (expected 0 <= parent < 1)");
  EXPECT_EQ(message({-1, INT32_MIN}).substr(0, 24), "parents[1] = -2147483648");
  const auto tree = Tree::from_parents(Ints{});
  EXPECT_EQ(tree.error().status, CANOPY_INVALID);
}

TEST(Tree, OrdersAndSizes) {
  const Tree tree = small();
  EXPECT_EQ(tree.size(), 8);
  EXPECT_EQ(tree.depth(), 3);
  EXPECT_EQ(ints(tree.parents()), (Ints{-1, 0, 0, 1, 2, 0, 2, 4}));
  EXPECT_EQ(ints(tree.depths()), (Ints{0, 1, 1, 2, 2, 1, 2, 3}));
  EXPECT_EQ(ints(tree.dfs_order()), (Ints{0, 1, 3, 2, 4, 7, 6, 5}));
  EXPECT_EQ(ints(tree.dfs_rank()), (Ints{0, 1, 3, 2, 4, 7, 6, 5}));
  EXPECT_EQ(ints(tree.level_order()), (Ints{0, 1, 2, 5, 3, 4, 6, 7}));
  EXPECT_EQ(ints(tree.level_rank()), (Ints{0, 1, 2, 4, 5, 3, 6, 7}));
  EXPECT_EQ(ints(tree.subtree_sizes()), (Ints{8, 2, 4, 1, 2, 1, 1, 1}));
  EXPECT_EQ(tree.path(7), (Ints{0, 2, 4, 7}));
  EXPECT_EQ(tree.path(0), (Ints{0}));
  EXPECT_EQ(tree.ancestors(7), (NodeSet{0b10101, 0, 0, 0}));
  EXPECT_EQ(tree.ancestors(0), NodeSet{});
}

TEST(Tree, OneNodeAndTheLongestChain) {
  const Tree one = *Tree::from_parents(Ints{-1});
  EXPECT_EQ(one.size(), 1);
  EXPECT_EQ(one.depth(), 0);
  EXPECT_EQ(ints(one.level_order()), Ints{0});
  EXPECT_EQ(ints(one.subtree_sizes()), Ints{1});

  Ints parents(kMaxNodes);
  std::iota(parents.begin(), parents.end(), -1);
  const Tree chain = *Tree::from_parents(parents);
  EXPECT_EQ(chain.depth(), 255);
  EXPECT_EQ(chain.path(255).size(), 256u);
  EXPECT_EQ(chain.ancestors(255), (NodeSet{~0ull, ~0ull, ~0ull, ~0ull >> 1}));
  EXPECT_TRUE(contains(chain.ancestors(200), 199));
  EXPECT_FALSE(contains(chain.ancestors(200), 200));
}

TEST(Relabel, RenumbersNodes) {
  // Depth-first ranks are a topological labelling.
  const Tree tree = small();
  EXPECT_EQ(ints(relabel(tree, tree.dfs_rank())->parents()), (Ints{-1, 0, 1, 0, 3, 4, 3, 0}));
}

TEST(Relabel, RefusesOtherLabels) {
  const Tree tree = *Tree::from_parents(Ints{-1, 0, 1});
  const auto refused = [&](const Ints& labels) { return relabel(tree, labels).error().message; };
  EXPECT_EQ(refused({0, 1}), "new_label has 2 entries: expected one for each of 3 nodes");
  EXPECT_EQ(refused({0, 1, 3}), "new_label[2] = 3: expected a label 0..2");
  EXPECT_EQ(refused({0, -1, 1}), "new_label[1] = -1: expected a label 0..2");
  EXPECT_EQ(refused({0, 1, 1}), "new_label[2] = 1: the label already belongs to node 1; expected a permutation");
  EXPECT_FALSE(relabel(Tree(), {}).ok());
  EXPECT_EQ(refused({1, 0, 2}), "new_label[0] = 1: the root keeps label 0");
  EXPECT_EQ(refused({0, 2, 1}),
            "new_label[2] = 1: a parent must precede its child, and node 2's parent, node 1, is labelled 2");
}

TEST(Relabel, RandomLabelsDependOnTheSeedOnly) {
  const Tree tree = small();
  EXPECT_EQ(random_topological_labels(tree, 7), random_topological_labels(tree, 7));
  EXPECT_NE(random_topological_labels(tree, 7), random_topological_labels(tree, 8));
}

TEST(Chains, FollowTheHeaviestChild) {
  const ChainDecomposition result = decompose_chains(small());
  // Node 2 (4 nodes) is heavier than 1 (2) and 5 (1).
  EXPECT_EQ(result.chains, (std::vector<Ints>{{0, 2, 4, 7}, {1, 3}, {6}, {5}}));
  EXPECT_EQ(result.chain_of, (Ints{0, 1, 0, 1, 0, 3, 2, 0}));
}

TEST(Chains, TiesGoToTheLowerNode) {
  EXPECT_EQ(decompose_chains(*Tree::from_parents(Ints{-1, 0, 0})).chains, (std::vector<Ints>{{0, 1}, {2}}));
}

TEST(Drawing, UsesBoxCharacters) {
  EXPECT_EQ(ascii_tree(small()),
            "0\n"
            "├─ 1\n"
            "│  └─ 3\n"
            "├─ 2\n"
            "│  ├─ 4\n"
            "│  │  └─ 7\n"
            "│  └─ 6\n"
            "└─ 5\n");
  EXPECT_EQ(ascii_tree(*Tree::from_parents(Ints{-1})), "0\n");
}

}  // namespace
}  // namespace canopy
