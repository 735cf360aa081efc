// Commit (E8): the state after the accepted node, three ways. On a path the log gates are summed from the leaf upwards:
// that gives l_a - l_j itself, with nothing to cancel, so neither two-float sums nor a stored l are needed.
#include <cmath>

#include "gates.hpp"
#include "reference/recurrence.hpp"
#include "reference/system.hpp"

namespace canopy::reference {
namespace {

// exp(l_a) S0 + sum over the path of Gam_aj k_j u_j^T; row p of u [m,V] belongs to path[p].
template <class Real>
std::vector<Real> state_from_u(const Head<Real>& head, const std::vector<std::int32_t>& path,
                               const std::vector<Real>& u) {
  std::vector<Real> state(head.state.size(), Real(0));
  const auto accumulate = [&](int r, Real weight, const Real* row) {
    for (int c = 0; c < head.dim_v; ++c) state[std::size_t(r) * head.dim_v + c] += weight * row[c];
  };
  Real above = 0;  // l_a - l_j: the log gates strictly below j
  for (int p = static_cast<int>(path.size()) - 1; p >= 0; --p) {
    const int j = path[p];
    const Real gamma = std::exp(above);
    for (int r = 0; r < head.dim_k; ++r) {
      accumulate(r, gamma * head.k[std::size_t(j) * head.dim_k + r], &u[std::size_t(p) * head.dim_v]);
    }
    above += clamp_log_gate(head.g[j]);
  }
  const Real decay = std::exp(above);
  for (int r = 0; r < head.dim_k; ++r) accumulate(r, decay, &head.state[std::size_t(r) * head.dim_v]);
  return state;
}

// rows path[0], path[1], ... of a [T,width] array.
template <class Real>
std::vector<Real> gather(const std::vector<Real>& rows, int width, const std::vector<std::int32_t>& path) {
  std::vector<Real> out;
  for (const int j : path) out.insert(out.end(), &rows[std::size_t(j) * width], &rows[std::size_t(j) * width] + width);
  return out;
}

}  // namespace

// Verification kept U; only the path's rows of it are read.
template <class Real>
std::vector<Real> commit_stash(const Head<Real>& head, const Output<Real>& stash, int leaf) {
  const auto path = head.tree->path(leaf);
  return state_from_u(head, path, gather(stash.u, head.dim_v, path));
}

// Verification kept nothing: u on a path depends on that path alone, so its m x m chain is solved again.
template <class Real>
std::vector<Real> commit_resolve(const Head<Real>& head, int leaf) {
  const auto path = head.tree->path(leaf);
  std::vector<std::int32_t> parents;
  for (int p = 0; p < static_cast<int>(path.size()); ++p) parents.push_back(p - 1);
  const Result<Tree> chain = Tree::from_parents(parents);
  Head<Real> on_path{&*chain,
                     head.dim_k,
                     head.dim_v,
                     gather(head.q, head.dim_k, path),
                     gather(head.k, head.dim_k, path),
                     gather(head.v, head.dim_v, path),
                     gather(head.g, 1, path),
                     gather(head.beta, 1, path),
                     head.state};
  const System<Real> system = build_system(on_path, ancestor_sets(*chain));
  return state_from_u(head, path, solve(system, *chain, Solver::row, kMaxNodes));
}

// E1 along the path: the same operations in the same order whatever tree the path is part of.
template <class Real>
std::vector<Real> commit_replay(const Head<Real>& head, int leaf) {
  std::vector<Real> state = head.state, u(head.dim_v);
  for (const int j : head.tree->path(leaf)) {
    step(state.data(), &head.k[std::size_t(j) * head.dim_k], &head.v[std::size_t(j) * head.dim_v], head.g[j],
         head.beta[j], head.dim_k, head.dim_v, u.data());
  }
  return state;
}

template std::vector<float> commit_stash(const Head<float>&, const Output<float>&, int);
template std::vector<double> commit_stash(const Head<double>&, const Output<double>&, int);
template std::vector<float> commit_resolve(const Head<float>&, int);
template std::vector<double> commit_resolve(const Head<double>&, int);
template std::vector<float> commit_replay(const Head<float>&, int);
template std::vector<double> commit_replay(const Head<double>&, int);

}  // namespace canopy::reference
