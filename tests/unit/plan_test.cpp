// The plan by hand, the block counts of docs/math.md, and garbage that must be refused.
#include "canopy/plan.hpp"

#include <gtest/gtest.h>

#include <climits>
#include <memory>
#include <numeric>

namespace canopy {
namespace {

using Ints = std::vector<std::int32_t>;

Tree family(const char* name, int nodes, int depth = 8, std::uint64_t seed = 0) {
  FamilySpec spec;
  spec.name = name;
  spec.nodes = nodes;
  spec.depth = depth;
  spec.seed = seed;
  return *make_family(spec);
}

TEST(Plan, OfASmallTree) {
  // Depth-first: 0, 1, 3, 2, 4.
  const Ints parents = {-1, 0, 0, 1, 2};
  Plan plan;
  ASSERT_TRUE(build_plan(parents.data(), 5, plan));
  EXPECT_EQ(plan.nodes, 5);
  EXPECT_EQ(plan.depth, 2);
  EXPECT_EQ(plan.blocks, 1);
  const auto first5 = [](const auto* values) { return Ints(values, values + 5); };
  EXPECT_EQ(first5(plan.order), (Ints{0, 1, 3, 2, 4}));
  EXPECT_EQ(first5(plan.rank), (Ints{0, 1, 3, 2, 4}));
  EXPECT_EQ(first5(plan.parent), (Ints{-1, 0, 1, 0, 3}));
  EXPECT_EQ(first5(plan.depths), (Ints{0, 1, 2, 1, 2}));
  EXPECT_EQ(first5(plan.subtree), (Ints{5, 2, 1, 2, 1}));
  EXPECT_EQ(first5(plan.prefix), (Ints{0, 0, 0, 0, 0}));
  EXPECT_EQ(first5(plan.in_block), (Ints{0, 0b1, 0b11, 0b1, 0b1001}));
  EXPECT_EQ(plan.block[0].first, 0);
  EXPECT_EQ(plan.block[0].rows, 5);
  EXPECT_EQ(plan.block[0].ancestors, 0);
}

TEST(Plan, SecondBlockOfAChain) {
  Ints parents(18);
  std::iota(parents.begin(), parents.end(), -1);
  Plan plan;
  ASSERT_TRUE(build_plan(parents.data(), 18, plan));
  ASSERT_EQ(plan.blocks, 2);
  EXPECT_EQ(plan.block[1].first, 16);
  EXPECT_EQ(plan.block[1].rows, 2);
  EXPECT_EQ(plan.block[1].ancestors, 16);
  EXPECT_EQ(plan.prefix[17], 16);
  EXPECT_EQ(plan.in_block[16], 0);
  EXPECT_EQ(plan.in_block[17], 1);
  EXPECT_EQ(plan.in_block[15], 0x7fff);
}

TEST(Plan, WhatStandsAtTheRootIsNotRead) {
  for (const std::int32_t root : {-1, 0, 7, INT_MIN, INT_MAX}) {
    const Ints parents = {root, 0};
    Plan plan;
    ASSERT_TRUE(build_plan(parents.data(), 2, plan)) << root;
    EXPECT_EQ(plan.parent[0], -1);
    EXPECT_EQ(plan.depth, 1);
  }
}

TEST(Plan, NoLiveNodesIsLegal) {
  Plan plan;
  ASSERT_TRUE(build_plan(nullptr, 0, plan));
  EXPECT_EQ(plan.nodes, 0);
  EXPECT_EQ(plan.blocks, 0);
}

TEST(Plan, RefusesGarbage) {
  Plan plan;
  int bad = -7;
  for (const std::int32_t wrong : {-1, -2, 2, 3, 256, INT_MIN, INT_MAX}) {
    const Ints parents = {-1, 0, wrong, 99};
    EXPECT_FALSE(build_plan(parents.data(), 4, plan, &bad)) << wrong;
    EXPECT_EQ(bad, 2);
    EXPECT_FALSE(build_plan(parents.data(), 4, plan)) << "without a place for the bad node";
  }
  const Ints zeros(300, 0);
  EXPECT_FALSE(build_plan(zeros.data(), 257, plan, &bad));
  EXPECT_EQ(bad, 256);
  EXPECT_FALSE(build_plan(zeros.data(), -1, plan, &bad));
  EXPECT_EQ(bad, 0);
}

TEST(Links, SiblingsInAnyOrder) {
  // Children of 0 linked 4 -> 1 (descending), as SGLang's kernel test does.
  const Ints token = {4, 2, 3, -1, 5, -1}, sibling = {-1, -1, -1, -1, 1, -1};
  Ints parents(6, -9);
  ASSERT_TRUE(parents_from_links(token.data(), sibling.data(), 6, parents.data()));
  EXPECT_EQ(parents, (Ints{-1, 0, 1, 2, 0, 4}));
  EXPECT_TRUE(parents_from_links(nullptr, nullptr, 0, nullptr));
}

TEST(Links, RefusesGarbage) {
  struct Case {
    const char* why;
    Ints token, sibling;
    int bad;
  };
  const Case cases[] = {
      {"past the end", {3, -1, -1}, {-1, -1, -1}, 0},
      {"below -1", {1, -2, -1}, {-1, 2, -1}, 1},
      {"huge", {1, INT_MAX, -1}, {-1, 2, -1}, 1},
      {"into the root", {1, 0, -1}, {-1, 2, -1}, 0},
      {"the root has a sibling", {1, -1, -1}, {2, -1, -1}, 2},
      {"twice", {1, 2, -1}, {-1, 2, -1}, 2},
      {"to itself as child", {1, 1, -1}, {-1, 2, -1}, 1},
      {"to itself as sibling", {1, -1, -1}, {-1, -1, 2}, 2},
      {"not reached", {1, -1, -1}, {-1, -1, -1}, 2},
      {"circle of siblings beside the tree", {1, -1, -1, -1}, {-1, -1, 3, 2}, 2},
      {"circle of children beside the tree", {1, -1, 3, 2}, {-1, -1, -1, -1}, 2},
      {"child before its parent", {2, -1, 1}, {-1, -1, -1}, 1},
  };
  for (const Case& c : cases) {
    const int nodes = static_cast<int>(c.token.size());
    Ints parents(nodes);
    int bad = -7;
    EXPECT_FALSE(parents_from_links(c.token.data(), c.sibling.data(), nodes, parents.data(), &bad)) << c.why;
    EXPECT_EQ(bad, c.bad) << c.why;
    EXPECT_FALSE(parents_from_links(c.token.data(), c.sibling.data(), nodes, parents.data())) << c.why;
  }
  int bad = -7;
  EXPECT_FALSE(parents_from_links(nullptr, nullptr, 257, nullptr, &bad));
  EXPECT_EQ(bad, 256);
  EXPECT_FALSE(parents_from_links(nullptr, nullptr, -3, nullptr, &bad));
  EXPECT_EQ(bad, 0);
}

TEST(Blocks, CountsOfTheMathematics) {
  EXPECT_EQ(dense_block_count(128), 36);
  EXPECT_EQ(dense_block_count(256), 136);
  EXPECT_EQ(compressed_block_count(family("chain", 256)), 136);
  EXPECT_EQ(compressed_block_count(family("skewed", 256, 48)), 46);
  EXPECT_EQ(compressed_block_count(family("balanced", 256)), 31);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(compressed_block_count(family("best-first", 128, 8, seed)), 15) << seed;
    EXPECT_EQ(compressed_block_count(family("best-first", 256, 8, seed)), 31) << seed;
    EXPECT_EQ(compressed_block_count(family("random", 256, 8, seed)), 31) << seed;
  }
}

TEST(Blocks, OfAnySize) {
  const Tree chain = family("chain", 20);
  const std::vector<Block> blocks = block_plan(chain, 8);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[2].first, 16);
  EXPECT_EQ(blocks[2].rows, 4);
  EXPECT_EQ(blocks[2].ancestors, 16);
  EXPECT_EQ(compressed_block_count(chain, 8), 1 + 2 + 3);
  EXPECT_EQ(dense_block_count(20, 8), 6);
  EXPECT_EQ(dense_block_count(1), 1);
  EXPECT_EQ(dense_block_count(16), 1);
  EXPECT_EQ(dense_block_count(17), 3);
  EXPECT_EQ(compressed_block_count(chain, 1), 20 * 21 / 2);
  EXPECT_EQ(compressed_block_count(chain, INT_MAX), 1);
  EXPECT_EQ(dense_block_count(20, INT_MAX), 1);
  EXPECT_TRUE(block_plan(chain, 0).empty());
  EXPECT_EQ(dense_block_count(0), 0);
  EXPECT_EQ(dense_block_count(5, 0), 0);
}

}  // namespace
}  // namespace canopy
