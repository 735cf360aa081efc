// The tree convolution on a device: every type, width, layout and alignment bit for bit against the definition (within
// 1e-6 after SiLU), commits, bad rows, what a workspace of its own changes, and graph replays with changed trees.
#include "gpu/conv.hpp"

#include <cuda_runtime_api.h>

#include "conv_cases.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

using tests::ConvCase;
using tests::ConvSpec;

const ConvVerifyImplementation& verifier() { return cuda_conv_verify_implementations().front(); }
const ConvCommitImplementation& committer() { return cuda_conv_commit_implementations().front(); }

std::string describe(const ConvSpec& s) {
  return text("B=", s.batch, " T=", s.nodes, " C=", s.channels, " W=", s.width, " L=", s.layers, " types ",
              static_cast<int>(s.input), "/", static_cast<int>(s.state), "/", static_cast<int>(s.constants), "/",
              static_cast<int>(s.output), " ", s.family, s.bias ? " bias" : "", s.silu ? " silu" : "",
              s.links ? " links" : "", s.ragged ? " ragged" : "", s.taps_apart ? " taps apart" : "",
              s.long_index ? " i64" : "", s.moved ? " moved" : "", s.tracked ? " tracked" : "", " gap ", s.gap,
              " seed ", static_cast<int>(s.seed), ": ");
}

// A case with every buffer copied to the device.
class OnDevice {
 public:
  explicit OnDevice(ConvCase& made) : made_(made) {
    for (const auto& [name, tensor] : made.buffers) memory_[name] = DeviceMemory(tensor.bytes.size());
  }
  Error upload() {
    return each([](DeviceMemory& memory, HostTensor& t) { return memory.upload(t.bytes.data(), t.bytes.size()); });
  }
  Error download() {
    return each([](DeviceMemory& memory, HostTensor& t) { return memory.download(t.bytes.data(), t.bytes.size()); });
  }
  tests::Locate there() {
    return [this](const std::string& name) { return memory_.at(name).data(); };
  }
  ConvVerifyParams verify() {
    ConvVerifyParams params = made_.verify(there());
    params.problem.device = CANOPY_CUDA;
    return params;
  }
  ConvCommitParams commit() {
    ConvCommitParams params = made_.commit(there());
    params.problem.device = CANOPY_CUDA;
    return params;
  }

 private:
  template <class Copy>
  Error each(Copy copy) {
    for (auto& [name, memory] : memory_)
      if (Error error = copy(memory, made_.buffers.at(name)); !error.ok()) return error;
    return {};
  }
  ConvCase& made_;
  std::map<std::string, DeviceMemory> memory_;
};

// A plan of the case's trees for sharing, as an engine makes one a step.
template <class Params>
Error plan_for(Params& params, DeviceMemory& plan, void* stream = nullptr) {
  Problem problem = verify_params().problem;
  problem.device = CANOPY_CUDA, problem.batch = params.problem.batch, problem.nodes = params.problem.nodes;
  problem.trees = params.problem.trees, problem.trees.plan = nullptr;
  problem.slots = params.problem.slots, problem.slot_index = params.problem.slot_index;
  problem.slot_index_dtype = params.problem.slot_index_dtype;
  if (!plan.data()) {
    plan = DeviceMemory(plans_bytes(problem));
    if (Error error = plan.fill(0xff); !error.ok()) return error;
  }
  Error error = make_plans(problem, plan.data(), plan.bytes(), stream);
  params.problem.trees.plan = plan.data();
  return error;
}

std::vector<std::int32_t> status_of(const ConvCase& made) {
  const std::int32_t* status = made.buffers.at("status").i32();
  return {status, status + made.spec().batch};
}

// One call, with a plan that is shared or one in the workspace.
template <class Params, class Call>
Error run(Params params, bool shared, Call call) {
  DeviceMemory plan;
  if (shared)
    if (Error error = plan_for(params, plan); !error.ok()) return error;
  const auto bytes = call.workspace(params);
  if (!bytes) return bytes.error();
  if ((*bytes == 0) != shared) return {CANOPY_INTERNAL, text("workspace of ", *bytes, " bytes")};
  DeviceMemory workspace(*bytes);
  if (Error error = workspace.fill(0xff); !error.ok()) return error;
  if (Error error = call.run(params, workspace.data(), *bytes); !error.ok()) return error;
  return host::device_synchronize();
}
struct CallVerify {
  Result<std::size_t> workspace(const ConvVerifyParams& p) { return conv_verify_workspace(p, verifier().name); }
  Error run(const ConvVerifyParams& p, void* memory, std::size_t bytes) {
    return conv_verify(p, verifier().name, memory, bytes);
  }
};
struct CallCommit {
  Result<std::size_t> workspace(const ConvCommitParams& p) { return conv_commit_workspace(p, committer().name); }
  Error run(const ConvCommitParams& p, void* memory, std::size_t bytes) {
    return conv_commit(p, committer().name, memory, bytes);
  }
};

