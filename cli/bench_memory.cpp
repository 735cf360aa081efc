// Peak transient memory of a model's layers, measured three ways of keeping what commit needs.
#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <new>

#include "bench_extra.hpp"
#include "host/device.hpp"
#include "host/device_bench.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;
using host::DeviceMemory;

// "VmHWM: 1234 kB" of /proc/self/status, bytes; 0 where there is none.
std::size_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.compare(0, key.size() + 1, key + ":") == 0) return std::stoull(line.substr(key.size() + 1)) * 1024;
  return 0;
}
// From now on the high-water mark counts anew.
bool reset_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;
  return refs.good();
}

// Memory on either device, and what of it is in use at the most.
class Meter {
 public:
  explicit Meter(canopy_device device) : device_(device) {
    if (device_ == CANOPY_CUDA)
      start_ = least_ = host::device_info().free_bytes;
    else
      works_ = reset_peak(), start_ = status_bytes("VmRSS");
  }
  void look() {
    if (device_ == CANOPY_CUDA) least_ = std::min(least_, host::device_info().free_bytes);
  }
  std::size_t peak() {
    look();
    if (device_ == CANOPY_CUDA) return start_ - least_;
    const std::size_t most = status_bytes("VmHWM");
    return most > start_ ? most - start_ : 0;
  }
  bool works() const { return device_ == CANOPY_CUDA || (works_ && start_ > 0); }

 private:
  canopy_device device_;
  bool works_ = true;
  std::size_t start_ = 0, least_ = 0;
};

// A block of either device's memory; on the CPU its pages come as they are touched.
struct MemoryBlock {
  Workspace host;
  DeviceMemory device;
  MemoryBlock(canopy_device on, std::size_t bytes)
      : host(on == CANOPY_CPU ? bytes : 0), device(on == CANOPY_CUDA ? DeviceMemory(bytes) : DeviceMemory()) {
    if (on == CANOPY_CUDA && bytes > 0 && !device.data()) throw std::bad_alloc();
  }
  void* data() const { return device.data() ? device.data() : host.get(); }
};

struct Way {
  const char *name, *verify;
  bool stash;
};

// The registry's implementation of a strategy on a device, by the end of its name.
const VerifyImplementation* find_strategy(canopy_device device, const std::string& strategy) {
  return find_verify((device == CANOPY_CPU ? "cpu_" : "cuda_") + strategy);
}

std::size_t available(canopy_device device) {
  if (device == CANOPY_CUDA) return host::device_info().free_bytes;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.compare(0, 13, "MemAvailable:") == 0) return std::stoull(line.substr(13)) * 1024;
  return 0;
}

