// A whole round (plan, verification, commit) captured once as a CUDA graph and replayed with other trees, slots,
// counts, leaves and activations in the same memory: each replay gives the bits of a round of direct calls.
#include <cuda_runtime_api.h>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

// What changes from step to step, at addresses that do not.
struct Round {
  HostProblem host;
  std::vector<std::int32_t> leaf;
};

Round make_round(int nodes, int step) {
  ProblemSpec spec = base("random", nodes);
  spec.batch = 4, spec.ragged = spec.slots = true, spec.seed = 50 + step, spec.family.seed = 90 + 10 * step;
  Round round{make(spec), {}};
  for (int b = 0; b < 4; ++b) round.leaf.push_back((b + step) % 4 == 0 ? -1 : (7 * b + 3 * step) % nodes);
  return round;
}

struct Results {
  std::vector<std::byte> o, u, state;
  std::vector<std::int32_t> status;
  bool operator==(const Results&) const = default;
};

class Machine {
 public:
  Machine(const Contender& contender, const CommitImplementation& commit, Round& round, canopy_commit_method method)
      : contender_(contender), commit_(commit), device_(std::move(*DeviceProblem::make(round.host))) {
    verify_ = verify_params();
    verify_.problem = device_.view();
    verify_.precision = contender.precision;
    const Problem& p = verify_.problem;
    const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
    HostTensor o = HostTensor::make(CANOPY_F32, {B, T, HV, V}), l = HostTensor::make(CANOPY_F32, {B, T, HV});
    o_ = DeviceMemory(o.bytes.size()), u_ = DeviceMemory(o.bytes.size()), l_ = DeviceMemory(l.bytes.size());
    status_ = DeviceMemory(B * 4), leaf_ = DeviceMemory(B * 4);
    verify_.o = o.view(), verify_.o.data = o_.data();
    if (stores_u(contender)) {
      verify_.stash_u = o.view(), verify_.stash_l = l.view();
      verify_.stash_u.data = u_.data(), verify_.stash_l.data = l_.data();
    }
    verify_.row_status = static_cast<std::int32_t*>(status_.data());
    plan_ = DeviceMemory(plans_bytes(p));
    verify_.problem.trees.plan = plan_.data();
    params_ = commit_params();
    params_.problem = verify_.problem;
    params_.method = method;
    params_.leaf = static_cast<const std::int32_t*>(leaf_.data());
    if (method == CANOPY_COMMIT_STASH) params_.stash_u = verify_.stash_u, params_.stash_l = verify_.stash_l;
    verify_workspace_ = DeviceMemory(contender.implementation->workspace(verify_) + 64);
    commit_workspace_ = DeviceMemory(commit.workspace(params_) + 64);
  }

  Error load(const Round& round) {
    for (const auto& [name, tensor] : round.host.tensors)
      if (Error error = device_.upload(name, tensor); !error.ok()) return error;
    for (DeviceMemory* memory : {&o_, &u_, &l_, &status_, &plan_, &verify_workspace_, &commit_workspace_})
      if (Error error = memory->fill(0xff); !error.ok()) return error;
    return leaf_.upload(round.leaf.data(), round.leaf.size() * 4);
  }
  Error launch(void* stream) {
    Problem bare = verify_.problem;
    bare.trees.plan = nullptr;
    if (Error error = make_plans(bare, plan_.data(), plan_.bytes(), stream); !error.ok()) return error;
    if (Error error = contender_.implementation->run(verify_, verify_workspace_.data(), stream); !error.ok())
      return error;
    return commit_.run(params_, commit_workspace_.data(), stream);
  }
  Results results() {
    Results out;
    const auto get = [](DeviceMemory& from, std::vector<std::byte>& to) {
      to.resize(from.bytes());
      (void)from.download(to.data(), to.size());
    };
    get(o_, out.o), get(u_, out.u), get(device_.tensor("state"), out.state);
    out.status.resize(4);
    (void)status_.download(out.status.data(), 16);
    return out;
  }

 private:
  const Contender& contender_;
  const CommitImplementation& commit_;
  DeviceProblem device_;
  DeviceMemory o_, u_, l_, status_, leaf_, plan_, verify_workspace_, commit_workspace_;
  VerifyParams verify_{};
  CommitParams params_{};
};

std::string replay(const Contender& contender, const CommitImplementation& commit, canopy_commit_method method,
                   int nodes) {
  std::vector<Round> rounds;
  for (int step = 0; step < 5; ++step) rounds.push_back(make_round(nodes, step));
  Machine machine(contender, commit, rounds[0], method);
  // Once directly, so that modules are loaded before the capture.
  if (Error error = machine.load(rounds[0]); !error.ok()) return error.message;
  if (Error error = machine.launch(nullptr); !error.ok()) return error.message;
  if (Error error = host::device_synchronize(); !error.ok()) return error.message;

  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  const Error launched = machine.launch(stream);
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
  std::string wrong = launched.message;
  if (wrong.empty() && (captured != cudaSuccess || cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess))
    wrong = text("not captured: ", cudaGetErrorString(captured));
  for (std::size_t step = 0; wrong.empty() && step < rounds.size(); ++step) {
    if (Error error = machine.load(rounds[step]); !error.ok()) wrong = error.message;
    if (Error error = machine.launch(nullptr); !error.ok()) wrong = error.message;
    if (Error error = host::device_synchronize(); !error.ok()) return error.message;
    const Results direct = machine.results();
    if (Error error = machine.load(rounds[step]); !error.ok()) wrong = error.message;
    cudaGraphLaunch(exec, stream);
    cudaStreamSynchronize(stream);
    const Results replayed = machine.results();
    if (wrong.empty() && direct != replayed)
      wrong = text("step ", step, ": a replay with changed inputs gives other bits");
    // The direct call itself against the oracle: not both wrong in the same way.
    const Problem view = *rounds[step].host.problem();
    const Truth truth = solve(view);
    HostTensor o = HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
    o.bytes = direct.o;
    const Closeness c = compare(view, truth.o, o);
    if (wrong.empty() && (!c.finite || c.relative > contender.relative))
      wrong = text("step ", step, ": relative ", c.relative);
  }
  if (exec) cudaGraphExecDestroy(exec);
  if (graph) cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return wrong;
}

}  // namespace

void test_graphs(Report& report, bool light) {
  constexpr canopy_commit_method methods[] = {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY};
  const auto commits = cuda_commit_implementations();
  for (const Contender& contender : contenders())
    for (const int nodes : light ? std::vector<int>{14} : std::vector<int>{5, 16, 60, 180})
      for (std::size_t i = 0; i < commits.size(); ++i)
        if (nodes <= contender.most_nodes && (methods[i] != CANOPY_COMMIT_STASH || stores_u(contender)))
          report.add("graph replay", contender.name, replay(contender, commits[i], methods[i], nodes));
}

}  // namespace canopy::gpu
