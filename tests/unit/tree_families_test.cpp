// The families: exact definitions on small trees, hashes that pin every platform to the same trees, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "canopy/plan.hpp"

namespace canopy {
namespace {

using Ints = std::vector<std::int32_t>;

FamilySpec spec(const char* name, int nodes, int top_k = 4, int depth = 8, std::uint64_t seed = 0) {
  FamilySpec made;
  made.name = name;
  made.nodes = nodes;
  made.top_k = top_k;
  made.depth = depth;
  made.seed = seed;
  return made;
}

Ints parents(const FamilySpec& made) {
  const auto tree = make_family(made);
  if (!tree) return {};
  return {tree->parents().begin(), tree->parents().end()};
}

std::string refusal(const FamilySpec& made) {
  const auto tree = make_family(made);
  return tree ? "accepted" : tree.error().message;
}

int most_children(const Tree& tree) {
  Ints children(tree.size(), 0);
  for (int i = 1; i < tree.size(); ++i) ++children[tree.parents()[i]];
  return *std::max_element(children.begin(), children.end());
}

TEST(Families, AsDefined) {
  EXPECT_EQ(parents(spec("chain", 5)), (Ints{-1, 0, 1, 2, 3}));
  EXPECT_EQ(parents(spec("star", 5)), (Ints{-1, 0, 0, 0, 0}));
  EXPECT_EQ(parents(spec("balanced", 8, 2)), (Ints{-1, 0, 0, 1, 1, 2, 2, 3}));
  EXPECT_EQ(parents(spec("caterpillar", 8)), (Ints{-1, 0, 0, 1, 1, 3, 3, 5}));
  EXPECT_EQ(parents(spec("spine", 8, 4, 3)), (Ints{-1, 0, 1, 2, 0, 1, 2, 0}));
  // Side chains of 1, 2, 1 nodes under spine nodes 0, 1, 2; the fourth of 4 is cut to 1 by the depth, the fifth has 1.
  EXPECT_EQ(parents(spec("skewed", 12, 4, 4)), (Ints{-1, 0, 1, 2, 3, 0, 1, 6, 2, 3, 0, 1}));
  EXPECT_EQ(parents(spec("specla", 12, 2, 4)), (Ints{-1, 0, 1, 2, 3, 0, 1, 2, 3, 5, 6, 7}));
}

TEST(Families, SameTreesOnEveryPlatform) {
  struct Golden {
    const char* name;
    int nodes, top_k, depth;
    std::uint64_t seed, hash;  // FNV-1a over the parents as little-endian 32-bit integers
  };
  // Computed by an independent implementation of the definitions in docs/trees.md.
  const Golden golden[] = {
      {"best-first", 8, 4, 8, 0, 0x6d598868870f4435u},    {"best-first", 32, 4, 8, 0, 0x3dee4b62e64da58cu},
      {"best-first", 64, 4, 8, 0, 0xadb28ee14e03a839u},   {"best-first", 100, 4, 8, 0, 0x1120d1a28ab5bf53u},
      {"best-first", 128, 4, 8, 0, 0x9efb02cf54bcfdf6u},  {"best-first", 200, 4, 8, 0, 0x71f5f5bbffe5d968u},
      {"best-first", 256, 4, 8, 0, 0xa9a1e5e4db2d7490u},  {"best-first", 64, 2, 12, 3735928559, 0xf7336ab96a156cbcu},
      {"best-first", 256, 16, 3, 7, 0x3c525b44da4e3db8u}, {"random", 64, 4, 8, 0, 0xe7be0e70cb80bb7bu},
      {"random", 256, 4, 8, 12345, 0x8129cdd4b605aaa8u},  {"chain", 256, 4, 8, 0, 0x433418bf01e88c3eu},
      {"star", 64, 4, 8, 0, 0x51298eb98dba14c1u},         {"balanced", 100, 3, 8, 0, 0x34beff728a34c8a1u},
      {"caterpillar", 33, 4, 8, 0, 0xd7131b0472e20201u},  {"spine", 64, 4, 12, 0, 0xfc7dd942f9eee042u},
      {"skewed", 256, 4, 48, 0, 0x53f85a16258cd496u},     {"skewed", 64, 4, 8, 0, 0xd9bbebbb06299e8eu},
      {"specla", 16, 2, 4, 0, 0x68d35110e366cc78u},       {"specla", 16, 4, 4, 0, 0x817431dc9932cdc2u},
      {"specla", 32, 4, 4, 0, 0xb3b7220997f5a849u},       {"specla", 16, 2, 12, 0, 0xc875715af04f5342u},
      {"specla", 32, 2, 12, 0, 0x5ec295c18758146du},      {"specla", 32, 4, 12, 0, 0xbb0493c9043b2246u},
      {"specla", 32, 2, 24, 0, 0xfce3fec280d2be86u},      {"specla", 32, 4, 24, 0, 0xfce3fec280d2be86u},
  };
  for (const Golden& g : golden) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::int32_t parent : parents(spec(g.name, g.nodes, g.top_k, g.depth, g.seed))) {
      for (int shift = 0; shift < 32; shift += 8) {
        hash = (hash ^ ((static_cast<std::uint32_t>(parent) >> shift) & 0xff)) * 0x100000001b3u;
      }
    }
    EXPECT_EQ(hash, g.hash) << g.name << " nodes " << g.nodes << " top_k " << g.top_k << " depth " << g.depth;
  }
}

