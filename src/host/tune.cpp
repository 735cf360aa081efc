#include "host/tune.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "dispatch/file.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

using dispatch::Row;

constexpr double kNoise = 1.02;  // an implementation this close to the best is as good

struct Size {
  int heads, nodes;
  auto operator<=>(const Size&) const = default;
};
using Cell = std::map<std::string, double>;                 // implementation -> median
using Cells = std::map<Size, std::map<std::string, Cell>>;  // by size and variant

// The cells that a request of `precision` is decided by: where a precision was asked for by name, those where somebody
// was asked; elsewhere only whose default happens to be the same was measured, not what else there is.
Cells cells_of(const Timings& timings, int precision) {
  Cells cells;
  for (const bool by_name : {true, false})
    for (const Timing& t : timings.cells) {
      if ((t.precision == precision) != by_name) continue;
      if (!by_name && std::find(t.same_as.begin(), t.same_as.end(), precision) == t.same_as.end()) continue;
      const Size size{t.heads, t.nodes};
      if (!by_name && (!cells.count(size) || !cells[size].count(t.variant))) continue;
      if (by_name)
        cells[size][t.variant][t.implementation] = t.median;
      else
        cells[size][t.variant].emplace(t.implementation, t.median);
    }
  return cells;
}

double best_of(const Cell& cell) {
  double best = HUGE_VAL;
  for (const auto& [name, median] : cell) best = std::min(best, median);
  return best;
}

// Ratios to the best over the variants of a size, of every implementation that was measured on all of them.
struct Regret {
  double worst = 1, logs = 0;  // logs: the sum of the ratios' logarithms
};
std::map<std::string, Regret> regrets(const std::map<std::string, Cell>& variants) {
  std::map<std::string, Regret> all;
  for (const auto& [name, median] : variants.begin()->second) all[name] = {};
  for (const auto& [variant, cell] : variants) {
    for (auto it = all.begin(); it != all.end();) {
      const auto found = cell.find(it->first);
      if (found == cell.end()) {
        it = all.erase(it);
        continue;
      }
      const double ratio = found->second / best_of(cell);
      it->second.worst = std::max(it->second.worst, ratio);
      it->second.logs += std::log(ratio);
      ++it;
    }
  }
  return all;
}

// Whether one of them keeps the rule on all trees of the size.
bool can_be_kept(const std::map<std::string, Regret>& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each.second.worst <= kMostTimes; });
}

// The least worst ratio where that keeps the rule; else what is best on the whole.
std::map<std::string, Regret>::const_iterator choice_of(const std::map<std::string, Regret>& all) {
  const bool kept = can_be_kept(all);
  return std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return kept ? a.second.worst < b.second.worst : a.second.logs < b.second.logs;
  });
}

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
  std::vector<std::pair<int, std::map<std::string, Regret>>> sizes;
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

const char* choice_at(const std::vector<Row>& rows, Size size) {
  for (const Row& row : rows)
    if (size.nodes >= row.min_nodes && size.nodes <= row.max_nodes && size.heads >= row.min_heads &&
        size.heads <= row.max_heads)
      return row.implementation;
  return nullptr;
}

// Rows that change no choice go, from the top.
void drop_idle(std::vector<Row>& rows, const Cells& cells) {
  std::set<int> heads{INT_MAX}, nodes{256};
  for (const auto& [size, variants] : cells) {
    heads.insert({size.heads, size.heads + 1});
    nodes.insert({size.nodes, size.nodes + 1});
  }
  const auto same = [&](const std::vector<Row>& a, const std::vector<Row>& b) {
    for (const int h : heads)
      for (const int n : nodes)
        if (choice_at(a, {h, n}) != choice_at(b, {h, n})) return false;
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

// Rows for one precision (-1: any).
std::vector<Row> rows_of(const Cells& cells, int precision) {
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
      Row row;
      row.precision = precision;
      if (b + 1 < bands.size()) row.max_heads = bands[b].first;
      if (r + 1 < bands[b].second.size()) row.max_nodes = bands[b].second[r].nodes;
      row.implementation = kept(bands[b].second[r].choice);
      rows.push_back(row);
    }
  drop_idle(rows, cells);
  return rows;
}

std::string where(Size size, const std::string& variant) {
  return text("T=", size.nodes, " heads=", size.heads, " ", variant);
}

std::string ratio_text(double ratio) {
  const int hundredths = static_cast<int>(std::lround(ratio * 100));
  return text(hundredths / 100, ".", hundredths % 100 < 10 ? "0" : "", hundredths % 100);
}

// Precisions that were asked for by name.
std::set<int> explicit_precisions(const Timings& timings) {
  std::set<int> asked;
  for (const Timing& t : timings.cells)
    if (t.precision != CANOPY_PRECISION_DEFAULT) asked.insert(t.precision);
  return asked;
}

}  // namespace

std::vector<Row> rows_from(const Timings& timings) {
  std::vector<Row> rows;
  for (const int precision : explicit_precisions(timings))
    for (const Row& row : rows_of(cells_of(timings, precision), precision)) rows.push_back(row);
  const Cells cells = cells_of(timings, CANOPY_PRECISION_DEFAULT);
  for (const Row& row : rows_of(cells, -1)) rows.push_back(row);

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

Verdict judge_table(const std::vector<Row>& rows, const Timings& timings) {
  Verdict verdict;
  std::set<int> asked = explicit_precisions(timings);
  asked.insert(CANOPY_PRECISION_DEFAULT);
  for (const int precision : asked)
    for (const auto& [size, variants] : cells_of(timings, precision)) {
      const auto all = regrets(variants);
      const bool depends = !all.empty() && !can_be_kept(all);  // on the tree, which the table does not see
      for (const auto& [variant, cell] : variants) {
        const std::string *chosen = nullptr, *best = nullptr;
        for (const auto& [name, median] : cell)
          if (!best || median < cell.at(*best)) best = &name;
        for (const Row& row : rows) {
          if (size.nodes < row.min_nodes || size.nodes > row.max_nodes || size.heads < row.min_heads ||
              size.heads > row.max_heads || (row.precision >= 0 && row.precision != precision))
            continue;
          // What was not measured here was refused here, or comes after what was.
          const auto found = cell.find(row.implementation);
          if (found == cell.end()) continue;
          chosen = &found->first;
          break;
        }
        const std::string cell_name = where(size, variant);
        if (!chosen) {
          verdict.broken.push_back(text(cell_name, ": no row leads to anything that was measured"));
          continue;
        }
        const double ratio = cell.at(*chosen) / cell.at(*best);
        if (ratio > verdict.worst) verdict.worst = ratio, verdict.worst_cell = cell_name;
        if (ratio > kMostTimes)
          (depends && *chosen == choice_of(all)->first ? verdict.by_tree : verdict.broken)
              .push_back(text(cell_name, ": ", *chosen, " takes ", ratio_text(ratio), " times ", *best));
      }
    }
  return verdict;
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
    if (row.precision >= 0) out += text(".precision = CANOPY_PRECISION_", precisions[row.precision], ", ");
    out += text(".implementation = \"", row.implementation, "\"},\n");
  }
  return out;
}

}  // namespace canopy::host