// Verifies every layer, each with the memory that it must keep; all read the same inputs, which are not counted.
Result<Json> measure(const host::ProblemSpec& spec, const Problem& problem, canopy_device device, int layers,
                     const Way& way) {
  const VerifyImplementation* const verify = find_strategy(device, way.verify);
  if (!verify) return Error::unsupported(fmt::format("no {} on this device in this build", way.verify));
  VerifyParams params = verify_params();
  params.problem = problem;
  const std::size_t rows = std::size_t(problem.batch) * problem.nodes * problem.heads_v, values = rows * problem.dim_v;
  const std::int64_t row = std::int64_t{problem.heads_v} * problem.dim_v;
  const auto wide = [&](void* data) {
    return canopy_tensor{data, CANOPY_F32, 0, {0, problem.nodes * row, row, problem.dim_v, 1}};
  };
  const auto narrow = [&](void* data) {
    return canopy_tensor{
        data, CANOPY_F32, 0, {0, std::int64_t{problem.nodes} * problem.heads_v, problem.heads_v, 1, 0}};
  };
  const MemoryBlock o(device, values * 4);
  params.o = wide(o.data());
  const bool snapshots = std::string(way.name) == "snapshots";
  params.stash_u = way.stash ? wide(o.data()) : canopy_tensor{};  // any address, for the size
  params.stash_l = way.stash ? narrow(o.data()) : canopy_tensor{};
  const std::size_t workspace = verify->workspace(params);
  const std::size_t kept = snapshots ? workspace : way.stash ? (values + rows) * 4 : 0;
  if (kept * layers > available(device) / 2)
    return Error::unsupported(fmt::format("{} for {} layers: {} would be kept, more than half of the free memory",
                                          way.name, layers, bytes_text(static_cast<double>(kept * layers))));
  const auto run_once = [&](void* memory) -> Error {
    Error error = verify->run(params, memory, nullptr);
    return error.ok() && device == CANOPY_CUDA ? host::device_synchronize() : error;
  };
  {  // what a first run brings with it (threads, modules) is not counted
    const MemoryBlock own(device, workspace), stash(device, way.stash ? (values + rows) * 4 : 0);
    if (way.stash)
      params.stash_u = wide(stash.data()), params.stash_l = narrow(static_cast<float*>(stash.data()) + values);
    if (Error error = run_once(own.data()); !error.ok()) return error;
  }
  Meter meter(device);
  if (!meter.works())
    return Error::unsupported("/proc/self/clear_refs: cannot be written; peak memory is not measured here");
  {
    std::vector<MemoryBlock> held;
    const MemoryBlock shared(device, snapshots ? 0 : workspace);
    for (int layer = 0; layer < layers; ++layer) {
      void* memory = shared.data();
      if (kept > 0) held.emplace_back(device, kept);
      if (snapshots) memory = held.back().data();
      if (way.stash)
        params.stash_u = wide(held.back().data()),
        params.stash_l = narrow(static_cast<float*>(held.back().data()) + values);
      if (Error error = run_once(memory); !error.ok()) return error;
    }
    meter.look();
    const std::size_t peak = meter.peak();
    return Json{{"type", "memory"},
                {"schema", 1},
                {"way", way.name},
                {"contender", verify->name},
                {"device", device == CANOPY_CPU ? "cpu" : "cuda"},
                {"layers", layers},
                {"B", problem.batch},
                {"T", problem.nodes},
                {"family", spec.family.name},
                {"H", problem.heads_k},
                {"HV", problem.heads_v},
                {"K", problem.dim_k},
                {"V", problem.dim_v},
                {"input", name_of(spec.input)},
                {"state", name_of(spec.state)},
                {"peak_bytes", peak},
                {"kept_bytes", kept * layers},
                {"workspace_bytes", workspace},
                {"how", device == CANOPY_CPU ? "resident pages (VmHWM)" : "free device memory"}};
  }
}

}  // namespace

Result<Json> memory_records(const host::ProblemSpec& spec, canopy_device device, int layers) {
  auto problem = host::make_problem(spec);
  if (!problem) return problem.error();
  auto view = problem->problem();
  if (!view) return view.error();
  Result<host::DeviceProblem> on_device = Error::unsupported("not on a device");
  Problem own = *view;
  if (device == CANOPY_CUDA) {
    on_device = host::DeviceProblem::make(*problem);
    if (!on_device) return on_device.error();
    own = on_device->view();
  }
  const DeviceMemory plan(device == CANOPY_CUDA ? plans_bytes(own) : 0);
  if (device == CANOPY_CUDA) {
    if (Error error = make_plans(own, plan.data(), plan.bytes()); !error.ok()) return error;
    own.trees.plan = plan.data();
  }
  constexpr Way ways[] = {
      {"snapshots", "serial_snapshot", false}, {"stash", "closed_form", true}, {"resolve", "closed_form", false}};
  Json all = Json::array();
  std::string refused;
  for (Way way : ways) {
    if (device == CANOPY_CUDA && way.verify == std::string("closed_form")) way.verify = "fused";
    auto record = measure(spec, own, device, layers, way);
    if (!record) {
      refused += (refused.empty() ? "" : "; ") + record.error().message;
      continue;
    }
    all.push_back(std::move(*record));
  }
  if (all.empty()) return Error::unsupported(refused);
  return all;
}

}  // namespace canopy::cli
