#include "timing.hpp"

#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <new>

#include "host/device.hpp"

namespace canopy::cli {
namespace {

constexpr double kEnoughSeconds = 0.3;
constexpr int kMostRounds = 50;

#ifdef _OPENMP
int threads_now() { return omp_get_max_threads(); }
void set_threads(int threads) { omp_set_num_threads(threads); }
#else
int threads_now() { return 1; }
void set_threads(int) {}
#endif

// Larger than any cache, read and written between cold runs.
void fill_caches() {
  static std::vector<char> other(std::size_t{128} << 20);
  for (std::size_t i = 0; i < other.size(); i += 64) ++other[i];
}

}  // namespace

ThreadCount::ThreadCount(int threads) : before_(threads_now()) {
  if (threads > 0) set_threads(threads);
}
ThreadCount::~ThreadCount() { set_threads(before_); }

Workspace::Workspace(std::size_t bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = data, bytes_ = bytes;
}
Workspace::Workspace(Workspace&& other) noexcept { *this = std::move(other); }
Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Workspace::~Workspace() {
  if (data_) munmap(data_, bytes_);
}
std::size_t Workspace::touched() const {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  std::vector<unsigned char> pages((bytes_ + page - 1) / page);
  if (!data_ || mincore(data_, bytes_, pages.data()) != 0) return 0;
  return page * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

Result<TimedRun> TimedRun::verify(host::HostProblem& problem, const VerifyImplementation& implementation,
                                  canopy_dtype output, bool stash) {
  if (implementation.device == CANOPY_CUDA) {
    auto on = host::VerifyOnDevice::make(problem, implementation, output, stash);
    if (!on) return on.error();
    TimedRun timed;
    timed.on_device_ = [own = std::make_shared<host::VerifyOnDevice>(std::move(*on))] { return own->run(); };
    if (const auto first = timed.run(); !first) return first.error();
    return timed;
  }
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
  timed.workspace_ = Workspace(implementation.workspace(timed.verify_params_));
  if (const auto first = timed.run(); !first) return first.error();
  return timed;
}

Result<TimedRun> TimedRun::commit(host::HostProblem& problem, const CommitParams& params,
                                  const CommitImplementation& implementation) {
  TimedRun timed;
  if (implementation.device == CANOPY_CUDA) {
    auto on = host::CommitOnDevice::make(problem, params, implementation);
    if (!on) return on.error();
    timed.on_device_ = [own = std::make_shared<host::CommitOnDevice>(std::move(*on))] { return own->run(); };
    if (const auto first = timed.run(); !first) return first.error();
    return timed;
  }
  timed.commit_ = &implementation;
  timed.commit_params_ = params;
  timed.state_ = problem.tensors.at("state");
  timed.commit_params_.problem.state.data = timed.state_.bytes.data();
  timed.workspace_ = Workspace(implementation.workspace(timed.commit_params_));
  if (const auto first = timed.run(); !first) return first.error();
  return timed;
}

Result<double> TimedRun::run() {
  if (on_device_) return on_device_();
  const double start = now();
  const Error error = verify_ ? verify_->run(verify_params_, workspace_.get(), nullptr)
                              : commit_->run(commit_params_, workspace_.get(), nullptr);
  const double seconds = now() - start;
  if (!error.ok()) return error;
  return seconds;
}

Result<std::vector<std::vector<double>>> times_in_turn(std::vector<TimedRun>& runs, int rounds, bool cold,
                                                       const std::function<void(int)>& tick) {
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (cold) fill_caches();
      const auto time = runs[i].run();
      if (!time) return time.error();
      seconds[i].push_back(*time);
    }
    if (tick) tick(round + 1);
  }
  return seconds;
}

Result<std::vector<double>> interleaved_medians(std::vector<TimedRun>& runs, int rounds) {
  std::vector<std::vector<double>> seconds(runs.size());
  const double start = now();
  for (int round = 0; round < rounds || (round < kMostRounds && now() - start < kEnoughSeconds); ++round) {
    const auto once = times_in_turn(runs, 1, false, nullptr);
    if (!once) return once.error();
    for (std::size_t i = 0; i < runs.size(); ++i) seconds[i].push_back((*once)[i].front());
  }
  std::vector<double> medians;
  for (auto& times : seconds) {
    std::sort(times.begin(), times.end());
    medians.push_back(times[times.size() / 2]);
  }
  return medians;
}

}  // namespace canopy::cli
