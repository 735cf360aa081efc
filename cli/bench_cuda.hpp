// canopy bench --device cuda.
#pragma once

#include "command.hpp"

namespace canopy::cli {

struct DeviceBench {
  std::string implementation = "fast", jsonl;
  host::ProblemSpec spec;
  int repeat = 200, layers = 24;
  bool sweep = false, commit = false, json = false;
};
// `problem` is nullptr with --sweep and --commit, which make their own.
int bench_on_device(const DeviceBench& options, host::HostProblem* problem, const std::string& label);

}  // namespace canopy::cli
