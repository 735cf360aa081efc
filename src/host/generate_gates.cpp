// Gates and betas of generated problems, in either form.
#include <cmath>
#include <limits>

#include "host/generate.hpp"

namespace canopy::host {
namespace {

// Log gate of node i of n. A trained layer forgets between a thousandth and four tenths a token: g is log-uniform over
// [-0.5, -0.001]. The hostile ones are docs/math.md's list; what they do not name stays natural.
float log_gate(Gates gates, const Stream& random, std::uint64_t at, int i, int n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  switch (gates) {
    case Gates::zero:
      return 0.0f;
    case Gates::all_strong:
      return -1e4f;
    case Gates::half_half:
      return i < n / 2 ? -20.0f : -0.001f;
    case Gates::tiny:
      return -5e-7f;
    case Gates::positive:
      return 0.01f * random.uniform(at);
    case Gates::root_strong:
      if (i == 0) return -1e4f;
      break;
    case Gates::root_912:
      if (i == 0) return -912.0f;
      break;
    case Gates::eighth:
      if (i % 8 == 0) return -100.0f;
      break;
    case Gates::inf_root:
      if (i == 0) return -kInf;
      break;
    case Gates::inf_middle:
      if (i == n / 2) return -kInf;
      break;
    case Gates::inf_leaf:
      if (i == n - 1) return -kInf;
      break;  // the last node has no child
    case Gates::natural:
      break;
  }
  return -0.001f * std::exp(std::log(500.0f) * random.uniform(at));
}

// The argument of the sigmoid; +-200 are beta 1 and 0 exactly in fp32.
float beta_logit(Betas betas, const Stream& random, std::uint64_t at, int i) {
  switch (betas) {
    case Betas::zero:
      return -200.0f;
    case Betas::one:
      return 200.0f;
    case Betas::mixed:
      if (i % 3 != 2) return i % 3 == 0 ? 200.0f : -200.0f;
      break;
    case Betas::natural:
      break;
  }
  return random.normal(at);
}

float sigmoid(float x) { return x >= 200.0f ? 1.0f : x <= -200.0f ? 0.0f : 1.0f / (1.0f + std::exp(-x)); }

// a such that -exp(A_log) softplus(a + dt_bias) = g: softplus inverted, linear past its threshold of 20.
float raw_gate(float g, float a_log, float dt_bias) {
  const float y = -g / std::exp(a_log);
  const float x = y == 0.0f ? -200.0f : y > 20.0f ? y : std::log(std::expm1(y));
  return x - dt_bias;
}

}  // namespace

void fill_gates(const ProblemSpec& spec, const Shapes& s, HostProblem& problem) {
  const canopy_dtype dtype = spec.raw_gates ? spec.input : CANOPY_F32;
  HostTensor gate = HostTensor::make(dtype, {s.B, s.T, s.HV}), beta = gate;
  HostTensor a_log = HostTensor::make(CANOPY_F32, {s.HV}), dt_bias = a_log;
  const Stream a_random = stream(spec, StreamId::a_log), dt_random = stream(spec, StreamId::dt_bias);
  for (std::int64_t hv = 0; hv < s.HV; ++hv) {  // A uniform over [1, 16], as these layers are initialised
    a_log.set(hv, std::log(1.0f + 15.0f * a_random.uniform(static_cast<std::uint64_t>(hv))));
    dt_bias.set(hv, dt_random.normal(static_cast<std::uint64_t>(hv)));
  }
  const Stream g_random = stream(spec, StreamId::gate), beta_random = stream(spec, StreamId::beta);
#pragma omp parallel for collapse(2) if (gate.elements() > kParallelElements / 8)
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      const int n = s.live[static_cast<std::size_t>(b)];
      for (std::int64_t hv = 0; hv < s.HV; ++hv) {
        const std::int64_t at = (b * s.T + i) * s.HV + hv;
        const float g = log_gate(spec.gates, g_random, static_cast<std::uint64_t>(at), static_cast<int>(i), n);
        const float logit = beta_logit(spec.betas, beta_random, static_cast<std::uint64_t>(at), static_cast<int>(i));
        gate.set(at, spec.raw_gates ? raw_gate(g, a_log.get(hv), dt_bias.get(hv)) : g);
        beta.set(at, spec.raw_gates ? logit : sigmoid(logit));
      }
    }
  }
  if (spec.raw_gates) {
    problem.tensors["A_log"] = std::move(a_log), problem.tensors["dt_bias"] = std::move(dt_bias);
  }
  problem.tensors[spec.raw_gates ? "a" : "g"] = std::move(gate);
  problem.tensors[spec.raw_gates ? "b" : "beta"] = std::move(beta);
}

}  // namespace canopy::host
