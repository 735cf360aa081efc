#include "host/tune_cells.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace canopy::host {

std::vector<Kind> kinds_of(const Timings& timings) {
  std::vector<Kind> kinds;
  std::set<int> named;
  bool stash = false;
  for (const Timing& t : timings.cells) {
    stash |= t.stash;
    if (!t.stash && t.precision != CANOPY_PRECISION_DEFAULT) named.insert(t.precision);
  }
  if (stash) kinds.push_back({.stash = true});
  for (const int precision : named) kinds.push_back({.precision = precision});
  kinds.push_back({});
  return kinds;
}

Cells cells_of(const Timings& timings, const Kind& kind) {
  Cells cells;
  for (const bool by_name : {true, false})
    for (const Timing& t : timings.cells) {
      if (t.stash != kind.stash || (t.precision == kind.precision) != by_name) continue;
      if (!by_name && std::find(t.same_as.begin(), t.same_as.end(), kind.precision) == t.same_as.end()) continue;
      const Size size{t.heads, t.nodes};
      const Variant variant{t.depth, t.variant};
      if (!by_name && (!cells.count(size) || !cells[size].count(variant))) continue;
      if (by_name)
        cells[size][variant][t.implementation] = t.median;
      else
        cells[size][variant].emplace(t.implementation, t.median);
    }
  return cells;
}

double best_of(const Cell& cell) {
  double best = HUGE_VAL;
  for (const auto& [name, median] : cell) best = std::min(best, median);
  return best;
}

Regrets regrets(const Variants& variants) {
  Regrets all;
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

bool can_be_kept(const Regrets& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& each) { return each.second.worst <= kMostTimes; });
}

Regrets::const_iterator choice_of(const Regrets& all) {
  const bool kept = can_be_kept(all);
  return std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) {
    return kept ? a.second.worst < b.second.worst : a.second.logs < b.second.logs;
  });
}

bool allowed(const Regrets& all, const std::string& name) {
  const auto own = all.find(name);
  if (own == all.end()) return false;
  return can_be_kept(all) ? own->second.worst <= kMostTimes : own == choice_of(all);
}

const std::string* taken_by(const std::vector<dispatch::Row>& rows, const Cell& cell, const dispatch::Asked& asked) {
  for (const dispatch::Row& row : rows) {
    if (!dispatch::holds(row, asked)) continue;
    if (const auto found = cell.find(row.implementation); found != cell.end()) return &found->first;
  }
  return nullptr;
}

}  // namespace canopy::host
