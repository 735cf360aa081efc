// What canopy bench's measurements on a GPU share.
#pragma once

#include <vector>

#include "bench.hpp"
#include "host/device_bench.hpp"

namespace canopy::cli {

// Times the launches in the states of the caches that the effort names; a cell a launch, `cells` with their times.
Error time_both(const Effort& effort, std::vector<host::TimedLaunch>& launches, const std::vector<BenchCell>& cells,
                BenchShape& shape);

}  // namespace canopy::cli
