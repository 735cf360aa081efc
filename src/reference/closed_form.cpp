// The closed form: every node at once, from one unit-lower-triangular system. Masks select, they never multiply: what
// stands in a sibling's branch, NaN included, is not read.
#include <cmath>
#include <utility>

#include "gates.hpp"
#include "reference/system.hpp"

namespace canopy::reference {
namespace {

// Sixteen partial sums, added in pairs: in fp32 a single running sum over K = 128 would be the largest error of all.
template <class Real>
Real dot(const Real* x, const Real* y, int count) {
  constexpr int kLanes = 16;
  Real part[kLanes] = {};
  for (int c = 0; c < count; ++c) part[c % kLanes] += x[c] * y[c];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  }
  return part[0];
}

// S0^T x, [V].
template <class Real>
std::vector<Real> state_times(const Head<Real>& head, const Real* x) {
  std::vector<Real> product(head.dim_v, Real(0));
  for (int r = 0; r < head.dim_k; ++r) {
    for (int c = 0; c < head.dim_v; ++c) product[c] += x[r] * head.state[std::size_t(r) * head.dim_v + c];
  }
  return product;
}

}  // namespace

std::vector<NodeSet> ancestor_sets(const Tree& tree) {
  std::vector<NodeSet> sets;
  for (int i = 0; i < tree.size(); ++i) sets.push_back(tree.ancestors(i));
  return sets;
}

template <class Real>
System<Real> build_system(const Head<Real>& head, std::vector<NodeSet> ancestors) {
  const auto parents = head.tree->parents();
  const int T = head.tree->size(), K = head.dim_k, V = head.dim_v;
  System<Real> s;
  s.nodes = T, s.dim_v = V, s.ancestors = std::move(ancestors);
  s.l.resize(T), s.g.resize(std::size_t(T) * T), s.c.resize(std::size_t(T) * T);
  s.r.resize(std::size_t(T) * V), s.from_state.resize(std::size_t(T) * V);

  for (int i = 0; i < T; ++i) {  // E2
    s.l[i] = add(parents[i] < 0 ? TwoFloat<Real>{} : s.l[parents[i]], clamp_log_gate(head.g[i]));
  }
  for (int i = 0; i < T; ++i) {
    const Real* k_i = &head.k[std::size_t(i) * K];
    const Real* q_i = &head.q[std::size_t(i) * K];
    for (int j = 0; j < i; ++j) {
      if (!contains(s.ancestors[i], j)) continue;
      const Real* k_j = &head.k[std::size_t(j) * K];
      const Real gamma = std::exp(difference(s.l[i], s.l[j]));                // E3, only where the mask is set
      s.g[std::size_t(i) * T + j] = head.beta[i] * gamma * dot(k_i, k_j, K);  // E4
      s.c[std::size_t(i) * T + j] = gamma * dot(q_i, k_j, K);                 // E7
    }
    s.c[std::size_t(i) * T + i] = dot(q_i, k_i, K);

    const Real decay = std::exp(s.l[i].hi);
    const std::vector<Real> seen = state_times(head, k_i), read = state_times(head, q_i);
    for (int c = 0; c < V; ++c) {
      s.r[std::size_t(i) * V + c] = head.beta[i] * (head.v[std::size_t(i) * V + c] - decay * seen[c]);  // E5
      s.from_state[std::size_t(i) * V + c] = decay * read[c];
    }
  }
  return s;
}

template <class Real>
std::vector<Real> outputs(const System<Real>& s, const std::vector<Real>& u) {
  std::vector<Real> o = s.from_state;
  for (int i = 0; i < s.nodes; ++i) {
    for (int j = 0; j <= i; ++j) {
      if (j != i && !contains(s.ancestors[i], j)) continue;
      const Real weight = s.c[std::size_t(i) * s.nodes + j];
      for (int c = 0; c < s.dim_v; ++c) o[std::size_t(i) * s.dim_v + c] += weight * u[std::size_t(j) * s.dim_v + c];
    }
  }
  return o;
}

template <class Real>
Output<Real> closed_form(const Head<Real>& head, Solver solver, int block_rows) {
  const System<Real> system = build_system(head, ancestor_sets(*head.tree));
  Output<Real> out;
  out.u = solve(system, *head.tree, solver, block_rows);
  out.o = outputs(system, out.u);
  for (const TwoFloat<Real>& l : system.l) out.l.push_back(l.hi);
  return out;
}

template <class Real>
std::vector<Real> build_g(const Head<Real>& head) {
  return build_system(head, ancestor_sets(*head.tree)).g;
}

template System<float> build_system(const Head<float>&, std::vector<NodeSet>);
template System<double> build_system(const Head<double>&, std::vector<NodeSet>);
template std::vector<float> outputs(const System<float>&, const std::vector<float>&);
template std::vector<double> outputs(const System<double>&, const std::vector<double>&);
template Output<float> closed_form(const Head<float>&, Solver, int);
template Output<double> closed_form(const Head<double>&, Solver, int);
template std::vector<float> build_g(const Head<float>&);
template std::vector<double> build_g(const Head<double>&);

}  // namespace canopy::reference