void check_verify(Report& report, const char* group, const ConvSpec& spec, bool shared = true) {
  ConvCase made(spec);
  const auto pool = made.buffers.at("state").bytes;
  OnDevice device(made);
  Error error = device.upload();
  if (error.ok()) error = run(device.verify(), shared, CallVerify{});
  if (error.ok()) error = device.download();
  std::string wrong = error.message;
  if (wrong.empty()) wrong = wrong_output(made, made.buffers.at("o"), status_of(made));
  if (wrong.empty() && pool != made.buffers.at("state").bytes) wrong = "the pool was changed";
  report.add(group, verifier().name, wrong.empty() ? "" : describe(spec) + wrong);
}

void check_commit(Report& report, const char* group, const ConvSpec& spec, bool shared = true, int first_leaf = -1) {
  ConvCase made(spec);
  for (int b = 0; b < spec.batch && first_leaf >= 0; ++b) made.buffers.at("leaf").i32()[b] = first_leaf + b;
  const auto expected = tests::pool_after(made).bytes;
  OnDevice device(made);
  Error error = device.upload();
  if (error.ok()) error = run(device.commit(), shared, CallCommit{});
  if (error.ok()) error = device.download();
  std::string wrong = error.message;
  if (wrong.empty() && status_of(made) != std::vector<std::int32_t>(spec.batch, 0)) wrong = "row_status is not 0";
  if (wrong.empty() && expected != made.buffers.at("state").bytes) wrong = "the pool is not what it should be";
  report.add(group, committer().name, wrong.empty() ? "" : describe(spec) + wrong);
}

void types(Report& report, bool light) {
  for (const int width : {2, 3, 4})
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
        if (light && width == 3 && input != state) continue;
        ConvSpec spec{.nodes = 40, .channels = 200, .width = width, .layers = 5, .input = input, .state = state};
        spec.constants = width == 3 ? CANOPY_F16 : state, spec.bias = width != 3, spec.taps_apart = input == CANOPY_F16;
        spec.tracked = width != 2;
        for (const bool silu : {false, true}) {
          spec.silu = silu, spec.output = input;
          check_verify(report, "conv types", spec);
          spec.output = CANOPY_F32, spec.moved = !spec.moved;
          check_verify(report, "conv types", spec);
          check_commit(report, "conv types", spec);
        }
      }
}

void shapes(Report& report, bool light) {
  for (const int nodes : {1, 2, 3, 7, 16, 17, 64, 129, 255, 256})
    for (const char* family : {"random", "chain", "best-first", "star"})
      for (const int channels : {1, 8, 33, 64, 129, 264, 8192}) {
        if (channels == 8192 && (nodes != 64 || *family != 'r')) continue;
        if (light && (channels == 8192 || nodes > 17)) continue;
        ConvSpec spec{.batch = 4, .nodes = nodes, .channels = channels};
        spec.family = family, spec.seed = nodes + channels;
        spec.gap = channels % 3 == 0 ? 8 : channels == 129 ? 7 : 0;  // rows on 16 bytes, and off them
        spec.links = nodes % 2 == 1, spec.long_index = channels == 33, spec.moved = nodes > 16,
        spec.tracked = channels > 60;
        const bool shared = nodes % 3 != 0;
        check_verify(report, "conv shapes", spec, shared);
        if (channels < 8192) check_commit(report, "conv shapes", spec, shared);
      }
  ConvSpec many{.batch = 200, .nodes = 5, .channels = 72, .layers = light ? 6 : 24};
  check_verify(report, "conv shapes", many);
  check_commit(report, "conv shapes", many);
}

// What conv_usual.cuh takes, in CTAs of a warp where they are many (light: for the emulated GPU's 4 SMs) and in larger.
void usual(Report& report, bool light) {
  for (const canopy_dtype type : {CANOPY_BF16, CANOPY_F16})
    for (const int width : {2, 3, 4})
      for (const bool many : {false, true})
        for (const int nodes : {1, 5, 16, 31, 64, 65, 130, 256}) {
          if (light && nodes > 65) continue;
          ConvSpec spec{.batch = many ? light ? 6 : 40 : 3, .nodes = nodes, .width = width};
          spec.channels = 64 * (!many ? 2 : light ? 3 : nodes > 64 ? 21 : 24);
          spec.input = spec.state = spec.constants = spec.output = type;
          spec.family = nodes == 31 ? "chain" : nodes == 16 ? "star" : "best-first", spec.seed = nodes + width;
          spec.silu = width != 3, spec.bias = nodes != 64, spec.gap = nodes == 5 ? 8 : 0;
          check_verify(report, "conv usual", spec, nodes % 3 != 0);
        }
}

