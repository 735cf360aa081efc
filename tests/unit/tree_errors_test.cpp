// Malformed texts: the message names the place, what was expected and what was found.
#include <gtest/gtest.h>

#include <chrono>

#include "canopy/tree.hpp"

namespace canopy {
namespace {

std::string message(std::string_view source, TreeFormat format = TreeFormat::detect) {
  const auto parsed = parse_trees(source, format, "f");
  return parsed ? "accepted" : parsed.error().message;
}

struct Case {
  const char *source, *message;
  TreeFormat format = TreeFormat::detect;
};

void expect_messages(std::span<const Case> cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(message(c.source, c.format), std::string("f: ") + c.message) << c.source;
    EXPECT_EQ(parse_trees(c.source, c.format).error().status, CANOPY_INVALID) << c.source;
  }
}

TEST(TreeErrors, Syntax) {
  const Case cases[] = {
      {"", "the text is empty: expected a tree"},
      {" \n\t", "the text is empty: expected a tree"},
      {"\n  tree",
       "line 2, column 3: expected a tree (JSON, a list of tuples, <widths> or a list of parents), found \"t\""},
      {"\xff\xfe",
       "line 1, column 1: expected a tree (JSON, a list of tuples, <widths> or a list of parents), found \"\\xff\""},
      {"{\"choices\": [[0], [1,\n 2]", "line 2, column 4: expected ']', found the end of the text"},
      {"{\"choices\":\n [[0], [x]]}", "line 2, column 9: expected a JSON value (invalid literal), found \"x\""},
      {"{choices: 1}", "line 1, column 2: expected string literal, found \"c\""},
      {"{\"choices\" 1}", "line 1, column 12: expected ':', found \"1\""},
      {"[\"\xff\"]",
       "line 1, column 3: expected a JSON value (invalid string: ill-formed UTF-8 byte), found \"\\xff\""},
      {"[\"abc",
       "line 1, column 6: expected a JSON value (invalid string: missing closing quote), found the end of the text"},
      {"[\"a; last read: '; expected b\"; x]", "line 1, column 31: expected ']', found \";\""},
      {"[\"'; expected out_of_range",
       "line 1, column 27: expected a JSON value (invalid string: missing closing quote), found the end of the text"},
      {"[-1, 0] 5", "line 1, column 9: expected end of input, found \"5\""},
      {"[-1, 1e999]", "line 1, column 10: expected a number of at most 64 bits, found \"1e999\""},
      {"-1 0 x", "line 1, column 6: expected an integer, found \"x\""},
      {"-1 0,,1", "line 1, column 6: expected an integer, found \",\""},
      {"-1 0,", "line 1, column 6: expected an integer, found the end of the text"},
      {"-1 0 1.5", "line 1, column 6: expected an integer, found \"1.5\""},
      {"-1 --1", "line 1, column 4: expected an integer, found \"--1\""},
      {"-1 99999999999999999999", "line 1, column 4: expected an integer, found \"99999999999999999999\""},
      {"<1,2", "line 1, column 5: expected \">\" after the widths"},
      {"<1,,2>", "line 1, column 4: expected an integer, found \",\""},
      {"<1,2>3>", "line 1, column 4: expected an integer, found \"2>3\""},
      {"[(0,), (0, 0)", "tuples: line 1, column 14: expected \",\" or \"]\", found the end of the text"},
      {"[(0,) (1,)]", "tuples: line 1, column 7: expected \",\" or \"]\", found \"(\""},
      {"[(0,), 1]", "tuples: line 1, column 8: expected a tuple or \"]\", found \"1\""},
      {"[(0,), (a,)]", "tuples: line 1, column 9: expected an integer of at most 18 digits or \")\", found \"a\""},
      {"[(0,), (1 2)]", "tuples: line 1, column 11: expected \",\" or \")\", found \"2\""},
      {"[(0,), (1)]", "tuples: line 1, column 8: in Python (1) is an integer: write (1,) for the tuple"},
      {"[(0,)] x", "tuples: line 1, column 8: expected nothing more, found \"x\""},
      {"[(1234567890123456789,)]",
       "tuples: line 1, column 3: expected an integer of at most 18 digits or \")\", found \"1\""},
      {"[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]", "nested too deep: expected at most 16 levels of arrays and objects"},
  };
  expect_messages(cases);
}

TEST(TreeErrors, Detection) {
  const Case cases[] = {
      {"[]",
       "the array is empty, which is choices of the root alone as well as an empty tree in any other form: "
       "name the form with --from"},
      {"[[1]]",
       "the array is [[1]], which is the mask of one node as well as one path of choices: name the form with --from"},
      {"[[-1], [-1]]",
       "the array is [[-1], [-1]], which is two parent arrays as well as next_token and next_sibling of "
       "one node (retrieve): name the form with --from"},
      {"[0, 0, 1]",
       "[0] = 0: a flat array starts with -1 (parents) or with 1 or more (widths); name the form with --from"},
      {"[-1, null]", "[1]: expected integers, arrays or strings, all of one kind, found null after -1"},
      {"[null]", "[0]: expected integers, arrays or strings, all of one kind, found null"},
      {"[true, false]", "[0]: expected integers, arrays or strings, all of one kind, found true"},
      {"0 0 1",
       "a plain list of numbers is a parent array and starts with -1, found 0; write widths as <1,1,3> or name "
       "the form with --from"},
      {"{}",
       "object: expected a member parents, choices, trees (tuples), next_token and next_sibling (retrieve), "
       "successors, mask or widths, found none"},
      {R"({"parent": [-1]})",
       "object: expected a member parents, choices, trees (tuples), next_token and next_sibling "
       "(retrieve), successors, mask or widths, found \"parent\""},
      {R"({"parents": [-1], "mask": [[1]]})",
       "members \"parents\" and \"mask\" are both trees: name the form with --from or a \"format\" member"},
      {R"({"parents": [-1], "parents": [-1, 0]})", "member \"parents\" appears twice: expected it once"},
      {R"({"format": "oak", "parents": [-1]})",
       "format: the form \"oak\" is unknown: expected one of parents, choices, tuples, retrieve, successors, mask, "
       "widths "
       "or detect"},
      {R"({"format": 3, "parents": [-1]})", "format: expected the name of a form, found 3"},
      {R"({"format": "choices", "parents": [-1]})",
       "object: expected a member choices (form choices), found \"format\", \"parents\""},
      {R"({"format": "choices", "choices": [[0]]})",
       "format: the text says choices, the caller asked for mask: drop one of the two", TreeFormat::mask},
      {R"({"next_token": [-1]})",
       "object: expected members next_token and next_sibling (form retrieve), found \"next_token\""},
      {R"({"trees": [{"parents": [-1]}, {"choices": []}]})",
       "trees[1] is in the form choices, the ones before in parents: expected one form in a text"},
      {R"({"trees": [{"parents": [-1]}, 5]})", "trees[1]: expected an object like the first, found 5"},
      {R"({"trees": [{"parents": [-1]}, {"parents": [-1, 4]}]})",
       "trees[1].parents[1] = 4: a parent must precede its child (expected 0 <= parent < 1)"},
      {R"({"trees": [{}]})",
       "trees[0]: expected a member parents, choices, trees (tuples), next_token and next_sibling "
       "(retrieve), successors, mask or widths, found none"},
      {"<1,2>", "<..> holds widths, not parents", TreeFormat::parents},
      {"-1 0", "a plain list of numbers holds parents or widths, not mask", TreeFormat::mask},
      {"[(0,)]", "the text is a Python list of tuples, not choices", TreeFormat::choices},
      {"\"[(0,)]\"", "the text is a string, which holds tuples, not choices", TreeFormat::choices},
      {"[[0], [0, 0], [1]]", "retrieve: expected [next_token, next_sibling], found an array of 3",
       TreeFormat::retrieve},
  };
  expect_messages(cases);
}

TEST(TreeErrors, Parents) {
  const Case cases[] = {
      {"[-1, 0, 7]", "parents[2] = 7: a parent must precede its child (expected 0 <= parent < 2)"},
      {"[-1, 2, 0]",
       "parents[1] = 2: a parent must precede its child (expected 0 <= parent < 1); renumber the nodes "
       "level by level: the same tree is the parent array [-1, 0, 1]"},
      {"[-1, 2, 1]", "parents[1] = 2: a parent must precede its child (expected 0 <= parent < 1)"},
      {"[-1, 0, -1]", "parents[2] = -1: a second root (node 0 is the root)"},
      {R"({"parents": [1, -1]})",
       "parents[0] = 1: the root's parent is -1; renumber the nodes level by level: the same "
       "tree is the parent array [-1, 0]"},
      {R"({"parents": [-1, 9223372036854775807]})",
       "parents[1] = 9223372036854775807: a parent must precede its child (expected 0 <= parent < 1)"},
      {R"({"parents": [-1, 18446744073709551615]})",
       "parents[1]: expected an integer (parents), found 18446744073709551615"},
      {R"({"parents": [-1, 0.0]})", "parents[1]: expected an integer (parents), found 0.0"},
      {R"({"parents": [-1, "a\u0000\""]})", "parents[1]: expected an integer (parents), found \"a\\x00\\\"\""},
      {R"({"parents": 5})", "parents: expected an array of parents, found 5"},
      {R"({"parents": []})", "parents is empty: expected 1 to 256 nodes"},
      {R"({"parents": [[-1], [-1, 0, 5]]})",
       "parents[1][2] = 5: a parent must precede its child (expected 0 <= parent < 2)"},
      {R"({"parents": [[-1], 3]})", "parents[1]: expected an array of parents, found 3"},
  };
  expect_messages(cases);
}

