// The registry's CPU implementations under Google Benchmark, one thread, at the Qwen3.5-9B layer: verify/NAME/FAMILY/T and
// commit/NAME/T (the deepest leaf). `canopy bench` gives the interleaved comparison with errors beside the times.
#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "host/host_problem.hpp"

namespace {

using namespace canopy;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
std::unique_ptr<void, Free> workspace_of(std::size_t bytes) {
  return std::unique_ptr<void, Free>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
}

host::HostProblem problem_of(const std::string& family, int nodes) {
  host::ProblemSpec spec;
  spec.family.name = family;
  spec.family.nodes = nodes;
  return *host::make_problem(spec);
}

void time_verify(benchmark::State& state, const VerifyImplementation& implementation, const std::string& family, int nodes) {
  host::HostProblem problem = problem_of(family, nodes);
  VerifyParams params = *problem.verify();
  const Problem& p = params.problem;
  host::HostTensor o = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v});
  params.o = o.view();
  const std::size_t bytes = implementation.workspace(params);
  const auto workspace = workspace_of(bytes);
  for (auto _ : state)
    if (!implementation.run(params, workspace.get(), nullptr).ok()) state.SkipWithError("the run failed");
  state.counters["workspace_bytes"] = static_cast<double>(bytes);
}

void time_commit(benchmark::State& state, const CommitImplementation& implementation, canopy_commit_method method, int nodes) {
  host::HostProblem problem = problem_of("best-first", nodes);
  CommitParams params = commit_params();
  params.problem = *problem.problem();
  params.method = method;
  const Problem& p = params.problem;
  std::vector<std::int32_t> parents(p.nodes), leaf(1, 0);
  row_parents(p, 0, parents.data());
  const Tree tree = *Tree::from_parents(parents);
  for (int i = 0; i < tree.size(); ++i)
    if (tree.depths()[i] > tree.depths()[leaf[0]]) leaf[0] = i;
  params.leaf = leaf.data();
  host::HostTensor u = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v});
  host::HostTensor l = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v});
  params.stash_u = u.view();
  params.stash_l = l.view();
  const auto workspace = workspace_of(implementation.workspace(params));
  for (auto _ : state)
    if (!implementation.run(params, workspace.get(), nullptr).ok()) state.SkipWithError("the run failed");
}

}  // namespace

int main(int argc, char** argv) {
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU || std::string(implementation.name).rfind("cpu_", 0) != 0) continue;
    for (const char* family : {"best-first", "chain"})
      for (const int nodes : {4, 16, 64, 128, 256})
        benchmark::RegisterBenchmark(
            ("verify/" + std::string(implementation.name) + "/" + family + "/" + std::to_string(nodes)).c_str(),
            [&implementation, family, nodes](benchmark::State& state) { time_verify(state, implementation, family, nodes); })
            ->Unit(benchmark::kMicrosecond);
  }
  for (const auto& implementation : commit_implementations()) {
    if (implementation.device != CANOPY_CPU || std::string(implementation.name).rfind("cpu_", 0) != 0) continue;
    for (const auto method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      CommitParams asked = commit_params();
      asked.method = method;
      if (!implementation.refuses(asked).empty()) continue;
      benchmark::RegisterBenchmark(("commit/" + std::string(implementation.name) + "/128").c_str(),
                                   [&implementation, method](benchmark::State& state) {
                                     time_commit(state, implementation, method, 128);
                                   })
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
