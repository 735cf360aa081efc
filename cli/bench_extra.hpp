// What canopy bench measures besides time: memory and drift.
#pragma once

#include "bench.hpp"

namespace canopy::cli {

// Peak transient memory of verifying `layers` layers and keeping what their commit needs: snapshots of the serial
// kernel, the stash, nothing (resolve). Measured, not computed: on the CPU the process's high-water mark of resident
// pages, on a GPU what the device's free memory falls by.
Result<nlohmann::ordered_json> memory_records(const host::ProblemSpec& spec, canopy_device device, int layers);

// Rounds of verify and commit, each from the state that the last one left, beside an fp64 model that takes the same
// path: drift of state and outputs, and how often the best of 256 random projections of o is another one.
Result<nlohmann::ordered_json> rounds_records(const host::ProblemSpec& spec, canopy_device device, const Effort& effort,
                                              int rounds);

}  // namespace canopy::cli
