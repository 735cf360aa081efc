// Trees to text: wrapped JSON objects that parse_trees reads back.
#include "canopy/tree.hpp"
#include "message.hpp"

namespace canopy {
namespace {

using Numbers = std::vector<std::int32_t>;

template <class Row>
std::string list(const std::vector<Row>& rows, const char* separator, std::string (*show)(const Row&)) {
  std::string out = "[";
  for (std::size_t i = 0; i < rows.size(); ++i) out += (i ? separator : "") + show(rows[i]);
  return out + "]";
}
std::string number(const std::int32_t& value) { return std::to_string(value); }
std::string numbers(const Numbers& values) { return list(values, ", ", number); }
std::string tuple(const Numbers& values) {
  std::string out = "(";
  for (std::size_t i = 0; i < values.size(); ++i) out += text(i ? ", " : "", values[i]);
  return out + (values.size() == 1 ? ",)" : ")");
}

// Child-rank paths of all nodes but the root, by length, then by rank: the engines' numbering.
std::vector<Numbers> rank_paths(const Tree& tree) {
  std::vector<Numbers> by_node(tree.size());
  std::vector<std::int32_t> children(tree.size(), 0);
  for (int i = 1; i < tree.size(); ++i) {
    const std::int32_t parent = tree.parents()[i];
    by_node[i] = by_node[parent];
    by_node[i].push_back(children[parent]++);
  }
  // Depth-first order sorts the nodes of one level by rank.
  std::vector<std::vector<std::int32_t>> levels(tree.depth() + 1);
  for (const std::int32_t node : tree.dfs_order()) levels[tree.depths()[node]].push_back(node);
  std::vector<Numbers> paths;
  for (int d = 1; d <= tree.depth(); ++d) {
    for (const std::int32_t node : levels[d]) paths.push_back(std::move(by_node[node]));
  }
  return paths;
}

std::vector<Numbers> child_lists(const Tree& tree) {
  std::vector<Numbers> lists(tree.size());
  for (int i = 1; i < tree.size(); ++i) lists[tree.parents()[i]].push_back(i);
  return lists;
}

std::string retrieve(const Tree& tree) {
  Numbers next_token(tree.size(), -1), next_sibling(tree.size(), -1);
  for (const Numbers& children : child_lists(tree)) {
    for (std::size_t j = 0; j < children.size(); ++j) {
      (j == 0 ? next_token[tree.parents()[children[0]]] : next_sibling[children[j - 1]]) = children[j];
    }
  }
  return text("{\"format\": \"retrieve\", \"next_token\": [", numbers(next_token), "], \"next_sibling\": [",
              numbers(next_sibling), "]}");
}

std::string mask(const Tree& tree) {
  std::vector<Numbers> rows(tree.size(), Numbers(tree.size(), 0));
  for (int i = 0; i < tree.size(); ++i) {
    for (int j = 0; j <= i; ++j) rows[i][j] = j == i || contains(tree.ancestors(i), j);
  }
  return text("{\"format\": \"mask\", \"mask\": ", list(rows, ",\n", numbers), "}");
}

// Only a tree whose levels are uniform has widths.
Result<std::string> widths(const Tree& tree) {
  const std::vector<Numbers> children = child_lists(tree);
  Numbers widths(tree.depth(), 0);
  std::vector<std::int32_t> first(tree.depth() + 1, -1);  // the level's first node, to compare with
  for (const std::int32_t node : tree.level_order()) {
    const std::int32_t d = tree.depths()[node];
    const auto count = static_cast<std::int32_t>(children[node].size());
    if (first[d] < 0) {
      first[d] = node;
      if (d < tree.depth()) widths[d] = count;
    } else if (children[first[d]].size() != children[node].size()) {
      return Error::unsupported(text("the tree has no level widths: on level ", d, " node ", first[d], " has ",
                                     children[first[d]].size(), " children and node ", node, " has ", count,
                                     "; write another form"));
    }
  }
  return text("{\"format\": \"widths\", \"widths\": ", numbers(widths), "}");
}

}  // namespace

Result<std::string> format_tree(const Tree& tree, TreeFormat format) {
  switch (format) {
    case TreeFormat::parents:
      return text("{\"format\": \"parents\", \"parents\": ", numbers({tree.parents().begin(), tree.parents().end()}),
                  "}");
    case TreeFormat::choices:
      return text("{\"format\": \"choices\", \"choices\": ", list(rank_paths(tree), ", ", numbers), "}");
    case TreeFormat::tuples:
      return text("{\"format\": \"tuples\", \"trees\": [\"", list(rank_paths(tree), ", ", tuple), "\"]}");
    case TreeFormat::retrieve:
      return retrieve(tree);
    case TreeFormat::successors:
      return text("{\"format\": \"successors\", \"successors\": ", list(child_lists(tree), ", ", numbers), "}");
    case TreeFormat::mask:
      return mask(tree);
    case TreeFormat::widths:
      return widths(tree);
    case TreeFormat::detect:
      break;
  }
  return Error::invalid(
      "detect is a way to read: name the form to write (parents, choices, tuples, retrieve, "
      "successors, mask, widths)");
}

}  // namespace canopy
