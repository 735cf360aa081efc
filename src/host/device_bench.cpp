#include "host/device_bench.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "message.hpp"

#if CANOPY_WITH_CUDA
#include <cuda_runtime.h>

#include "cuda/launch.hpp"
#endif

namespace canopy::host {

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build": of that line the first word of
// numbers and dots.
std::string driver_version_in(std::string_view text) {
  const std::size_t at = text.find("NVRM version:");
  if (at == std::string_view::npos) return {};
  std::istringstream words{std::string(text.substr(at, text.find('\n', at) - at))};
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return {};
}

#if CANOPY_WITH_CUDA

namespace {

constexpr int kRoundsAtOnce = 5;
constexpr double kSlow = 2e-4;  // seconds of a launch that is measured well enough by itself

// A captured sequence of launches.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  ~Graph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  // `launches` of them, from one start of the rotation.
  Error capture(const TimedLaunch& contender, Rotation rotation, int start, int launches, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    Error error;
    for (int i = 0; i < launches && error.ok(); ++i) error = contender.launch(rotation.copy(start, i), stream);
    cudaError_t made = cudaStreamEndCapture(stream, &graph);
    if (made == cudaSuccess) made = cudaGraphInstantiate(&exec_, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (error.ok() && made != cudaSuccess)
      error = {CANOPY_INTERNAL, text(contender.name, ": not captured: ", cudaGetErrorString(made))};
    return error;
  }
  void replay(cudaStream_t stream) const { cudaGraphLaunch(exec_, stream); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

// Time on a stream between two places.
class Interval {
 public:
  Interval() { cudaEventCreate(&start_), cudaEventCreate(&stop_); }
  Interval(Interval&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), stop_(std::exchange(other.stop_, nullptr)) {}
  ~Interval() {
    if (start_) cudaEventDestroy(start_), cudaEventDestroy(stop_);
  }
  template <class Work>
  void around(cudaStream_t stream, const Work& work) {
    cudaEventRecord(start_, stream);
    work();
    cudaEventRecord(stop_, stream);
  }
  // Waits for its end.
  double seconds() const {
    float milliseconds = 0;
    cudaEventSynchronize(stop_);
    cudaEventElapsedTime(&milliseconds, start_, stop_);
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

class OwnStream {
 public:
  OwnStream() { cudaStreamCreate(&stream_); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// About how long one launch takes. The first ones load the module, outside any capture.
Error find_once(TimedLaunch& contender, cudaStream_t stream) {
  constexpr int kTried = 8;
  Error error = contender.launch(0, stream);
  if (error.ok()) error = device_synchronize();
  if (!error.ok()) return error;
  Interval interval;
  interval.around(stream, [&] { error = contender.launch(0, stream); });
  contender.once = interval.seconds();
  if (!error.ok() || contender.once > kSlow) return error;
  Graph graph;
  if (error = graph.capture(contender, {}, 0, kTried, stream); !error.ok()) return error;
  graph.replay(stream);
  interval.around(stream, [&] { graph.replay(stream); });
  contender.once = interval.seconds() / kTried;
  return device_synchronize();
}

// The graphs of one contender, one for each copy that a replay may begin with.
struct Graphs {
  int launches = 0;
  std::vector<Graph> starts;
};

}  // namespace

DeviceInfo device_info() {
  DeviceInfo info;
  if (!device_missing().empty()) return info;
  cudaDeviceProp properties{};
  std::size_t total = 0;
  cudaGetDeviceProperties(&properties, 0);
  cudaMemGetInfo(&info.free_bytes, &total);
  cudaDriverGetVersion(&info.driver);
  cudaRuntimeGetVersion(&info.runtime);
  std::ifstream file("/proc/driver/nvidia/version");
  info.driver_version = driver_version_in(std::string(std::istreambuf_iterator<char>(file), {}));
  info.name = properties.name;
  char pci[32] = {};
  cudaDeviceGetPCIBusId(pci, sizeof pci, 0);
  info.pci = pci;
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = properties.major * 10 + properties.minor;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  return info;
}

Error time_in_graphs(std::vector<TimedLaunch>& contenders, int copies, const ReplayEffort& effort) {
  const OwnStream stream;
  double slowest = 0;
  for (TimedLaunch& contender : contenders) {
    if (contender.once == 0)
      if (Error error = find_once(contender, stream); !error.ok()) return error;
    slowest = std::max(slowest, contender.once);
  }
  const Rotation rotation = rotation_of(copies, launches_of(effort, slowest, 1));
  std::vector<Graphs> graphs(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    graphs[i].launches = launches_of(effort, contenders[i].once, rotation.step);
    graphs[i].starts.resize(static_cast<std::size_t>(rotation.starts()));
    for (int start = 0; start < rotation.starts(); ++start)
      if (Error error = graphs[i].starts[start].capture(contenders[i], rotation, start, graphs[i].launches, stream);
          !error.ok())
        return error;
  }

  Rounds rounds(effort, static_cast<int>(contenders.size()));
  std::vector<Interval> intervals(contenders.size() * kRoundsAtOnce);
  int start = 0;
  const auto replay = [&](int i) {
    graphs[i].starts[start].replay(stream);
    start = rotation.after(start, graphs[i].launches);
  };
  for (auto present = rounds.present(); !present.empty(); present = rounds.present()) {
    replay(present.back());  // not timed: while it runs, the host gets ahead of the device
    std::size_t used = 0;
    for (int round = 0; round < kRoundsAtOnce; ++round)
      for (const int i : present) intervals[used++].around(stream, [&] { replay(i); });
    if (Error error = device_synchronize(); !error.ok()) return error;
    used = 0;
    for (int round = 0; round < kRoundsAtOnce; ++round)
      for (const int i : present) {
        const double seconds = intervals[used++].seconds();
        if (rounds.add(i, seconds)) contenders[i].seconds.push_back(seconds / graphs[i].launches);
      }
  }
  return {};
}

Error device_copy(void* to, const void* from, std::size_t bytes, void* stream) {
  const cudaError_t status =
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream));
  return status == cudaSuccess ? Error{} : Error{CANOPY_INTERNAL, text("device copy: ", cudaGetErrorString(status))};
}

Error device_floor(const VerifyParams& params, void* stream) {
  const auto* plan = static_cast<const cuda::DevicePlan*>(params.problem.trees.plan);
  if (cuda::launch_floor(params, plan, static_cast<cudaStream_t>(stream))) return {};
  return Error::unsupported("the floor kernel does not cover this problem");
}

#else

DeviceInfo device_info() { return {}; }
Error time_in_graphs(std::vector<TimedLaunch>&, int, const ReplayEffort&) {
  return Error::unsupported(device_missing());
}
Error device_copy(void*, const void*, std::size_t, void*) { return Error::unsupported(device_missing()); }
Error device_floor(const VerifyParams&, void*) { return Error::unsupported(device_missing()); }

#endif

}  // namespace canopy::host
