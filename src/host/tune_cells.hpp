// Measured cells as rows and their judge see them: by what a call asks for, then by size, then by tree.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/tune.hpp"

namespace canopy::host {

// What a call asks a table for besides its size: a precision by name or the default; or, by default, o and u.
struct Kind {
  int precision = CANOPY_PRECISION_DEFAULT;
  bool stash = false;

  // The lookup of such a call: dispatch::asked() of 16-bit inputs.
  dispatch::Asked asked(int nodes, int heads, int depth) const {
    return {.nodes = nodes,
            .heads = heads,
            .depth = depth,
            .precision = stash ? CANOPY_PRECISION_PRECISE : precision,
            .stash = stash};
  }
  // A row for such calls alone; those of the default, without a stash, serve what no other row does.
  dispatch::Row row() const {
    return {.precision = precision == CANOPY_PRECISION_DEFAULT ? -1 : precision, .stash = stash};
  }
};
// In the order in which tables have their rows: calls that store u, precisions, the default.
std::vector<Kind> kinds_of(const Timings& timings);

struct Size {
  int heads, nodes;
  auto operator<=>(const Size&) const = default;
};
struct Variant {
  int depth;
  std::string text;
  auto operator<=>(const Variant&) const = default;
};
using Cell = std::map<std::string, double>;  // implementation -> median
using Variants = std::map<Variant, Cell>;
using Cells = std::map<Size, Variants>;

// The cells that a kind of call is decided by: where a precision was asked for by name, those where somebody
// was asked; elsewhere only whose default happens to be the same was measured, not what else there is.
Cells cells_of(const Timings& timings, const Kind& kind);
double best_of(const Cell& cell);

// Ratios to the best over the variants of a size, of every implementation that was measured on all of them.
struct Regret {
  double worst = 1, logs = 0;  // logs: the sum of the ratios' logarithms
};
using Regrets = std::map<std::string, Regret>;
Regrets regrets(const Variants& variants);

// Whether one of them keeps the rule on all trees of the size.
bool can_be_kept(const Regrets& all);
// The least worst ratio where that keeps the rule; else what is best on the whole.
Regrets::const_iterator choice_of(const Regrets& all);
// Whether a choice may stand for trees: it keeps the rule, or nobody does and it is the best on the whole.
bool allowed(const Regrets& all, const std::string& name);

// The first row's choice that was measured: what was not was refused, or comes after what was.
const std::string* taken_by(const std::vector<dispatch::Row>& rows, const Cell& cell, const dispatch::Asked& asked);

}  // namespace canopy::host
