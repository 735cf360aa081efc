// The readable truth: E1 in fp64 and the closed form with every solver, on one value head of one sequence. Everything
// is dense, row-major and already prepared (q scaled, q and k normalised, gates as log gates).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "canopy/problem.hpp"
#include "canopy/tree.hpp"

namespace canopy::reference {

template <class Real>
struct Head {
  const Tree* tree = nullptr;  // T nodes
  int dim_k = 0, dim_v = 0;    // K, V
  std::vector<Real> q, k;      // [T,K]
  std::vector<Real> v;         // [T,V]
  std::vector<Real> g, beta;   // [T] log gate and beta
  std::vector<Real> state;     // [K,V] S0
};

template <class Real>
struct Output {
  std::vector<Real> o;  // [T,V]
  std::vector<Real> u;  // [T,V] pseudo-values
  std::vector<Real> l;  // [T] cumulative log gates
};

// E1 node by node, a state per node. `states` (may be nullptr) receives [T][K*V].
Output<double> oracle(const Head<double>& head, std::vector<std::vector<double>>* states = nullptr);

// Solvers of (E6).
enum class Solver { row, blocked, level, path_blocked, neumann, squaring };
inline constexpr Solver kSolvers[] = {Solver::row,          Solver::blocked, Solver::level,
                                      Solver::path_blocked, Solver::neumann, Solver::squaring};
std::string_view name_of(Solver solver);
// Substitution in one order or another: bounded error on every input. Neumann and squaring are not.
bool stable(Solver solver);

// E2 to E7. block_rows is read by the blocked solvers. Defined for float and double.
template <class Real>
Output<Real> closed_form(const Head<Real>& head, Solver solver, int block_rows = CANOPY_BLOCK_ROWS);

// The state after `leaf`, [K,V]: from the stash, by solving the path again, by E1 along the path.
template <class Real>
std::vector<Real> commit_stash(const Head<Real>& head, const Output<Real>& stash, int leaf);
template <class Real>
std::vector<Real> commit_resolve(const Head<Real>& head, int leaf);
template <class Real>
std::vector<Real> commit_replay(const Head<Real>& head, int leaf);

// G of (E4), [T,T], zero on and above the diagonal: (E6) solves (I + G) U = R. For tests.
template <class Real>
std::vector<Real> build_g(const Head<Real>& head);

// Value head `hv` of sequence b of a problem on the host, with gates, norm and scale applied in fp64, S0 from its slot.
// The row must be live (not padding, count >= 1, well formed); `tree` must outlive the head.
Head<double> load_head(const Problem& problem, int b, int hv, const Tree& tree);
template <class Real>
Head<Real> convert(const Head<double>& head);

}  // namespace canopy::reference