// Windows that reach past the root: leaves of every depth from 0 to beyond the width, into the slot itself and into
// another, every width and order of the pool.
void past_the_root(Report& report) {
  for (const int width : {2, 3, 4})
    for (const bool moved : {false, true})
      for (const bool taps_apart : {false, true})
        for (const canopy_dtype state : {CANOPY_BF16, CANOPY_F32}) {
          ConvSpec spec{.batch = 5, .nodes = 5, .channels = 40, .width = width, .layers = 6, .state = state};
          spec.family = "chain", spec.ragged = spec.padding = false, spec.taps_apart = taps_apart, spec.moved = moved;
          check_verify(report, "conv past the root", spec);
          check_commit(report, "conv past the root", spec, true, 0);
        }
}

// A NaN reaches its subtree, three steps deep, and no bit elsewhere.
std::string poison() {
  const ConvSpec spec{.batch = 1, .nodes = 120, .channels = 64, .ragged = false};
  ConvCase made(spec), poisoned(spec);
  for (int c = 0; c < spec.channels; ++c) poisoned.buffers.at("x").set(17 * spec.channels + c, std::nanf(""));
  for (ConvCase* each : {&made, &poisoned}) {
    OnDevice device(*each);
    if (Error error = device.upload(); !error.ok()) return error.message;
    if (Error error = run(device.verify(), true, CallVerify{}); !error.ok()) return error.message;
    if (Error error = device.download(); !error.ok()) return error.message;
  }
  for (int node = 0; node < spec.nodes; ++node) {
    int up = node;
    for (int steps = 0; up > 17 && steps < 3; ++steps) up = made.parent(0, up);
    for (int c = 0; c < spec.channels; ++c) {
      const float x = poisoned.output(0, node, c);
      if (up == 17 ? !std::isnan(x) : x != made.output(0, node, c))
        return text("node ", node, ", channel ", c, ": ", x);
    }
  }
  return {};
}

// SiLU where exp leaves the range of fp32, next to channels where it does not.
std::string extremes(canopy_dtype input) {
  ConvSpec spec{.nodes = 33, .channels = 128, .silu = true};
  spec.input = spec.state = spec.constants = spec.output = input;
  ConvCase made(spec);
  HostTensor& x = made.buffers.at("x");
  for (std::int64_t i = 0; i < x.elements(); ++i)
    if (i % 3 == 0) x.set(i, 150 * x.get(i));
  OnDevice device(made);
  Error error = device.upload();
  if (error.ok()) error = run(device.verify(), true, CallVerify{});
  if (error.ok()) error = device.download();
  return error.ok() ? wrong_output(made, made.buffers.at("o"), status_of(made)) : error.message;
}

std::string bad_rows(bool commits, int channels) {
  ConvSpec spec{.batch = 6, .nodes = 9, .channels = channels, .ragged = true, .padding = false};
  spec.moved = spec.tracked = commits;
  ConvCase made(spec), sound(spec);
  std::int32_t* const count = made.buffers.at("count").i32();
  made.buffers.at("parents").i32()[3] = 400, count[0] = 8;
  made.buffers.at("slot").i32()[2] = static_cast<int>(made.slots());
  count[3] = 10;
  for (int b = 0; b < 6; ++b)
    for (const char* leaf : {"leaf", "track_leaf"})
      made.buffers.at(leaf).i32()[b] = sound.buffers.at(leaf).i32()[b] = 2;
  made.buffers.at("track").i32()[4] = made.buffers.at("dst").i32()[4];  // two windows for one slot
  for (const int b : {0, 2, 3, 4}) sound.buffers.at("leaf").i32()[b] = -1;
  OnDevice device(made);
  Error error = device.upload();
  if (error.ok()) error = commits ? run(device.commit(), true, CallCommit{}) : run(device.verify(), true, CallVerify{});
  if (error.ok()) error = device.download();
  if (!error.ok()) return error.message;
  const int last = commits ? CANOPY_ROW_BAD_SLOT : 0;
  const std::vector<std::int32_t> flags{CANOPY_ROW_BAD_TREE, 0, CANOPY_ROW_BAD_SLOT, CANOPY_ROW_BAD_COUNT, last, 0};
  if (status_of(made) != flags) return "row_status is not what it should be";
  if (commits)
    return made.buffers.at("state").bytes == pool_after(sound).bytes ? "" : "the pool is not what it should be";
  for (int b = 0; b < 6; ++b)
    for (int node = 0; node < 9; ++node)
      for (int c = 0; c < channels; ++c) {
        const float x = made.output(b, node, c);
        const std::byte* at = &made.buffers.at("o").bytes[2 * made.output_at(b, node, c)];
        const bool untouched = at[0] == std::byte{0xff} && at[1] == std::byte{0xff};
        const bool runs = flags[b] == 0 && made.live(b, node), nan = b == 0 && node < 8;
        if (runs ? std::isnan(x) : nan ? !std::isnan(x) || untouched : !untouched)
          return text("row ", b, ", node ", node, ", channel ", c, ": ", x);
      }
  return {};
}