TEST(Families, EveryFamilyHasExactlyTheNodesAskedFor) {
  for (const char* name : family_names()) {
    for (const int nodes : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256}) {
      const auto tree = make_family(spec(name, nodes));
      ASSERT_TRUE(tree) << name << " " << nodes << ": " << tree.error().message;
      EXPECT_EQ(tree->size(), nodes) << name;
    }
  }
}

TEST(Families, DepthsAndBranchingAreAsAsked) {
  for (const int depth : {1, 4, 8, 12, 24, 48}) {
    for (const char* name : {"skewed", "spine"}) {
      for (const int nodes : {64, 256}) EXPECT_EQ(make_family(spec(name, nodes, 4, depth))->depth(), depth) << name;
    }
    // A tree of 5 nodes is at most 4 deep.
    EXPECT_EQ(make_family(spec("skewed", 5, 4, depth))->depth(), std::min(depth, 4));
  }
  for (const int depth : {4, 12, 24}) {
    for (const int top_k : {2, 4}) {
      for (const int nodes : {16, 32}) {
        if (top_k == 2 && depth == 4 && nodes == 32) continue;  // 31 nodes at most
        const Tree tree = *make_family(spec("specla", nodes, top_k, depth));
        EXPECT_EQ(tree.depth(), std::min(depth, nodes - 1));
        EXPECT_LE(most_children(tree), top_k);
      }
    }
  }
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Tree tree = *make_family(spec("best-first", 256, 4, 8, seed));
    EXPECT_LE(tree.depth(), 8);
    EXPECT_LE(most_children(tree), 4);
  }
  EXPECT_EQ(make_family(spec("best-first", 31, 2, 4))->depth(), 4) << "the full tree";
}

TEST(Families, BestFirstGrowsByAddingNodes) {
  const Ints all = parents(spec("best-first", 256, 4, 8, 3)), some = parents(spec("best-first", 100, 4, 8, 3));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

TEST(Families, SeedsMatterWhereTheyShould) {
  for (const char* name : family_names()) {
    std::set<Ints> different;
    for (std::uint64_t seed = 0; seed < 20; ++seed) different.insert(parents(spec(name, 64, 4, 8, seed)));
    const bool random = std::string_view(name) == "random" || std::string_view(name) == "best-first";
    EXPECT_EQ(different.size(), random ? 20u : 1u) << name;
  }
}

TEST(Families, Refusals) {
  EXPECT_EQ(refusal(spec("oak", 4)),
            "family \"oak\" is unknown: expected one of chain, balanced, skewed, star, caterpillar, spine, random, "
            "best-first, specla");
  for (const char* name : family_names()) {
    for (const int nodes : {0, -5, 257}) {
      EXPECT_EQ(refusal(spec(name, nodes)),
                std::string("family ") + name + ": nodes = " + std::to_string(nodes) + ": expected 1 to 256");
    }
  }
  EXPECT_EQ(
      refusal(spec("best-first", 64, 2, 3)),
      "family best-first: nodes = 64: a tree of top_k 2 and depth 3 holds at most 15 nodes; raise top_k or depth, "
      "or ask for fewer nodes");
  EXPECT_EQ(refusal(spec("specla", 32, 2, 4)),
            "family specla: nodes = 32: a tree of top_k 2 and depth 4 holds at most 31 nodes; raise top_k or depth, or "
            "ask for fewer nodes");
  EXPECT_EQ(refusal(spec("best-first", 15, 2, 3)), "accepted");
  EXPECT_EQ(refusal(spec("best-first", 256, INT32_MAX, INT32_MAX)), "accepted");
  EXPECT_EQ(refusal(spec("best-first", 10, 1, 8)).substr(0, 74),
            "family best-first: nodes = 10: a tree of top_k 1 and depth 8 holds at most");
  for (const char* name : {"balanced", "best-first", "specla"}) {
    EXPECT_EQ(refusal(spec(name, 8, 0)),
              std::string("family ") + name + ": top_k = 0: expected at least 1 child a node");
  }
  for (const char* name : {"skewed", "spine", "best-first", "specla"}) {
    EXPECT_EQ(refusal(spec(name, 8, 4, 0)),
              std::string("family ") + name + ": depth = 0: expected at least 1 level below the root");
  }
}

}  // namespace
}  // namespace canopy
