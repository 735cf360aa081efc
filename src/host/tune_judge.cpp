// What a dispatch table costs on the cells that were measured.
#include <algorithm>
#include <cmath>

#include "host/tune_cells.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

std::string where(Size size, const Variant& variant) {
  return text("T=", size.nodes, " heads=", size.heads, " ", variant.text);
}

std::string ratio_text(double ratio) {
  const int hundredths = static_cast<int>(std::lround(ratio * 100));
  return text(hundredths / 100, ".", hundredths % 100 < 10 ? "0" : "", hundredths % 100);
}

}  // namespace

Verdict judge_table(const std::vector<dispatch::Row>& rows, const Timings& timings) {
  Verdict verdict;
  std::vector<Kind> kinds = kinds_of(timings);
  std::rotate(kinds.rbegin(), kinds.rbegin() + 1, kinds.rend());  // the default is spoken of first
  for (const Kind& kind : kinds)
    for (const auto& [size, variants] : cells_of(timings, kind)) {
      const auto whole = regrets(variants);
      for (const auto& [variant, cell] : variants) {
        const std::string cell_name = where(size, variant);
        const std::string* const chosen = taken_by(rows, cell, kind.asked(size.nodes, size.heads, variant.depth));
        const std::string* const unnamed = taken_by(rows, cell, kind.asked(size.nodes, size.heads, 0));
        if (!chosen || !unnamed) {
          verdict.broken.push_back(text(cell_name, ": no row leads to anything that was measured"));
          continue;
        }
        const double best = best_of(cell), ratio = cell.at(*chosen) / best, ratio_unnamed = cell.at(*unnamed) / best;
        const auto winner = std::min_element(cell.begin(), cell.end(),
                                             [](const auto& a, const auto& b) { return a.second < b.second; });
        const auto says = [&](const std::string& name, double times) {
          return text(name, " takes ", ratio_text(times), " times ", winner->first);
        };
        verdict.worst_unnamed = std::max(verdict.worst_unnamed, ratio_unnamed);
        if (ratio > verdict.worst) verdict.worst = ratio, verdict.worst_cell = cell_name;
        if (ratio_unnamed > kMostTimes && can_be_kept(whole) && whole.count(*unnamed))
          verdict.broken.push_back(text(cell_name, ", no depth named: ", says(*unnamed, ratio_unnamed)));
        if (ratio <= kMostTimes) continue;
        Variants alike;  // the trees of this depth
        for (const auto& [other, times] : variants)
          if (other.depth == variant.depth) alike.emplace(other, times);
        const auto all = regrets(alike);
        const bool unseen =
            !can_be_kept(all) && (allowed(all, *chosen) || (!whole.empty() && *chosen == choice_of(whole)->first));
        (unseen ? verdict.unseen : verdict.broken).push_back(text(cell_name, ": ", says(*chosen, ratio)));
      }
    }
  return verdict;
}

}  // namespace canopy::host
