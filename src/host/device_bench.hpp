// Timing on a CUDA device: replays of graphs that hold many launches, the contenders in turn (docs/benchmarks.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/device.hpp"

namespace canopy::host {

struct DeviceInfo {
  std::string name, pci;  // bus id
  int multiprocessors = 0, compute_capability = 0;  // 90 for 9.0
  int driver = 0, runtime = 0;                      // 13000 for 13.0
  std::size_t l2_bytes = 0, free_bytes = 0;
};
DeviceInfo device_info();

// `launch(copy, stream)` puts one call on the stream, on the buffers of that copy.
struct TimedLaunch {
  std::string name;
  std::function<Error(int copy, void* stream)> launch;
  std::vector<double> seconds;  // of one launch, one entry a replay
};
// Each contender's graph goes over the copies in turn until it holds `launches` launches (fewer of a slow contender,
// whose graph takes 0.5 ms, but all copies); one replay of each contender, then the next round. The first `warm_ups` rounds are not kept;
// after `most_seconds` no further round is begun.
Error time_in_graphs(std::vector<TimedLaunch>& contenders, int copies, int launches, int warm_ups, int repeat,
                     double most_seconds);

// A copy of `bytes` from one place of the device to another, as a contender for what memory allows.
Error device_copy(void* to, const void* from, std::size_t bytes, void* stream);

// The floor kernel of the fused kernel's call; an error where it does not cover the problem.
Error device_floor(const VerifyParams& params, void* stream);

}  // namespace canopy::host