TEST(TreeErrors, Choices) {
  const Case cases[] = {
      {"[[0], [0, -2]]", "choices[1][1]: expected a child rank >= 0, found -2", TreeFormat::choices},
      {R"({"choices": [[0], [0, 0, 0]]})",
       "choices[1] = [0, 0, 0] needs its prefix [0, 0], which is not in the list: add it"},
      {"[[1], [0, 0]]", "choices[1] = [0, 0] needs its prefix [0], which is not in the list: add it"},
      {"[[0], [1], [0, 1], [0], [2]]", "choices[3] = [0] repeats choices[0]: expected each path once"},
      {R"({"choices": [[0], []]})", "choices[1]: expected at least one child rank; the root is implied"},
      {R"({"choices": [[0], 3]})", "choices[1]: expected an array of child ranks, found 3"},
      {R"({"choices": [[0], [true]]})", "choices[1][0]: expected an integer (child ranks), found true"},
      {R"({"choices": {"a": 1}})", "choices: expected an array of child-rank paths, found an object"},
      {R"({"trees": ["[(0,)]", "[(0, 0)]"]})",
       "trees[1][0] = [0, 0] needs its prefix [0], which is not in the list: add it"},
      {R"({"trees": ["[(0,)]", 4]})", "trees[1]: expected a string such as \"[(0,), (0, 0)]\", found 4"},
      {R"({"trees": []})", "trees is empty: expected at least one string of tuples"},
      {R"({"trees": ["0"]})",
       "trees[0]: line 1, column 1: expected a list of tuples such as [(0,), (0, 0)], found \"0\""},
      {"[(0,), (-1,)]", "tuples[1][0]: expected a child rank >= 0, found -1"},
      {"[(0,), ()]", "tuples[1]: expected at least one child rank; the root is implied"},
  };
  expect_messages(cases);
}

