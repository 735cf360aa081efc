#include "host/tune.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "host/tune_cells.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

using dispatch::Row;

constexpr double kNoise = 1.02;  // an implementation this close to the best is as good

// Row names live as long as the program: tables are few.
const char* kept(const std::string& name) {
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

struct Reach {
  int nodes;  // up to this T
  std::string choice;
  bool operator==(const Reach&) const = default;
};

// The choices of one number of heads, by T from small to large.
std::vector<Reach> reaches(const Cells& cells, int heads) {
  std::vector<std::pair<int, Regrets>> sizes;
  for (const auto& [size, variants] : cells)
    if (size.heads == heads) sizes.emplace_back(size.nodes, regrets(variants));
  std::vector<Reach> out;
  for (auto it = sizes.rbegin(); it != sizes.rend(); ++it) {
    const auto& all = it->second;
    if (all.empty()) continue;
    auto best = choice_of(all);
    if (!out.empty())
      if (const auto same = all.find(out.back().choice); same != all.end() && same->second.worst <= kNoise) best = same;
    if (out.empty() || out.back().choice != best->first) out.push_back({it->first, best->first});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

// Rows that change no choice go, from the top; all are of one kind and of any depth.
void drop_idle(std::vector<Row>& rows, const Cells& cells, const Kind& kind) {
  std::set<int> heads{INT_MAX}, nodes{256};
  for (const auto& [size, variants] : cells) {
    heads.insert({size.heads, size.heads + 1});
    nodes.insert({size.nodes, size.nodes + 1});
  }
  const auto choice = [&](const std::vector<Row>& list, int h, int n) -> const char* {
    for (const Row& row : list)
      if (dispatch::holds(row, kind.asked(n, h, 0))) return row.implementation;
    return nullptr;
  };
  const auto same = [&](const std::vector<Row>& a, const std::vector<Row>& b) {
    for (const int h : heads)
      for (const int n : nodes)
        if (choice(a, h, n) != choice(b, h, n)) return false;
    return true;
  };
  for (std::size_t i = 0; i < rows.size();) {
    std::vector<Row> fewer = rows;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (same(rows, fewer))
      rows = std::move(fewer);
    else
      ++i;
  }
}

// Rows for one kind of call, of any depth.
std::vector<Row> rows_of(const Cells& cells, const Kind& kind) {
  std::vector<std::pair<int, std::vector<Reach>>> bands;
  std::set<int> heads;
  for (const auto& [size, variants] : cells) heads.insert(size.heads);
  for (const int h : heads) {
    auto reach = reaches(cells, h);
    if (reach.empty()) continue;
    const auto choices = [](std::vector<Reach> list) { return list.back().nodes = INT_MAX, list; };
    if (!bands.empty() && choices(bands.back().second) == choices(reach))
      bands.back().first = h;
    else
      bands.emplace_back(h, std::move(reach));
  }
  std::vector<Row> rows;
  for (std::size_t b = 0; b < bands.size(); ++b)
    for (std::size_t r = 0; r < bands[b].second.size(); ++r) {
      Row row = kind.row();
      if (b + 1 < bands.size()) row.max_heads = bands[b].first;
      if (r + 1 < bands[b].second.size()) row.max_nodes = bands[b].second[r].nodes;
      row.implementation = kept(bands[b].second[r].choice);
      rows.push_back(row);
    }
  drop_idle(rows, cells, kind);
  return rows;
}

// The trees of one size and depth.
struct Group {
  Size size;
  int depth;
  Variants variants;
  Regrets all;     // of the variants
  double now = 1;  // the worst ratio of the rows without a depth; infinite where none was measured

  dispatch::Asked asked(const Kind& kind) const { return kind.asked(size.nodes, size.heads, depth); }
};

std::vector<Group> groups_of(const Cells& cells, const std::vector<Row>& rows, const Kind& kind) {
  std::vector<Group> groups;
  for (const auto& [size, variants] : cells) {
    std::map<int, Variants> by_depth;
    for (const auto& [variant, cell] : variants) by_depth[variant.depth].emplace(variant, cell);
    for (auto& [depth, own] : by_depth) {
      if (depth == 0) continue;  // a single node; and 0 says that no depth is named
      Group group{size, depth, std::move(own), {}, 1};
      group.all = regrets(group.variants);
      for (const auto& [variant, cell] : group.variants) {
        const std::string* chosen = taken_by(rows, cell, kind.asked(size.nodes, size.heads, 0));
        group.now = std::max(group.now, chosen ? cell.at(*chosen) / best_of(cell) : HUGE_VAL);
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

// Whether a row may decide every measured group within its bounds.
bool fits(const Row& row, const std::vector<Group>& groups, const Kind& kind) {
  return std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
    return !dispatch::holds(row, group.asked(kind)) || allowed(group.all, row.implementation);
  });
}

// The next smaller of the measured numbers, and one more; 0 if there is none.
int after_smaller(const std::set<int>& numbers, int number) {
  const auto it = numbers.find(number);
  return it == numbers.begin() ? 0 : *std::prev(it) + 1;
}
int up_to(const std::set<int>& numbers, int number) { return number == *numbers.rbegin() ? INT_MAX : number; }

// Rows for named depths, to stand before `rows`: for groups where those break the rule and one implementation keeps it,
// or breaks it by less.
std::vector<Row> depth_rows(const Cells& cells, const std::vector<Row>& rows, const Kind& kind) {
  const std::vector<Group> groups = groups_of(cells, rows, kind);
  std::vector<Row> found;
  for (const Group& group : groups) {
    if (group.now <= kMostTimes || group.all.empty()) continue;
    const auto better = choice_of(group.all);
    if (better->second.worst >= group.now) continue;
    std::set<int> heads, nodes, depths;
    for (const Group& other : groups) {
      heads.insert(other.size.heads);
      if (other.size.heads == group.size.heads) nodes.insert(other.size.nodes);
      if (other.size == group.size) depths.insert(other.depth);
    }
    Row row = kind.row();
    row.min_heads = after_smaller(heads, group.size.heads), row.max_heads = up_to(heads, group.size.heads);
    row.min_nodes = after_smaller(nodes, group.size.nodes), row.max_nodes = up_to(nodes, group.size.nodes);
    row.min_depth = after_smaller(depths, group.depth), row.max_depth = group.depth;
    row.implementation = kept(better->first);
    // Bounds that the measured trees do not ask for go, but one on the depth stays.
    for (auto& [bound, none] : std::initializer_list<std::pair<int Row::*, int>>{
             {&Row::min_depth, 0}, {&Row::max_depth, INT_MAX}, {&Row::min_heads, 0}, {&Row::min_nodes, 0}}) {
      Row wider = row;
      wider.*bound = none;
      const bool some_depth = wider.min_depth > 0 || wider.max_depth < INT_MAX;
      if (some_depth && fits(wider, groups, kind)) row = wider;
    }
    found.push_back(row);
  }
  const auto hull = [](const Row& a, const Row& b) {
    Row both = a;
    both.min_heads = std::min(a.min_heads, b.min_heads), both.max_heads = std::max(a.max_heads, b.max_heads);
    both.min_nodes = std::min(a.min_nodes, b.min_nodes), both.max_nodes = std::max(a.max_nodes, b.max_nodes);
    both.min_depth = std::min(a.min_depth, b.min_depth), both.max_depth = std::max(a.max_depth, b.max_depth);
    return both;
  };
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = i + 1; j < found.size();) {
      const Row both = hull(found[i], found[j]);
      const bool some_depth = both.min_depth > 0 || both.max_depth < INT_MAX;
      if (found[i].implementation != found[j].implementation || !some_depth || !fits(both, groups, kind)) {
        ++j;
        continue;
      }
      found[i] = both;
      found.erase(found.begin() + static_cast<std::ptrdiff_t>(j));
      j = i + 1;
    }
  // What another row decides as well goes.
  for (std::size_t i = 0; i < found.size();) {
    std::vector<Row> fewer = found;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    std::vector<Row> all = fewer;
    all.insert(all.end(), rows.begin(), rows.end());
    const bool idle = std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
      if (!dispatch::holds(found[i], group.asked(kind))) return true;
      const std::string* chosen = taken_by(all, group.variants.begin()->second, group.asked(kind));
      return chosen && allowed(group.all, *chosen);
    });
    if (idle)
      found = std::move(fewer);
    else
      ++i;
  }
  return found;
}

}  // namespace

std::vector<Row> rows_from(const Timings& timings) {
  std::vector<Row> rows;
  for (const Kind& kind : kinds_of(timings)) {
    const Cells cells = cells_of(timings, kind);
    const std::vector<Row> plain = rows_of(cells, kind), deep = depth_rows(cells, plain, kind);
    for (const auto& list : {deep, plain}) rows.insert(rows.end(), list.begin(), list.end());
  }
  const Cells cells = cells_of(timings, {});

  // Geometric mean of the ratios to the best; an implementation that refuses many shapes is not the first to fall back
  // on.
  std::map<std::string, std::pair<double, int>> mean;
  std::size_t shapes = 0;
  for (const auto& [size, variants] : cells)
    for (const auto& [variant, cell] : variants) {
      ++shapes;
      for (const auto& [name, median] : cell) mean[name].first += std::log(median / best_of(cell)), ++mean[name].second;
    }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, sum] : mean)
    order.emplace_back(sum.first / sum.second + 10.0 * (1 - double(sum.second) / double(shapes)), name);
  std::sort(order.begin(), order.end());
  for (const auto& [score, name] : order) {
    Row row;
    row.implementation = kept(name);
    if (rows.empty() || dispatch::condition(rows.back()) != "always" ||
        rows.back().implementation != row.implementation)
      rows.push_back(row);
  }
  return rows;
}

std::string format_rows(const std::vector<Row>& rows) {
  constexpr const char* precisions[] = {"DEFAULT", "FP32", "PRECISE", "HALF", "FAST"};
  std::string out;
  for (const Row& row : rows) {
    out += "{";  // in the order of their declaration
    if (row.min_nodes > 0) out += text(".min_nodes = ", row.min_nodes, ", ");
    if (row.max_nodes < INT_MAX) out += text(".max_nodes = ", row.max_nodes, ", ");
    if (row.min_heads > 0) out += text(".min_heads = ", row.min_heads, ", ");
    if (row.max_heads < INT_MAX) out += text(".max_heads = ", row.max_heads, ", ");
    if (row.min_depth > 0) out += text(".min_depth = ", row.min_depth, ", ");
    if (row.max_depth < INT_MAX) out += text(".max_depth = ", row.max_depth, ", ");
    if (row.precision >= 0) out += text(".precision = CANOPY_PRECISION_", precisions[row.precision], ", ");
    if (row.stash) out += ".stash = true, ";
    out += text(".implementation = \"", row.implementation, "\"},\n");
  }
  return out;
}

}  // namespace canopy::host