std::string refusals() {
  ConvCase made({.batch = 1, .nodes = 4});
  OnDevice device(made);
  ConvVerifyParams params = device.verify();
  params.problem.batch = 65536, params.problem.slots = 65536, params.problem.slot_index = nullptr;
  const auto many = conv_verify_workspace(params, verifier().name);
  if (many || many.error().message != text(verifier().name, ": batch = 65536: expected at most 65535; split the call"))
    return many ? "65536 sequences were taken" : many.error().message;
  params = device.verify(), params.problem.device = CANOPY_CPU;
  const std::string expected = text(verifier().name,
                                    ": problem.device = 0 (cpu): expected 1, with pointers to device memory; or "
                                    "use an implementation of the CPU");
  params.row_status = nullptr, params.problem = made.verify(made.here()).problem;
  const auto host = conv_verify_workspace(params, verifier().name);
  if (host || host.error().message != expected) return host ? "host pointers were taken" : host.error().message;
  if (const Error error = conv_verify(device.verify(), verifier().name, nullptr, 0); error.status != CANOPY_WORKSPACE)
    return "no workspace was taken without a plan";
  return {};
}

// Plan, convolution and commit captured once and replayed with other trees, slots, counts, leaves and inputs.
std::string replays(int nodes) {
  const auto spec_of = [&](int step) {
    ConvSpec spec{.batch = 4, .nodes = nodes, .channels = 264, .layers = 2};
    spec.seed = 40 + step, spec.family = step % 2 ? "random" : "chain", spec.tracked = spec.moved = true;
    return spec;
  };
  ConvCase current(spec_of(0));
  OnDevice device(current);
  DeviceMemory plan;
  const auto launch = [&](void* stream) {
    ConvVerifyParams verify = device.verify();
    ConvCommitParams commit = device.commit();
    if (Error error = plan_for(verify, plan, stream); !error.ok()) return error;
    commit.problem.trees.plan = plan.data();
    if (Error error = conv_verify(verify, verifier().name, nullptr, 0, stream); !error.ok()) return error;
    return conv_commit(commit, committer().name, nullptr, 0, stream);
  };
  if (Error error = device.upload(); !error.ok()) return error.message;
  if (Error error = launch(nullptr); !error.ok()) return error.message;  // modules are loaded outside the capture
  if (Error error = host::device_synchronize(); !error.ok()) return error.message;
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  std::string wrong = launch(stream).message;
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
  if (wrong.empty() && (captured != cudaSuccess || cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess))
    wrong = text("not captured: ", cudaGetErrorString(captured));
  for (int step = 0; wrong.empty() && step < 6; ++step) {
    ConvCase next(spec_of(step));
    const auto expected = tests::pool_after(next).bytes;
    current.buffers = next.buffers;
    wrong = device.upload().message;
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    if (wrong.empty()) wrong = device.download().message;
    if (wrong.empty()) wrong = wrong_output(next, current.buffers.at("o"), status_of(current));
    if (wrong.empty() && expected != current.buffers.at("state").bytes) wrong = "the pool is not what it should be";
    if (!wrong.empty()) wrong = text("step ", step, ": ", wrong);
  }
  if (exec) cudaGraphExecDestroy(exec);
  if (graph) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return wrong;
}

}  // namespace

void test_conv(Report& report, bool light) {
  types(report, light);
  shapes(report, light);
  usual(report, light);
  past_the_root(report);
  report.add("conv poison", verifier().name, poison());
  for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
    report.add("conv extremes", verifier().name, extremes(input));
  for (const int channels : {70, 128}) report.add("conv bad rows", verifier().name, bad_rows(false, channels));
  report.add("conv bad rows", committer().name, bad_rows(true, 70));
  report.add("conv refusals", verifier().name, refusals());
  for (const int nodes : {5, 60, 256}) report.add("conv replays", "cuda_conv and its commit", replays(nodes));
  if (!light) time_conv(report);
}

}  // namespace canopy::gpu
