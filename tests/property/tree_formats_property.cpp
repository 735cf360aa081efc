// Every form reads back what it wrote, and hostile bytes end in a tree or in an error.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "property/tree_generators.hpp"

namespace canopy {
namespace {

using test::any_tree;
using Ints = std::vector<std::int32_t>;

constexpr TreeFormat kForms[] = {TreeFormat::parents,    TreeFormat::choices, TreeFormat::tuples, TreeFormat::retrieve,
                                 TreeFormat::successors, TreeFormat::mask,    TreeFormat::widths};

// The tree numbered by depth, then by the path of child ranks: what choices and tuples keep of it.
Tree by_length_then_rank(const Tree& tree) {
  std::vector<Ints> path(tree.size());
  Ints children(tree.size(), 0), order(tree.size()), label(tree.size());
  for (int i = 1; i < tree.size(); ++i) {
    path[i] = path[tree.parents()[i]];
    path[i].push_back(children[tree.parents()[i]]++);
  }
  for (int i = 0; i < tree.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return path[a].size() != path[b].size() ? path[a].size() < path[b].size() : path[a] < path[b];
  });
  for (int n = 0; n < tree.size(); ++n) label[order[n]] = n;
  return *relabel(tree, label);
}

void expect_reads_back(const Tree& tree, TreeFormat format) {
  const auto written = format_tree(tree, format);
  RC_ASSERT(written.ok());
  const bool renumbers = format == TreeFormat::choices || format == TreeFormat::tuples || format == TreeFormat::widths;
  const Tree expected = renumbers ? by_length_then_rank(tree) : tree;
  for (const TreeFormat asked : {TreeFormat::detect, format}) {
    const auto read = parse_trees(*written, asked);
    RC_ASSERT(read.ok());
    RC_ASSERT(read->format == format);
    RC_ASSERT(read->trees.size() == 1u);
    RC_ASSERT(std::ranges::equal(read->trees[0].parents(), expected.parents()));
  }
}

RC_GTEST_PROP(FormatsProperty, ReadBackWhatWasWritten, ()) {
  const Tree tree = any_tree();
  for (const TreeFormat format : kForms) {
    if (format != TreeFormat::widths) expect_reads_back(tree, format);
  }
}

RC_GTEST_PROP(FormatsProperty, WidthsReadBack, ()) {
  const auto widths = *rc::gen::container<Ints>(*rc::gen::inRange(0, 6), rc::gen::inRange(1, 4));
  Ints parents = {-1}, labels;
  std::size_t first = 0;
  for (const int width : widths) {
    const std::size_t end = parents.size();
    if (end + (end - first) * width > kMaxNodes) break;
    for (std::size_t p = first; p < end; ++p) parents.insert(parents.end(), width, static_cast<int>(p));
    first = end;
  }
  const Tree tree = *Tree::from_parents(parents);
  expect_reads_back(tree, TreeFormat::widths);
  expect_reads_back(*relabel(tree, random_topological_labels(tree, *rc::gen::arbitrary<std::uint64_t>())),
                    TreeFormat::widths);
}

RC_GTEST_PROP(FormatsProperty, AFlippedMaskBitIsNeverTheSameTree, ()) {
  const Tree tree = any_tree(40);
  std::string written = *format_tree(tree, TreeFormat::mask);
  const int bit = *rc::gen::inRange(0, tree.size() * tree.size());
  std::size_t at = written.find("[[") - 1;
  for (int i = 0; i <= bit; ++i) at = written.find_first_of("01", at + 1);
  written[at] = written[at] == '0' ? '1' : '0';
  const auto read = parse_trees(written);
  if (read) RC_ASSERT(!std::ranges::equal(read->trees[0].parents(), tree.parents()));
}

// One byte of a good text changed, cut or doubled.
RC_GTEST_PROP(FormatsProperty, DamagedTextsEndInATreeOrAMessage, ()) {
  std::string source =
      *format_tree(any_tree(20), *rc::gen::elementOf(std::vector(std::begin(kForms), std::end(kForms) - 1)));
  const auto at = *rc::gen::inRange<std::size_t>(0, source.size());
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      source[at] = static_cast<char>(*rc::gen::arbitrary<unsigned char>());
      break;
    case 1:
      source.erase(at, *rc::gen::inRange<std::size_t>(1, 8));
      break;
    default:
      source.insert(at, source.substr(at, 8));
  }
  for (const TreeFormat format : kForms) {
    const auto read = parse_trees(source, format, "origin");
    if (read) {
      RC_ASSERT(!read->trees.empty());
    } else {
      RC_ASSERT(read.error().status == CANOPY_INVALID);
      RC_ASSERT(read.error().message.rfind("origin: ", 0) == 0);
    }
  }
}

RC_GTEST_PROP(FormatsProperty, TheDrawingHasEachNodeOnceAtItsDepth, ()) {
  const Tree tree = any_tree();
  const std::string drawing = ascii_tree(tree);
  std::size_t start = 0;
  for (const std::int32_t node : tree.dfs_order()) {
    const std::size_t end = drawing.find('\n', start);
    RC_ASSERT(end != std::string::npos);
    const std::string line = drawing.substr(start, end - start);
    const std::size_t digits = line.find_first_of("0123456789");
    RC_ASSERT(line.substr(digits) == std::to_string(node));
    // Three columns a level; a box character is three bytes of one column.
    const auto columns = std::count_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(digits),
                                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
    RC_ASSERT(columns == 3 * tree.depths()[node]);
    start = end + 1;
  }
  RC_ASSERT(start == drawing.size());
}

}  // namespace
}  // namespace canopy