TEST(TreeErrors, Retrieve) {
  const auto rows = [](const char* token, const char* sibling) {
    return message(std::string("{\"next_token\": ") + token + ", \"next_sibling\": " + sibling + "}");
  };
  EXPECT_EQ(rows("[[-1], [1, 9]]", "[[-1], [-1, -1]]"), "f: next_token[1][1] = 9: expected -1 (none) or a node 1..1");
  EXPECT_EQ(rows("[1, -3]", "[-1, -1]"), "f: next_token[1] = -3: expected -1 (none) or a node 1..1");
  EXPECT_EQ(rows("[1, 99999999999]", "[-1, -1]"), "f: next_token[1] = 99999999999: expected -1 (none) or a node 1..1");
  EXPECT_EQ(rows("[1, 0]", "[-1, -1]"), "f: next_token[1] = 0: node 0 is the root, no link leads to it");
  EXPECT_EQ(rows("[1, -1]", "[1, -1]"), "f: next_sibling[0] = 1: expected -1, the root has no sibling");
  EXPECT_EQ(rows("[1, 2, -1]", "[-1, 2, -1]"), "f: next_sibling[1] = 2: node 2 is already linked by next_token[1]");
  EXPECT_EQ(rows("[1, -1, -1]", "[-1, -1, -1]"),
            "f: next_token, next_sibling: node 2 is not reached from the root; cut padding off, a row holds live nodes "
            "only");
  EXPECT_EQ(rows("[1, -1, 3, -1]", "[-1, -1, -1, -1]"),
            "f: next_token, next_sibling: node 2 is not reached from the root");
  EXPECT_EQ(
      rows("[1, -1, 3, 2]", "[-1, -1, -1, -1]"),
      "f: next_token, next_sibling: node 2 is not reached from the root (next_token[3] leads to it, in a circle or "
      "from such a node)");
  EXPECT_EQ(
      rows("[1, -1, -1, -1]", "[-1, -1, 3, 2]"),
      "f: next_token, next_sibling: node 2 is not reached from the root (next_sibling[3] leads to it, in a circle "
      "or from such a node)");
  EXPECT_EQ(
      rows("[[2, -1, 1]]", "[[-1, -1, -1]]"),
      "f: next_token[0][2] = 1: node 1 hangs under node 2, and a parent must precede its child; renumber the nodes "
      "level by level: the same tree is the parent array [-1, 0, 1]");
  EXPECT_EQ(rows("[1, -1]", "[-1]"),
            "f: next_token has 2 entries and next_sibling 1: expected one of each for every node");
  EXPECT_EQ(rows("[[-1], [-1]]", "[[-1]]"),
            "f: next_token has 2 rows and next_sibling 1: expected one of each for every tree");
  EXPECT_EQ(rows("[]", "[]"), "f: next_token is empty: expected at least one tree");
  EXPECT_EQ(rows("[[]]", "[[]]"), "f: next_token[0] is empty: expected 1 to 256 nodes");
  EXPECT_EQ(rows("3", "[]"), "f: next_token: expected an array of links, or one for each tree, found 3");
  EXPECT_EQ(rows("[-1]", "null"), "f: next_sibling: expected an array of links, or one for each tree, found null");
  EXPECT_EQ(rows("[[-1], 4]", "[[-1], [-1]]"),
            "f: next_token[1]: expected an array of first children, -1 for none, found 4");
  EXPECT_EQ(rows("[-1]", "[null]"), "f: next_sibling[0]: expected an integer (next siblings, -1 for none), found null");
}

