// Inside the reference: the linear system of one head (E2 to E7) between the inputs and a solver. Tests use it to share
// one system among all solvers and to hand in damaged ancestor sets.
#pragma once

#include <functional>
#include <vector>

#include "canopy/reference.hpp"
#include "two_float.hpp"

namespace canopy::reference {

template <class Real>
struct System {
  int nodes = 0, dim_v = 0;
  std::vector<NodeSet> ancestors;  // [T] strict ancestors A(i): the mask of G, and of C with its diagonal
  std::vector<TwoFloat<Real>> l;   // [T] E2
  std::vector<Real> g;             // [T,T] E4, 0 off the mask
  std::vector<Real> c;             // [T,T] E7, 0 off the mask
  std::vector<Real> r;             // [T,V] E5
  std::vector<Real> from_state;    // [T,V] diag(exp l) Q S0, the part of O that the solve does not touch
};

std::vector<NodeSet> ancestor_sets(const Tree& tree);

template <class Real>
System<Real> build_system(const Head<Real>& head, std::vector<NodeSet> ancestors);

// Sees U [T,V] so far after each step that waits for the one before: a row, a block, a level, a term, a factor. Rows
// that a substitution has not reached stand at R.
template <class Real>
using Watch = std::function<void(const std::vector<Real>& u)>;

// U of (E6), [T,V].
template <class Real>
std::vector<Real> solve(const System<Real>& system, const Tree& tree, Solver solver, int block_rows,
                        const Watch<Real>& watch = {});

// O of (E7), [T,V].
template <class Real>
std::vector<Real> outputs(const System<Real>& system, const std::vector<Real>& u);

}  // namespace canopy::reference
