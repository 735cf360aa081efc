// Timing on a CUDA device: replays of graphs that hold many launches, the contenders in turn (docs/benchmarks.md).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "host/device.hpp"
#include "host/replays.hpp"

namespace canopy::host {

struct DeviceInfo {
  std::string name, pci;                            // bus id
  int multiprocessors = 0, compute_capability = 0;  // 90 for 9.0
  int driver = 0, runtime = 0;                      // CUDA that the driver knows, that was linked: 13000 for 13.0
  std::string driver_version;  // the driver's own, "580.95.05"; "" where its file in /proc is not to be seen
  std::size_t l2_bytes = 0, free_bytes = 0;
};
DeviceInfo device_info();
// The version in the text of /proc/driver/nvidia/version; "" where none is.
std::string driver_version_in(std::string_view text);

// `launch(copy, stream)` puts one call on the stream, on the buffers of that copy.
struct TimedLaunch {
  std::string name;
  std::function<Error(int copy, void* stream)> launch;
  std::vector<double> seconds = {};  // of one launch, one entry a replay that is kept
  double once = 0;                   // about how long one launch takes; 0: found out when it is timed first
};
// Rounds of replays (host/replays.hpp) of graphs that hold as many launches as the effort says, over the copies in
// turn. Several rounds are put on the stream at once, so that the device never waits for the host between two replays.
Error time_in_graphs(std::vector<TimedLaunch>& contenders, int copies, const ReplayEffort& effort);

// A copy of `bytes` from one place of the device to another, as a contender for what memory allows.
Error device_copy(void* to, const void* from, std::size_t bytes, void* stream);

// The floor kernel of the fused kernel's call; an error where it does not cover the problem.
Error device_floor(const VerifyParams& params, void* stream);

}  // namespace canopy::host
