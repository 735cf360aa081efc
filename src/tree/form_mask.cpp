// The visibility matrix: which nodes each node sees.
#include "message.hpp"
#include "tree/check.hpp"
#include "tree/forms.hpp"

namespace canopy::forms {
namespace {

// One row of the matrix as bits; entries are 0, 1, false or true.
Result<NodeSet> read_mask_row(json::Value value, std::size_t nodes, const std::string& label) {
  if (!value.is(json::Kind::array)) return Error::invalid(text(label, ": expected a row, found ", value.describe()));
  const std::vector<json::Value> entries = value.items();
  if (entries.size() != nodes) {
    return Error::invalid(text(label, " has ", entries.size(), " entries: expected ", nodes,
                               ", one for each row (the matrix is square)"));
  }
  NodeSet row{};
  for (std::size_t j = 0; j < nodes; ++j) {
    const bool flag = entries[j].is(json::Kind::boolean) || entries[j].is(json::Kind::integer);
    if (!flag || entries[j].number() < 0 || entries[j].number() > 1) {
      return Error::invalid(text(at(label, j), ": expected 0, 1, false or true, found ", entries[j].describe()));
    }
    if (entries[j].number()) row[j / 64] |= std::uint64_t{1} << (j % 64);
  }
  return row;
}

Result<Parents> parents_from_matrix(json::Value value, const std::string& label) {
  const std::vector<json::Value> rows = value.items();
  if (Error error = node_count_error(rows.size(), label); !error.ok()) return error;
  const int nodes = static_cast<int>(rows.size());
  std::vector<NodeSet> sees;
  Parents parents;
  for (int i = 0; i < nodes; ++i) {
    const std::string place = at(label, i);
    const Result<NodeSet> row = read_mask_row(rows[i], rows.size(), place);
    if (!row) return row.error();
    if (!contains(*row, i)) return Error::invalid(text(at(place, i), " = 0: expected 1, a node sees itself"));
    int parent = -1;  // the last node before i that i sees
    for (int j = 0; j < nodes; ++j) {
      if (!contains(*row, j) || j == i) continue;
      if (j > i) {
        return Error::invalid(text(at(place, j), " = 1: node ", i, " sees node ", j,
                                   ", which comes after it; ancestors come first: renumber the nodes level by level"));
      }
      parent = j;
    }
    if (i > 0 && parent < 0) {
      return Error::invalid(text(at(place, 0), " = 0: expected 1, every node sees the root (node 0)"));
    }
    for (int j = 0; j < i && i > 0; ++j) {
      if (contains(*row, j) == contains(sees[parent], j)) continue;
      return Error::invalid(text(at(place, j), " = ", contains(*row, j) ? 1 : 0, ": node ", i, " sees node ", parent,
                                 ", its parent, so it sees what that node sees: expected ", contains(*row, j) ? 0 : 1));
    }
    sees.push_back(*row);
    parents.push_back(parent);
  }
  return parents;
}

}  // namespace

Result<Forest> read_mask(json::Value value, const std::string& label) {
  if (!value.is(json::Kind::array)) {
    return Error::invalid(text(label, ": expected a square matrix, or one for each tree, found ", value.describe()));
  }
  const std::vector<json::Value> items = value.items();
  bool several = false;
  if (!items.empty() && items[0].is(json::Kind::array)) {
    const std::vector<json::Value> first = items[0].items();
    several = !first.empty() && first[0].is(json::Kind::array);
  }
  Forest forest;
  for (std::size_t i = 0; i < (several ? items.size() : 1); ++i) {
    const std::string place = several ? at(label, i) : label;
    const json::Value matrix = several ? items[i] : value;
    if (!matrix.is(json::Kind::array)) {
      return Error::invalid(text(place, ": expected a square matrix, found ", matrix.describe()));
    }
    Result<Parents> parents = parents_from_matrix(matrix, place);
    if (!parents) return parents.error();
    forest.push_back(std::move(*parents));
  }
  return forest;
}

}  // namespace canopy::forms
