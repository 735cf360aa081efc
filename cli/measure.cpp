#include "measure.hpp"

#include <sys/mman.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "cpu/kernels.hpp"

namespace canopy::cli {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Ancestors summed over the live nodes of all sequences, and those nodes.
struct Counts {
  double nodes = 0, ancestors = 0;
};
Counts count(const Oracle& oracle) {
  Counts counts;
  for (std::size_t b = 0; b < oracle.trees.size(); ++b)
    for (int i = 0; i < oracle.live[b]; ++i) ++counts.nodes, counts.ancestors += oracle.trees[b].depths()[i];
  return counts;
}

// Larger than any cache, read and written between cold runs.
void fill_caches() {
  static std::vector<char> other(std::size_t{128} << 20);
  for (std::size_t i = 0; i < other.size(); i += 64) ++other[i];
}

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) { return values[static_cast<std::size_t>(std::lround(q * (values.size() - 1)))]; };
  return {at(0.5), at(0.1), at(0.9)};
}

double closed_form_flops(const Problem& view, const Oracle& oracle) {
  const Counts c = count(oracle);
  const double against_state = 2.0 * 2.0 * c.nodes * view.heads_v * view.dim_k * view.dim_v;
  const double raw = 2.0 * (2.0 * c.ancestors + c.nodes) * view.heads_k * view.dim_k;    // k.k, q.k
  const double solve = 2.0 * (2.0 * c.ancestors + c.nodes) * view.heads_v * view.dim_v;  // G u, C u
  return against_state + raw + solve;
}

double recurrence_flops(const Problem& view, const Oracle& oracle) {
  return 7.0 * count(oracle).nodes * view.heads_v * view.dim_k * view.dim_v;
}

double least_bytes(host::HostProblem& problem, const Oracle& oracle) {
  double bytes = 0;
  for (const auto& [name, tensor] : problem.tensors) bytes += static_cast<double>(tensor.bytes.size());
  return bytes + count(oracle).nodes * oracle.row * sizeof(float);
}

double measured_peak(int threads) {
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    double flops = 0;
    const double start = now();
#pragma omp parallel for num_threads(threads) reduction(+ : flops)
    for (int t = 0; t < threads; ++t) {
      float sink[4] = {0.999f, 0.001f, 0, 0};
      flops += cpu::kernels().fma_burst(1000000, sink);
    }
    best = std::max(best, flops / (now() - start));
  }
  return best;
}

FreshMemory::FreshMemory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 64)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) data_ = nullptr;
}
FreshMemory::~FreshMemory() {
  if (data_) munmap(data_, bytes_);
}
std::size_t FreshMemory::resident() const {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  std::vector<unsigned char> pages((bytes_ + page - 1) / page);
  if (!data_ || mincore(data_, bytes_, pages.data()) != 0) return 0;
  return page * static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

Contender::Contender(const VerifyImplementation& implementation, const VerifyParams& params, host::HostTensor o)
    : implementation_(&implementation),
      o_(std::move(o)),
      params_([&] {
        VerifyParams own = params;
        own.o = o_.view();
        return own;
      }()),
      stated_(implementation.workspace(params_)),
      memory_(stated_) {}

Result<std::unique_ptr<Contender>> Contender::make(host::HostProblem& problem,
                                                   const VerifyImplementation& implementation) {
  const auto params = problem.verify();
  if (!params) return params.error();
  const Problem& view = params->problem;
  host::HostTensor o = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
  std::unique_ptr<Contender> contender(new Contender(implementation, *params, std::move(o)));
  if (const Error error = check(contender->params_); !error.ok()) return error;
  if (!contender->memory_.data())
    return Error::unsupported(std::string(implementation.name) + " needs " +
                              bytes_text(static_cast<double>(contender->stated_)) + " of workspace: not to be had");
  return contender;
}

Check Contender::parity(const Oracle& oracle) const {
  return check_rows(oracle, oracle.o, o_, implementation_->relative_tolerance, implementation_->absolute_tolerance);
}

double Contender::run() {
  const double start = now();
  const Error error = implementation_->run(params_, memory_.data(), nullptr);
  return error.ok() ? now() - start : std::nan("");
}

std::vector<std::vector<double>> time_in_turn(std::vector<std::unique_ptr<Contender>>& contenders, int repeat, bool cold,
                                              const std::function<void(int)>& tick) {
  for (auto& contender : contenders) contender->run();
  std::vector<std::vector<double>> seconds(contenders.size());
  for (int round = 0; round < repeat; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      if (cold) fill_caches();
      seconds[i].push_back(contenders[i]->run());
    }
    tick(round + 1);
  }
  return seconds;
}

}  // namespace canopy::cli
