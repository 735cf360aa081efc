// One step of the gated delta rule (E1), in place on one state.
#pragma once

#include <cmath>

#include "gates.hpp"

namespace canopy::reference {

// state [K,V] goes from the parent's to the node's; u [V] receives the pseudo-value.
template <class Real>
void step(Real* state, const Real* k, const Real* v, Real g, Real beta, int dim_k, int dim_v, Real* u) {
  const Real alpha = std::exp(clamp_log_gate(g));
  for (int c = 0; c < dim_v; ++c) u[c] = 0;
  for (int r = 0; r < dim_k; ++r) {
    for (int c = 0; c < dim_v; ++c) {
      state[r * dim_v + c] *= alpha;        // S~
      u[c] += k[r] * state[r * dim_v + c];  // S~^T k
    }
  }
  for (int c = 0; c < dim_v; ++c) u[c] = beta * (v[c] - u[c]);
  for (int r = 0; r < dim_k; ++r) {
    for (int c = 0; c < dim_v; ++c) state[r * dim_v + c] += k[r] * u[c];
  }
}

}  // namespace canopy::reference