TEST(TreeErrors, SuccessorsMaskWidths) {
  const Case cases[] = {
      {"[[1, 5], []]", "successors[0][1] = 5: expected a node 1..1 (there are 2 child lists)"},
      {"[[1], [0]]", "successors[1][0] = 0: node 0 is the root, nobody's child", TreeFormat::successors},
      {"[[1, 2], [2], []]", "successors[1][0] = 2: node 2 is already successors[0][1]"},
      {"[[1], [], []]", "successors: node 2 is in no child list"},
      {"[[2], [], [1]]",
       "successors[2][0] = 1: node 1 hangs under node 2, and a parent must precede its child; renumber "
       "the nodes level by level: the same tree is the parent array [-1, 0, 1]"},
      {"[[1], [1]]", "successors[1][0] = 1: node 1 is already successors[0][0]", TreeFormat::successors},
      {"[[1], [\"a\"], []]", "successors[1][0]: expected an integer (children), found \"a\""},
      {R"({"successors": []})", "successors is empty: expected 1 to 256 nodes"},
      {R"({"successors": 1})", "successors: expected an array with the child list of every node, found 1"},
      {R"({"mask": [[1, 0], [1]]})", "mask[1] has 1 entries: expected 2, one for each row (the matrix is square)"},
      {R"({"mask": [[1, 0], [1, 2]]})", "mask[1][1]: expected 0, 1, false or true, found 2"},
      {R"({"mask": [[1, 0], [1, null]]})", "mask[1][1]: expected 0, 1, false or true, found null"},
      {R"({"mask": [[1, 0], 7]})", "mask[1]: expected a row, found 7"},
      {"[[1, 0], [1, 0]]", "mask[1][1] = 0: expected 1, a node sees itself"},
      {"[[1, 1], [1, 1]]",
       "mask[0][1] = 1: node 0 sees node 1, which comes after it; ancestors come first: renumber the "
       "nodes level by level"},
      {"[[1, 0], [0, 1]]", "mask[1][0] = 0: expected 1, every node sees the root (node 0)"},
      {"[[1, 0, 0], [1, 1, 0], [0, 1, 1]]",
       "mask[2][0] = 0: node 2 sees node 1, its parent, so it sees what that node sees: expected 1"},
      {"[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]]",
       "mask[3][1] = 1: node 3 sees node 2, its parent, so it sees what that node sees: expected 0"},
      {R"({"mask": [[[1]], [[0]]]})", "mask[1][0][0] = 0: expected 1, a node sees itself"},
      {R"({"mask": [[[1]], 5]})", "mask[1]: expected a square matrix, found 5"},
      {R"({"mask": true})", "mask: expected a square matrix, or one for each tree, found true"},
      {R"({"mask": []})", "mask is empty: expected 1 to 256 nodes"},
      {"<1,0>", "widths[1]: expected at least 1 child for every node of level 1, found 0"},
      {"<16,16>",
       "widths[1] = 16: 16 nodes with 16 children each make more than 256 nodes (17 before this level); use "
       "smaller widths"},
      {"<256>",
       "widths[0] = 256: 1 nodes with 256 children each make more than 256 nodes (1 before this level); use "
       "smaller widths"},
      {"[1, 9223372036854775807]",
       "widths[1] = 9223372036854775807: 1 nodes with 9223372036854775807 children each make "
       "more than 256 nodes (2 before this level); use smaller widths"},
      {R"({"widths": [1, "2"]})", "widths[1]: expected an integer (children of each node of a level), found \"2\""},
  };
  expect_messages(cases);
}

