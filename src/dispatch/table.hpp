// The dispatcher's tables: plain rows. The built-in ones are the .inc files beside this header; the user's own come from
// the file that CANOPY_DISPATCH names (docs/benchmarks.md, "The dispatcher").
#pragma once

#include <climits>
#include <span>
#include <string>

#include "canopy/problem.hpp"

namespace canopy::dispatch {

// Bounds are inclusive. heads = batch * heads_v: the value heads of the batch, which are what the work is spread over. A row
// with a bound on the depth holds only where the caller has named one (canopy_verify_params::max_depth).
struct Row {
  int min_nodes = 0, max_nodes = INT_MAX;
  int min_heads = 0, max_heads = INT_MAX;
  int min_depth = 0, max_depth = INT_MAX;
  int precision = -1;  // a canopy_precision, -1 any
  bool stash = false;  // only calls that store u, as Asked::stash says
  int method = -1;     // commit only: a canopy_commit_method, -1 any
  const char* implementation = nullptr;
};

struct Table {
  const char* name;  // "cpu table", "cuda table of NVIDIA H200"
  std::span<const Row> rows;
  const char* measured_on = nullptr;  // another machine's name when this one has no table of its own
};

// What a table is chosen by: "NVIDIA H200" and 90, or the CPU's model name and 0.
struct Machine {
  std::string name;
  int capability = 0;
};
// Of the current CUDA device, or the CPU. Asked of the system once.
const Machine& machine(int device);

// The table for this machine: the user's if it holds one of the machine's name; else the built-in one of that name;
// else of the same compute capability; else of the newest GPU that is not newer; else the first. An error if the user's
// file is bad. Empty for a device that this build has nothing for.
Result<Table> verify_table(int device);
Table commit_table(int device);

// A measured GPU's rows.
struct Gpu {
  const char *name, *title;
  int capability;
  std::span<const Row> rows;
};
// The rule above for built-in tables; `gpus` is not empty.
const Gpu& nearest(std::span<const Gpu> gpus, const Machine& machine);

// What a request is looked up by.
struct Asked {
  int nodes = 0;
  std::int64_t heads = 0;
  int depth = 0;  // 0: unknown
  int precision = CANOPY_PRECISION_DEFAULT;
  int method = -1;     // -1: not a commit
  bool stash = false;  // u is stored too, in default precision on a GPU
};
bool holds(const Row& row, const Asked& asked);
// "nodes >= 4 and heads <= 64", "always": as explain says it and as files write it.
std::string condition(const Row& row);

}  // namespace canopy::dispatch
