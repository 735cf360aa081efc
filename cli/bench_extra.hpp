// What canopy bench measures besides verification's and commit's time: memory, drift, and the tree convolution.
#pragma once

#include "bench.hpp"
#include "host/conv_copies.hpp"

namespace canopy::cli {

// Peak transient memory of verifying `layers` layers and keeping what their commit needs: snapshots of the serial
// kernel, the stash, nothing (resolve). Measured, not computed: on the CPU the process's high-water mark of resident
// pages, on a GPU what the device's free memory falls by.
Result<nlohmann::ordered_json> memory_records(const host::ProblemSpec& spec, canopy_device device, int layers);

// Rounds of verify and commit, each from the state that the last one left, beside an fp64 model that takes the same
// path: drift of state and outputs, and how often the best of 256 random projections of o is another one.
Result<nlohmann::ordered_json> rounds_records(const host::ProblemSpec& spec, canopy_device device, const Effort& effort,
                                              int rounds);

// The tree convolution on a GPU, or with `commits` the commit of its windows, beside a device copy; `family` is the
// trees' name in the records.
Result<nlohmann::ordered_json> conv_records(const host::ConvSpec& spec, const std::string& family, const Effort& effort,
                                            bool commits);

}  // namespace canopy::cli
