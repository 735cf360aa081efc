// The gate formulas (docs/math.md, "Gates"), once for the oracle in fp64 and the kernels in fp32.
#pragma once

#include <cmath>

#include "host_device.hpp"

namespace canopy {

// The log gate that stands for "the past is forgotten". exp of it is exactly 0 in fp32 (from -104) and fp64 (from
// -746), so replacing -inf, or anything below, by it changes no result; but sums and differences of log gates stay
// finite, where inf - inf would be NaN. A power of two: 256 of them on a path add up without rounding.
inline constexpr double kForgottenLogGate = -16384.0;

// Lets NaN through: a NaN gate is the caller's, and shows in the node's subtree.
template <class Real>
CANOPY_HOST_DEVICE Real clamp_log_gate(Real g) {
  return g < Real(kForgottenLogGate) ? Real(kForgottenLogGate) : g;
}

// log(1 + e^x), the identity above 20 as in PyTorch.
template <class Real>
CANOPY_HOST_DEVICE Real softplus(Real x) {
  return x > Real(20) ? x : std::log1p(std::exp(x));
}

// g = -exp(A_log) softplus(x) with x = a + dt_bias, clamped. Below -40 softplus(x) is e^x to the last bit, and one exp
// of the sum avoids inf * 0 when exp(A_log) overflows while softplus underflows.
template <class Real>
CANOPY_HOST_DEVICE Real log_gate_from_raw(Real a_log, Real x) {
  const Real magnitude = x < Real(-40) ? std::exp(a_log + x) : std::exp(a_log) * softplus(x);
  return clamp_log_gate(-magnitude);
}

// sigmoid(b), doubled when the model allows negative eigenvalues (beta up to 2).
template <class Real>
CANOPY_HOST_DEVICE Real beta_from_raw(Real b, bool doubled) {
  const Real sigmoid = Real(1) / (Real(1) + std::exp(-b));
  return doubled ? Real(2) * sigmoid : sigmoid;
}

// What a key or query is multiplied by: rsqrt(sum x^2 + eps).
template <class Real>
CANOPY_HOST_DEVICE Real inverse_norm(Real sum_of_squares, Real eps) {
  return Real(1) / std::sqrt(sum_of_squares + eps);
}

}  // namespace canopy
