// From measured times to a dispatch table: which implementation runs for how many nodes and value heads, and how deep
// trees.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canopy/result.hpp"
#include "dispatch/table.hpp"

namespace canopy::host {

// The rule of the generated tables: on no measured cell may the table's choice take longer than this times the best.
inline constexpr double kMostTimes = 1.05;

// One measured cell of a registered implementation of verify.
struct Timing {
  std::string implementation;
  int precision = 0;         // a canopy_precision, as it was asked for
  std::vector<int> same_as;  // other precisions that would have run the same code
  int heads = 0, nodes = 0;  // B * HV, T
  std::string variant;       // the rest of the cell: tree, state, cache ...
  double median = 0;         // any unit
  int depth = 0;             // of the deepest node
  bool stash = false;        // u was stored too, in default precision
};

// A machine's cells, as result files or a run of `canopy tune` give them.
struct Timings {
  int device = CANOPY_CPU;
  std::string machine;
  int capability = 0;
  std::vector<Timing> cells;
};

// The cells of one device ("cpu", "cuda") in a result file (bench/schema.json), added to `into`; those of programs that
// are no implementation (floor, plan, peers), that only a caller who names them gets, and whose result was wrong are
// left out. A file of another machine than the cells before is an error.
Error read_timings(std::string_view text, std::string_view file, int device, Timings& into);

// The rows. Where T or heads fall between measured sizes, the next larger one decides; beyond the largest, the largest.
// Per (heads, T) the choice is the implementation whose worst ratio to the best of its cell is the least; where none
// keeps the rule, since the winner depends on the tree, it is the one with the least mean ratio. One within 2% of the
// best that is already the choice for the next larger T stays. Before them stand rows with a bound on the depth: for
// trees where that choice breaks the rule and another keeps it on all of their depth; as few and as wide as the rule
// allows. Calls that store u and explicit precisions have rows of their own where they were measured. Last come all
// implementations without a condition, for problems that the first choice refuses.
std::vector<dispatch::Row> rows_from(const Timings& timings);

// The worst cell of a table for callers who name the depth, and all that break the rule of kMostTimes: `unseen` where
// no choice by T, heads and depth keeps it. `worst_unnamed`: for callers who do not.
struct Verdict {
  double worst = 1, worst_unnamed = 1;
  std::string worst_cell;
  std::vector<std::string> broken, unseen;  // "T=16 heads=32 ...: cuda_fused takes 1.20 times cuda_serial_resident"
};
Verdict judge_table(const std::vector<dispatch::Row>& rows, const Timings& timings);

// As designated initialisers, for src/dispatch.
std::string format_rows(const std::vector<dispatch::Row>& rows);

}  // namespace canopy::host
