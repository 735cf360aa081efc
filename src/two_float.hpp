// A number kept as an unevaluated sum hi + lo of two Reals, |lo| <= ulp(hi) / 2: twice the digits. Cumulative log gates
// need it, because l_i - l_j cancels: after a gate of -1e4 at the root, a plain fp32 sum is off by 5e-4 in every
// exponent below it. Additions only, so fused multiply-add cannot break it; never build it with -ffast-math.
#pragma once

#include "host_device.hpp"

namespace canopy {

template <class Real>
struct TwoFloat {
  Real hi = 0, lo = 0;
};

// Knuth's TwoSum: hi + lo == a + b exactly, for any a and b.
template <class Real>
CANOPY_HOST_DEVICE TwoFloat<Real> two_sum(Real a, Real b) {
  const Real sum = a + b;
  const Real b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

template <class Real>
CANOPY_HOST_DEVICE TwoFloat<Real> add(TwoFloat<Real> x, Real y) {
  const TwoFloat<Real> sum = two_sum(x.hi, y);
  return two_sum(sum.hi, sum.lo + x.lo);  // brings lo back under ulp(hi) / 2
}

// x - y rounded to one Real. The leading parts cancel exactly, the trailing parts hold what is left.
template <class Real>
CANOPY_HOST_DEVICE Real difference(TwoFloat<Real> x, TwoFloat<Real> y) {
  return (x.hi - y.hi) + (x.lo - y.lo);
}

}  // namespace canopy
