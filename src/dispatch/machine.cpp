// What this machine is called, for choosing a table.
#include <cstdio>
#include <string_view>
#include <vector>

#include "dispatch/table.hpp"

#if CANOPY_WITH_CUDA
#include <cuda_runtime.h>
#endif

namespace canopy::dispatch {
namespace {

// "model name : AMD EPYC" of /proc/cpuinfo; "unknown" elsewhere.
Machine cpu_machine() {
  Machine found{"unknown", 0};
  std::FILE* const file = std::fopen("/proc/cpuinfo", "rb");
  if (!file) return found;
  char line[512];
  while (std::fgets(line, sizeof line, file)) {
    const std::string_view text(line);
    const std::size_t colon = text.find(": ");
    if (text.substr(0, 10) != "model name" || colon == std::string_view::npos) continue;
    found.name = text.substr(colon + 2);
    while (!found.name.empty() && (found.name.back() == '\n' || found.name.back() == ' ')) found.name.pop_back();
    break;
  }
  std::fclose(file);
  return found;
}

#if CANOPY_WITH_CUDA
std::vector<Machine> cuda_machines() {
  std::vector<Machine> found;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  for (int i = 0; i < devices; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess)
      found.push_back({properties.name, properties.major * 10 + properties.minor});
    else
      found.push_back({"unknown", 0});
  }
  return found;
}
#endif

}  // namespace

const Machine& machine(int device) {
  static const Machine cpu = cpu_machine(), none{"no GPU", 0};
  if (device == CANOPY_CPU) return cpu;
#if CANOPY_WITH_CUDA
  static const std::vector<Machine> gpus = cuda_machines();
  int current = 0;
  if (cudaGetDevice(&current) == cudaSuccess && current >= 0 && static_cast<std::size_t>(current) < gpus.size()) return gpus[current];
#endif
  return none;
}

}  // namespace canopy::dispatch
