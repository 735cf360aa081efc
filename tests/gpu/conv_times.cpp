// Times of the tree convolution and its commit at Qwen3.5-9B's 8192 channels, W = 4, bf16: graph replays over one copy
// of the inputs (warm) and over so many that each finds none in the second-level cache (cold), beside the time that the
// bytes alone would take.
#include <algorithm>
#include <cstdio>

#include "conv_cases.hpp"
#include "gpu/conv.hpp"
#include "host/device_bench.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr double kBandwidth = 4.3e12;  // bytes a second, an H200's
constexpr double kColdBytes = 200e6;   // of all copies together: four times its second-level cache

// Buffers of a case on the device, the large ones several times over.
struct Copies {
  std::map<std::string, DeviceMemory> memory;
  tests::Locate at(int copy) {
    return [this, copy](const std::string& name) {
      const auto each = memory.find(text(name, ".", copy));
      return each != memory.end() ? each->second.data() : memory.at(name).data();
    };
  }
};

template <class Params>
Error shared_plan(Params& params, DeviceMemory& plan) {
  Problem problem = verify_params().problem;
  params.problem.device = problem.device = CANOPY_CUDA;
  problem.batch = params.problem.batch, problem.nodes = params.problem.nodes, problem.trees = params.problem.trees;
  problem.slots = params.problem.slots, problem.slot_index = params.problem.slot_index;
  if (!plan.data()) {
    plan = DeviceMemory(plans_bytes(problem));
    if (Error error = make_plans(problem, plan.data(), plan.bytes()); !error.ok()) return error;
  }
  params.problem.trees.plan = plan.data();
  return {};
}

double median(std::vector<double> seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

std::string time_one(int batch, int nodes, int layers) {
  tests::ConvSpec spec{.batch = batch, .nodes = nodes, .channels = 8192, .layers = layers, .bias = false, .silu = true};
  spec.ragged = spec.padding = false, spec.family = "best-first";
  const bool commits = layers > 1;
  tests::ConvCase made(spec);
  for (int b = 0; b < batch; ++b) made.buffers.at("leaf").i32()[b] = nodes - 1;
  const double C = spec.channels, B = batch;
  const double moved = commits ? layers * B * C * 3 * 2 * 2 : B * C * (nodes * 2 * 2 + 3 * 2) + C * 4 * 2;
  const double held = static_cast<double>(made.buffers.at("x").bytes.size()) + made.buffers.at("o").bytes.size();
  // Of a commit only three rows of each layer's x are read: its copies are of the pool and of x together.
  const int copies = static_cast<int>(std::clamp(kColdBytes / std::max(moved, 1.0), 2.0, commits ? 4e9 / held : 100.0));
  Copies on;
  for (const auto& [name, tensor] : made.buffers) {
    const bool several = name == "x" || name == "o" || name == "state" || name == "weight";
    for (int copy = 0; copy < (several ? copies : 1); ++copy) {
      DeviceMemory memory(tensor.bytes.size());
      if (Error error = memory.upload(tensor.bytes.data(), tensor.bytes.size()); !error.ok()) return error.message;
      on.memory[several ? text(name, ".", copy) : name] = std::move(memory);
    }
  }
  DeviceMemory plan;
  std::vector<host::TimedLaunch> launches;
  for (const bool cold : {false, true}) {
    launches.push_back({cold ? "cold" : "warm",
                        [&, cold](int copy, void* stream) -> Error {
                          const tests::Locate at = on.at(cold ? copy : 0);
                          if (commits) {
                            ConvCommitParams params = made.commit(at);
                            if (Error error = shared_plan(params, plan); !error.ok()) return error;
                            return conv_commit(params, "cuda_conv_commit", nullptr, 0, stream);
                          }
                          ConvVerifyParams params = made.verify(at);
                          if (Error error = shared_plan(params, plan); !error.ok()) return error;
                          return conv_verify(params, "cuda_conv", nullptr, 0, stream);
                        },
                        {}});
  }
  const host::ReplayEffort effort{
      .warm_ups = 3, .repeat = 15, .replay_seconds = 5e-4, .launches = std::max(100, copies), .least = 15};
  if (Error error = host::time_in_graphs(launches, copies, effort); !error.ok()) return error.message;
  char line[200];
  const double floor = moved / kBandwidth * 1e6, warm = median(launches[0].seconds) * 1e6,
               cold = median(launches[1].seconds) * 1e6;
  std::snprintf(
      line, sizeof line,
      "%-12s B=%-3d T=%-4d L=%-3d warm %7.2f us, cold %7.2f us (%d copies); %6.2f MB at 4.3 TB/s: %6.2f us, cold %.2fx",
      commits ? "conv commit" : "conv", batch, nodes, layers, warm, cold, copies, moved * 1e-6, floor, cold / floor);
  return line;
}

}  // namespace

void time_conv(Report& report) {
  for (const int batch : {1, 4, 16, 32})
    for (const int nodes : {8, 64, 256})
      if (batch * nodes <= 2048) report.note(time_one(batch, nodes, 1));
  for (const int batch : {1, 16}) report.note(time_one(batch, 16, 24));
}

}  // namespace canopy::gpu
