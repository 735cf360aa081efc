#include "host/device_bench.hpp"

#include <algorithm>
#include <chrono>

#include "message.hpp"

#if CANOPY_WITH_CUDA
#include <cuda_runtime.h>

#include "cuda/launch.hpp"
#endif

namespace canopy::host {

#if CANOPY_WITH_CUDA

namespace {

constexpr double kGraphSeconds = 5e-4;  // long beside the events' resolution and a graph's launch

// A captured sequence of launches.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  ~Graph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  Error capture(const TimedLaunch& contender, int copies, int launches, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    Error error;
    for (int i = 0; i < launches && error.ok(); ++i) error = contender.launch(i % copies, stream);
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    cudaError_t made = ended;
    if (ended == cudaSuccess) made = cudaGraphInstantiate(&exec_, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    if (error.ok() && made != cudaSuccess)
      error = {CANOPY_INTERNAL, text(contender.name, ": not captured: ", cudaGetErrorString(made))};
    return error;
  }
  void replay(cudaStream_t stream) const { cudaGraphLaunch(exec_, stream); }

 private:
  cudaGraphExec_t exec_ = nullptr;
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
  info.name = properties.name;
  char pci[32] = {};
  cudaDeviceGetPCIBusId(pci, sizeof pci, 0);
  info.pci = pci;
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = properties.major * 10 + properties.minor;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  return info;
}

Error time_in_graphs(std::vector<TimedLaunch>& contenders, int copies, int launches, int warm_ups, int repeat,
                     double most_seconds) {
  cudaStream_t stream;
  cudaEvent_t start, stop;
  cudaStreamCreate(&stream);
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<Graph> graphs(contenders.size());
  std::vector<int> held(contenders.size());
  Error error;
  const auto timed = [&](const auto& work) {
    float milliseconds = 0;
    cudaEventRecord(start, stream);
    work();
    cudaEventRecord(stop, stream);
    cudaEventSynchronize(stop);
    cudaEventElapsedTime(&milliseconds, start, stop);
    return milliseconds * 1e-3;
  };
  for (std::size_t i = 0; i < contenders.size() && error.ok(); ++i) {
    error = contenders[i].launch(0, stream);  // once directly: modules are loaded outside the capture
    if (error.ok()) error = device_synchronize();
    if (!error.ok()) break;
    const double one = timed([&] { error = contenders[i].launch(0, stream); });
    // All copies, so that a slow contender's cold run is cold too.
    const int least = std::min(std::max(copies, 4), launches);
    held[i] = std::clamp(static_cast<int>(kGraphSeconds / one), least, launches);
    if (error.ok()) error = graphs[i].capture(contenders[i], copies, held[i], stream);
  }
  const auto begun = std::chrono::steady_clock::now();
  for (int round = 0; round < warm_ups + repeat && error.ok(); ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double seconds = timed([&] { graphs[i].replay(stream); }) / held[i];
      if (round >= warm_ups) contenders[i].seconds.push_back(seconds);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
    if (round >= warm_ups && spent.count() > most_seconds) break;
  }
  if (error.ok()) error = device_synchronize();
  cudaEventDestroy(start), cudaEventDestroy(stop);
  cudaStreamDestroy(stream);
  return error;
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
Error time_in_graphs(std::vector<TimedLaunch>&, int, int, int, int, double) {
  return Error::unsupported(device_missing());
}
Error device_copy(void*, const void*, std::size_t, void*) { return Error::unsupported(device_missing()); }
Error device_floor(const VerifyParams&, void*) { return Error::unsupported(device_missing()); }

#endif

}  // namespace canopy::host
