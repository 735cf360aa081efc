// The group of the tree convolution, apart from the harness: its cases are not those of verify and commit.
#pragma once

#include "gpu/harness.hpp"

namespace canopy::gpu {

// E9 on the device against its definition, commits, bad rows, graph replays; and, where not `light`, times.
void test_conv(Report& report, bool light);
void time_conv(Report& report);  // conv_times.cpp

}  // namespace canopy::gpu
