#include "timing.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

namespace canopy::cli {
namespace {

constexpr double kEnoughSeconds = 0.3;
constexpr int kMostRounds = 50;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

#ifdef _OPENMP
int threads_now() { return omp_get_max_threads(); }
void set_threads(int threads) { omp_set_num_threads(threads); }
#else
int threads_now() { return 1; }
void set_threads(int) {}
#endif

}  // namespace

ThreadCount::ThreadCount(int threads) : before_(threads_now()) {
  if (threads > 0) set_threads(threads);
}
ThreadCount::~ThreadCount() { set_threads(before_); }

void FreeMemory::operator()(void* memory) const { std::free(memory); }

Workspace make_workspace(std::size_t bytes) {
  Workspace workspace(std::aligned_alloc(64, std::max<std::size_t>((bytes + 63) / 64 * 64, 64)));
  if (!workspace) throw std::bad_alloc();
  return workspace;
}

Result<TimedRun> TimedRun::verify(host::HostProblem& problem, const VerifyImplementation& implementation,
                                  canopy_dtype output, bool stash) {
  auto params = problem.verify();
  if (!params) return params.error();
  const Problem& view = params->problem;
  TimedRun timed;
  timed.verify_ = &implementation;
  timed.verify_params_ = *params;
  timed.o_ = host::HostTensor::make(output, {view.batch, view.nodes, view.heads_v, view.dim_v});
  timed.verify_params_.o = timed.o_.view();
  if (stash) {
    timed.u_ = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
    timed.l_ = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v});
    timed.verify_params_.stash_u = timed.u_.view();
    timed.verify_params_.stash_l = timed.l_.view();
  }
  timed.workspace_ = make_workspace(implementation.workspace(timed.verify_params_));
  if (const auto first = timed.run(); !first) return first.error();
  return timed;
}

Result<TimedRun> TimedRun::commit(host::HostProblem& problem, const CommitParams& params,
                                  const CommitImplementation& implementation) {
  TimedRun timed;
  timed.commit_ = &implementation;
  timed.commit_params_ = params;
  timed.state_ = problem.tensors.at("state");
  timed.commit_params_.problem.state.data = timed.state_.bytes.data();
  timed.workspace_ = make_workspace(implementation.workspace(timed.commit_params_));
  if (const auto first = timed.run(); !first) return first.error();
  return timed;
}

Result<double> TimedRun::run() {
  const double start = now();
  const Error error = verify_ ? verify_->run(verify_params_, workspace_.get(), nullptr)
                              : commit_->run(commit_params_, workspace_.get(), nullptr);
  const double seconds = now() - start;
  if (!error.ok()) return error;
  return seconds;
}

Result<std::vector<double>> interleaved_medians(std::vector<TimedRun>& runs, int rounds) {
  std::vector<std::vector<double>> seconds(runs.size());
  const double start = now();
  for (int round = 0; round < rounds || (round < kMostRounds && now() - start < kEnoughSeconds); ++round)
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto time = runs[i].run();
      if (!time) return time.error();
      seconds[i].push_back(*time);
    }
  std::vector<double> medians;
  for (auto& times : seconds) {
    std::sort(times.begin(), times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

}  // namespace canopy::cli