std::string repeated(const char* piece, std::size_t times, const char* before, const char* between, const char* after) {
  std::string out = before;
  for (std::size_t i = 0; i < times; ++i) {
    if (i) out += between;
    out += piece;
  }
  return out + after;
}

TEST(TreeErrors, TooManyNodes) {
  EXPECT_EQ(message(repeated("0", 299, "-1 ", " ", "")),
            "f: parents has 300 nodes: expected 1 to 256; split the tree or draft fewer nodes");
  EXPECT_EQ(message(repeated("[0]", 300, "[", ",", "]"), TreeFormat::choices),
            "f: choices has 300 paths: expected at most 255, since the implied root is a node too; draft fewer nodes");
  EXPECT_EQ(message(repeated("(0,)", 256, "[", ",", "]")).substr(0, 27), "f: tuples has 256 paths: ex");
  EXPECT_EQ(message(repeated("[]", 300, "[", ",", "]")).substr(0, 31), "f: successors has 300 nodes: ex");
  EXPECT_EQ(message(repeated("[1]", 300, "[", ",", "]"), TreeFormat::mask).substr(0, 25), "f: mask has 300 nodes: ex");
  // 256 nodes are a tree in each.
  EXPECT_EQ(message(repeated("0", 255, "-1 ", " ", "")), "accepted");
  EXPECT_EQ(message("<255>"), "accepted");
}

TEST(TreeErrors, HostileTextsEndQuickly) {
  const auto start = std::chrono::steady_clock::now();
  const std::string huge(std::size_t{10} << 20, '[');
  EXPECT_EQ(message(huge), "f: the text has 10485760 bytes: expected at most 4194304");
  const std::size_t size = std::size_t{4} << 20;
  const std::string texts[] = {
      std::string(size, '['),
      std::string(size, '('),
      std::string(size, '{'),
      std::string(size, ' '),
      std::string(size, '1'),
      std::string(size, '\0'),
      repeated("a", size - 2, "\"", "", "\""),
      repeated("a", size - 2, "\"", "", ""),
      repeated("1", size - 1, "[", "", ""),
      repeated("0", size - 2, "[(", "", ""),
      repeated("0", 1 << 20, "[-1,", ",", "]"),
      repeated("0", 1 << 20, "-1 ", " ", ""),
      repeated("1", 1 << 20, "<", ",", ">"),
      repeated("[0]", 1 << 19, "[", ",", "]"),
      repeated("[]", 1 << 20, "[", ",", "]"),
      repeated("(0,)", 1 << 19, "[", ",", "]"),
      repeated("0", 1 << 20, "[(", ",", ",)]"),
      repeated("0", 1 << 20, "[[", ",", "]]"),
      repeated("\"\"", 1 << 19, "[", ",", "]"),
      repeated("\"a\":0", 1 << 18, "{", ",", "}"),
  };
  for (const std::string& source : texts) {
    const std::string found = message(source);
    EXPECT_NE(found, "accepted") << source.substr(0, 20);
    EXPECT_LT(found.size(), 700u) << source.substr(0, 20);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(TreeErrors, OriginStartsTheMessage) {
  EXPECT_EQ(parse_trees("x").error().message.substr(0, 8), "<text>: ");
  EXPECT_EQ(parse_trees("x", TreeFormat::detect, "dir/tree.json").error().message.substr(0, 15), "dir/tree.json: ");
}

}  // namespace
}  // namespace canopy
