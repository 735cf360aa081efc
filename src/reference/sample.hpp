// Heads made from a seed: what the tests of the reference and `canopy study` feed it. Values are rounded to fp32, so
// an fp32 run and the fp64 oracle see the same inputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>

#include "canopy/reference.hpp"

namespace canopy::reference {

struct Sample {
  int dim_k = 128, dim_v = 128;
  std::uint64_t seed = 0;
  double cosine = 0;      // between any two keys; 1: all keys equal
  bool opposite = false;  // keys flip sign from depth to depth
  bool two_keys = false;  // two fixed keys take turns by depth
  double key_norm = 1;
  double state_scale = 1;
  std::function<double(int node, int depth)> gate;  // log gate; empty: -0.7 u^2 with u uniform, mostly near 0
  std::function<double(int node, int depth)> beta;  // empty: uniform in [0,1]
};

class SampleSource {
 public:
  explicit SampleSource(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double normal() {  // Box-Muller: std::normal_distribution differs between libraries
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  }
  std::vector<double> unit(int width) {
    std::vector<double> x(width);
    double sum = 0;
    for (double& e : x) e = normal(), sum += e * e;
    for (double& e : x) e /= std::sqrt(sum);
    return x;
  }

 private:
  std::mt19937_64 engine_;
};

inline Head<double> sample_head(const Tree& tree, const Sample& spec) {
  SampleSource source(spec.seed);
  Head<double> head;
  head.tree = &tree, head.dim_k = spec.dim_k, head.dim_v = spec.dim_v;
  const auto as_float = [](double x) { return double(float(x)); };
  const std::vector<double> common = source.unit(spec.dim_k), other = source.unit(spec.dim_k);
  const double q_scale = 1 / std::sqrt(double(spec.dim_k));
  for (int i = 0; i < tree.size(); ++i) {
    const int depth = tree.depths()[i];
    const std::vector<double> own = source.unit(spec.dim_k), q = source.unit(spec.dim_k);
    std::vector<double> key(spec.dim_k);
    double sum = 0;
    for (int c = 0; c < spec.dim_k; ++c) {
      // sqrt(cos) common + sqrt(1 - cos) own: two such keys have the asked cosine, own parts being nearly orthogonal
      key[c] = spec.two_keys ? (depth % 2 ? common[c] : other[c])
                             : std::sqrt(spec.cosine) * common[c] + std::sqrt(1 - spec.cosine) * own[c];
      sum += key[c] * key[c];
    }
    const double norm = (spec.opposite && depth % 2 ? -1 : 1) * spec.key_norm / std::sqrt(sum);
    for (int c = 0; c < spec.dim_k; ++c) {
      head.k.push_back(as_float(key[c] * norm));
      head.q.push_back(as_float(q[c] * q_scale));
    }
    for (int c = 0; c < spec.dim_v; ++c) head.v.push_back(as_float(source.normal()));
    const double gate = source.uniform(), beta = source.uniform();
    head.g.push_back(as_float(spec.gate ? spec.gate(i, depth) : -0.7 * gate * gate));
    head.beta.push_back(as_float(spec.beta ? spec.beta(i, depth) : beta));
  }
  for (int e = 0; e < spec.dim_k * spec.dim_v; ++e) head.state.push_back(as_float(spec.state_scale * source.normal()));
  return head;
}

// Error against the oracle over all entries; NaN or Inf in `values` alone gives infinity.
struct SampleError {
  double relative = 0;  // Frobenius
  double max_abs = 0;
};
template <class Real>
SampleError sample_error(const std::vector<double>& truth, const std::vector<Real>& values) {
  SampleError error;
  double difference = 0, norm = 0;
  for (std::size_t e = 0; e < truth.size(); ++e) {
    const double d = std::abs(double(values[e]) - truth[e]);
    if (!std::isfinite(d)) return {HUGE_VAL, HUGE_VAL};
    difference += d * d, norm += truth[e] * truth[e];
    error.max_abs = std::max(error.max_abs, d);
  }
  error.relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  return error;
}

}  // namespace canopy::reference
