// The dispatcher's tables: plain rows, read from the .inc files beside this header.
#pragma once

#include <climits>
#include <span>

#include "canopy/problem.hpp"

namespace canopy::dispatch {

struct Row {
  int min_nodes = 0, max_nodes = INT_MAX;
  int min_batch = 0, max_batch = INT_MAX;
  int method = -1;  // commit only: a canopy_commit_method, -1 any
  const char* implementation = nullptr;
};

struct Table {
  const char* name;  // "cpu table"
  std::span<const Row> rows;
};

// Empty for a device that this build has no table for.
Table verify_table(int device);
Table commit_table(int device);

bool holds(const Row& row, const Problem& problem, int method);
// "nodes >= 4 and batch <= 2", "always".
std::string condition(const Row& row);

}  // namespace canopy::dispatch
