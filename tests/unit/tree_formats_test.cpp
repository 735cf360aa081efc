// Reading and writing the text forms: what each means, what is detected, the trees of data/trees.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "canopy/tree.hpp"
#include "support.hpp"

namespace canopy {
namespace {

using Ints = std::vector<std::int32_t>;

struct Case {
  const char* source;
  TreeFormat format;
  std::vector<Ints> trees;
};

void expect_reads(const Case& c, TreeFormat asked) {
  const auto parsed = parse_trees(c.source, asked);
  ASSERT_TRUE(parsed) << c.source << "\n" << parsed.error().message;
  EXPECT_EQ(parsed->format, c.format) << c.source;
  ASSERT_EQ(parsed->trees.size(), c.trees.size()) << c.source;
  for (std::size_t i = 0; i < c.trees.size(); ++i) {
    EXPECT_EQ(Ints(parsed->trees[i].parents().begin(), parsed->trees[i].parents().end()), c.trees[i]) << c.source;
  }
}

TEST(Formats, DetectedAndNamed) {
  const Case cases[] = {
      // Wrapped, with and without a format, with members that mean nothing here.
      {R"({"source": "x", "format": "parents", "parents": [-1, 0, 0]})", TreeFormat::parents, {{-1, 0, 0}}},
      {R"({"parents": [-1, 0, 0], "depth": 1, "depths": [0, 1, 1]})", TreeFormat::parents, {{-1, 0, 0}}},
      {R"({"parents": [[-1, 0], [-1]]})", TreeFormat::parents, {{-1, 0}, {-1}}},
      {R"({"format": "detect", "choices": [[0]]})", TreeFormat::choices, {{-1, 0}}},
      {R"({"choices": []})", TreeFormat::choices, {{-1}}},
      {R"({"trees": ["[(0,), (0, 0)]", "[]"]})", TreeFormat::tuples, {{-1, 0, 1}, {-1}}},
      {R"({"trees": "[(0,)]"})", TreeFormat::tuples, {{-1, 0}}},
      {R"({"trees": [{"parents": [-1, 0]}, {"parents": [[-1], [-1, 0, 1]]}]})",
       TreeFormat::parents,
       {{-1, 0}, {-1}, {-1, 0, 1}}},
      {R"({"format": "choices", "trees": [{"choices": [[0]]}, {"choices": [[0], [1]]}]})",
       TreeFormat::choices,
       {{-1, 0}, {-1, 0, 0}}},
      {R"({"next_sibling": [-1, -1, 1], "next_token": [2, -1, -1]})", TreeFormat::retrieve, {{-1, 0, 0}}},
      {R"({"next_token": [[1, -1], [-1]], "next_sibling": [[-1, -1], [-1]]})", TreeFormat::retrieve, {{-1, 0}, {-1}}},
      {R"({"successors": [[2, 1], [], []]})", TreeFormat::successors, {{-1, 0, 0}}},
      {R"({"mask": [[true, false], [true, true]]})", TreeFormat::mask, {{-1, 0}}},
      {R"({"mask": [[[1]], [[1, 0], [1, 1]]]})", TreeFormat::mask, {{-1}, {-1, 0}}},
      {R"({"widths": [2, 2]})", TreeFormat::widths, {{-1, 0, 0, 1, 1, 2, 2}}},
      // Bare JSON.
      {"[-1, 0, 1]", TreeFormat::parents, {{-1, 0, 1}}},
      {"[-1]", TreeFormat::parents, {{-1}}},
      {"[[-1, 0, 1], [-1, 0]]", TreeFormat::parents, {{-1, 0, 1}, {-1, 0}}},
      {"[[0], [0, 0], [1]]", TreeFormat::choices, {{-1, 0, 0, 1}}},
      {"[[0]]", TreeFormat::choices, {{-1, 0}}},
      {"[[0], [1]]", TreeFormat::choices, {{-1, 0, 0}}},
      {R"(["[(0,)]", "[(0,), (1,)]"])", TreeFormat::tuples, {{-1, 0}, {-1, 0, 0}}},
      {R"("[(0,)]")", TreeFormat::tuples, {{-1, 0}}},
      {"[[1, -1], [-1, -1]]", TreeFormat::retrieve, {{-1, 0}}},
      {"[[[1, -1]], [[-1, -1]]]", TreeFormat::retrieve, {{-1, 0}}},
      {"[[1], [2], []]", TreeFormat::successors, {{-1, 0, 1}}},
      {"[[]]", TreeFormat::successors, {{-1}}},
      {"[[1, 0, 0], [1, 1, 0], [1, 0, 1]]", TreeFormat::mask, {{-1, 0, 0}}},
      {"[[true]]", TreeFormat::mask, {{-1}}},
      {"[1, 2]", TreeFormat::widths, {{-1, 0, 1, 1}}},
      // Bare texts that are no JSON.
      {"[(0,), (0, 0), (0, 1)]", TreeFormat::tuples, {{-1, 0, 1, 1}}},
      {"((0,), (1,),)", TreeFormat::tuples, {{-1, 0, 0}}},
      {" [ ( 0 , ) ,\n ( 0 , 3, ) ] \n", TreeFormat::tuples, {{-1, 0, 1}}},
      {"<1,1,2>", TreeFormat::widths, {{-1, 0, 1, 2, 2}}},
      {"< 2 1 >\n", TreeFormat::widths, {{-1, 0, 0, 1, 2}}},
      {"-1 0 0 1\n", TreeFormat::parents, {{-1, 0, 0, 1}}},
      {"-1,0,\t0, 1", TreeFormat::parents, {{-1, 0, 0, 1}}},
      {"-1", TreeFormat::parents, {{-1}}},
      {"\xEF\xBB\xBF-1 0", TreeFormat::parents, {{-1, 0}}},
  };
  for (const Case& c : cases) {
    expect_reads(c, TreeFormat::detect);
    expect_reads(c, c.format);
  }
}

TEST(Formats, OnlyWhenNamed) {
  expect_reads({"[]", TreeFormat::choices, {{-1}}}, TreeFormat::choices);
  expect_reads({"[[1]]", TreeFormat::choices, {{-1, 0}}}, TreeFormat::choices);
  expect_reads({"[[1]]", TreeFormat::mask, {{-1}}}, TreeFormat::mask);
  expect_reads({"[[-1], [-1]]", TreeFormat::parents, {{-1}, {-1}}}, TreeFormat::parents);
  expect_reads({"[[-1], [-1]]", TreeFormat::retrieve, {{-1}}}, TreeFormat::retrieve);
  expect_reads({"1 1 2", TreeFormat::widths, {{-1, 0, 1, 2, 2}}}, TreeFormat::widths);
  expect_reads({R"({"parents": [-1, 0], "mask": [[1]]})", TreeFormat::mask, {{-1}}}, TreeFormat::mask);
}

TEST(Formats, ChoicesAreNumberedByLengthThenRank) {
  // Listed in any order, with gaps between the ranks.
  expect_reads({"[[5, 0], [0, 7], [5], [0], [0, 2], [9]]", TreeFormat::choices, {{-1, 0, 0, 0, 1, 1, 2}}},
               TreeFormat::detect);
}

TEST(Formats, WidthsAreChildrenOfEachNode) {
  const auto parsed = parse_trees("<1,1,3,1,1,1,1,1>");
  ASSERT_TRUE(parsed);
  const Tree& tree = parsed->trees[0];
  EXPECT_EQ(tree.depth(), 8);
  EXPECT_EQ(tree.size(), 1 + 1 + 1 + 6 * 3);
}

std::string read_data(const std::string& name) {
  std::ifstream file(test::source_file("data/trees/" + name));
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Formats, PublishedTrees) {
  struct Published {
    const char* file;
    TreeFormat format;
    std::vector<std::pair<int, int>> nodes_depth;
  };
  const Published published[] = {
      {"ddtree-budget.json", TreeFormat::parents, {{12, 6}}},
      {"eagle-mc_sim_7b_63.json", TreeFormat::choices, {{26, 5}}},
      {"medusa-mc_sim_7b_63.json", TreeFormat::choices, {{64, 4}}},
      {"sequoia-A100-CNN-68m-13b-stochastic-S32.json", TreeFormat::successors, {{32, 7}}},
      {"sequoia-L40-CNN-68m-13b-stochastic-S128.json", TreeFormat::successors, {{128, 9}}},
      {"sglang-retrieve.json", TreeFormat::retrieve, {{6, 3}, {6, 3}}},
      {"vllm-token-tree.json", TreeFormat::tuples, {{4, 2}, {7, 3}, {5, 4}}},
  };
  for (const Published& p : published) {
    const std::string source = read_data(p.file);
    const auto parsed = parse_trees(source, TreeFormat::detect, p.file);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->format, p.format) << p.file;
    ASSERT_EQ(parsed->trees.size(), p.nodes_depth.size()) << p.file;
    for (std::size_t i = 0; i < p.nodes_depth.size(); ++i) {
      EXPECT_EQ(parsed->trees[i].size(), p.nodes_depth[i].first) << p.file;
      EXPECT_EQ(parsed->trees[i].depth(), p.nodes_depth[i].second) << p.file;
    }
    // Every choice is a node whose path has the choice's length.
    const auto json = nlohmann::json::parse(source);
    if (p.format == TreeFormat::choices) {
      std::vector<std::size_t> lengths(16, 0), depths(16, 0);
      for (const auto& path : json["choices"]) ++lengths[path.size()];
      for (int i = 1; i < parsed->trees[0].size(); ++i) ++depths[parsed->trees[0].depths()[i]];
      EXPECT_EQ(lengths, depths) << p.file;
    }
    if (p.format == TreeFormat::retrieve) {
      for (std::size_t row = 0; row < parsed->trees.size(); ++row) {
        EXPECT_EQ(json["expect_parents"][row].get<Ints>(),
                  Ints(parsed->trees[row].parents().begin(), parsed->trees[row].parents().end()));
      }
    }
    if (p.format == TreeFormat::successors) {
      for (int i = 0; i < parsed->trees[0].size(); ++i) {
        for (const int child : json["successors"][i]) EXPECT_EQ(parsed->trees[0].parents()[child], i);
      }
    }
  }
}

TEST(Formats, Names) {
  for (const char* name : {"detect", "parents", "choices", "tuples", "retrieve", "successors", "mask", "widths"}) {
    const auto format = tree_format_from_name(name);
    ASSERT_TRUE(format) << name;
    EXPECT_EQ(name_of(*format), name);
  }
  EXPECT_EQ(tree_format_from_name("medusa").error().message,
            "the form \"medusa\" is unknown: expected one of parents, choices, tuples, retrieve, successors, mask, "
            "widths or detect");
  EXPECT_FALSE(tree_format_from_name(""));
}

TEST(Formats, Written) {
  // Node 1's child is node 3, node 2's is node 4.
  const Tree tree = *Tree::from_parents(Ints{-1, 0, 0, 1, 2});
  const auto written = [&](TreeFormat format) { return *format_tree(tree, format); };
  EXPECT_EQ(written(TreeFormat::parents), R"({"format": "parents", "parents": [-1, 0, 0, 1, 2]})");
  EXPECT_EQ(written(TreeFormat::choices), R"({"format": "choices", "choices": [[0], [1], [0, 0], [1, 0]]})");
  EXPECT_EQ(written(TreeFormat::tuples), R"({"format": "tuples", "trees": ["[(0,), (1,), (0, 0), (1, 0)]"]})");
  EXPECT_EQ(written(TreeFormat::retrieve),
            R"({"format": "retrieve", "next_token": [[1, 3, 4, -1, -1]], "next_sibling": [[-1, 2, -1, -1, -1]]})");
  EXPECT_EQ(written(TreeFormat::successors), R"({"format": "successors", "successors": [[1, 2], [3], [4], [], []]})");
  EXPECT_EQ(written(TreeFormat::widths), R"({"format": "widths", "widths": [2, 1]})");
  EXPECT_EQ(*format_tree(*Tree::from_parents(Ints{-1, 0}), TreeFormat::mask),
            "{\"format\": \"mask\", \"mask\": [[1, 0],\n[1, 1]]}");
}

TEST(Formats, NotWritten) {
  const Tree tree = *Tree::from_parents(Ints{-1, 0, 0, 1});
  const auto widths = format_tree(tree, TreeFormat::widths);
  EXPECT_EQ(widths.error().status, CANOPY_UNSUPPORTED);
  EXPECT_EQ(widths.error().message,
            "the tree has no level widths: on level 1 node 1 has 1 children and node 2 has 0; write another form");
  EXPECT_EQ(format_tree(tree, TreeFormat::detect).error().status, CANOPY_INVALID);
}

}  // namespace
}  // namespace canopy
