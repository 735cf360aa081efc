#include "measure.hpp"

#include <algorithm>
#include <cmath>

#include "command.hpp"
#include "cpu/kernels.hpp"

namespace canopy::cli {
namespace {

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

}  // namespace canopy::cli
