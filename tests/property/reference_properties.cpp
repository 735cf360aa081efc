// Properties of the closed form on trees, inputs and block sizes that RapidCheck chooses and shrinks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

// A parent array that shrinks to fewer nodes and to smaller parents.
std::vector<std::int32_t> any_parents() {
  const int nodes = *rc::gen::inRange(1, 70);
  std::vector<std::int32_t> parents{-1};
  for (int i = 1; i < nodes; ++i)
    parents.push_back(*rc::gen::weightedOneOf<int>({{2, rc::gen::just(i - 1)}, {1, rc::gen::inRange(0, i)}}));
  return parents;
}

Head<double> any_head(const Tree& tree) {
  Sample spec;
  spec.dim_k = 8, spec.dim_v = 4;
  spec.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  spec.cosine = *rc::gen::element(0.0, 0.5, 0.95, 1.0);
  const double gate = *rc::gen::element(0.0, -0.01, -1.0, -100.0, -1e4, -std::numeric_limits<double>::infinity(), 1e-3);
  const int where = *rc::gen::inRange(0, tree.size());
  spec.gate = [=](int node, int) { return node == where ? gate : -0.05; };
  return sample_head(tree, spec);
}

RC_GTEST_PROP(ReferenceProperties, SubstitutionsAgreeToTheBitForEveryBlockSize, ()) {
  const Tree tree = test::tree_of(any_parents());
  const Head<float> head = convert<float>(any_head(tree));
  const int rows = *rc::gen::inRange(1, 40);
  const Output<float> expected = closed_form(head, Solver::row);
  for (const Solver solver : {Solver::blocked, Solver::level, Solver::path_blocked}) {
    const Output<float> out = closed_form(head, solver, rows);
    RC_ASSERT(test::same_bits(out.u.data(), expected.u.data(), int(expected.u.size())));
    RC_ASSERT(test::same_bits(out.o.data(), expected.o.data(), int(expected.o.size())));
  }
}

RC_GTEST_PROP(ReferenceProperties, TheClosedFormIsTheRecurrence, ()) {
  const Tree tree = test::tree_of(any_parents());
  const Head<double> head = any_head(tree);
  std::vector<std::vector<double>> states;
  const Output<double> truth = oracle(head, &states), out = closed_form(head, Solver::path_blocked);
  RC_ASSERT(sample_error(truth.o, out.o).max_abs < 1e-12);
  RC_ASSERT(sample_error(truth.u, out.u).max_abs < 1e-12);
  const int leaf = *rc::gen::inRange(0, tree.size());
  RC_ASSERT(sample_error(states[leaf], commit_stash(head, out, leaf)).max_abs < 1e-12);
  RC_ASSERT(sample_error(states[leaf], commit_resolve(head, leaf)).max_abs < 1e-12);
}

// Whatever happens to a node, only its subtree notices, whatever the solver.
RC_GTEST_PROP(ReferenceProperties, ANodeIsSeenByItsSubtreeOnly, ()) {
  const Tree tree = test::tree_of(any_parents());
  const Head<float> head = convert<float>(any_head(tree));
  const int top = *rc::gen::inRange(0, tree.size());
  const Solver solver = *rc::gen::elementOf(std::vector<Solver>(std::begin(kSolvers), std::end(kSolvers)));
  const float value =
      *rc::gen::element(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f, 0.125f);
  Head<float> other = head;
  std::fill_n(&other.k[top * 8], 8, value);
  std::fill_n(&other.v[top * 4], 4, value);
  const Output<float> a = closed_form(head, solver), b = closed_form(other, solver);
  for (int i = 0; i < tree.size(); ++i) {
    const bool inside = i == top || contains(tree.ancestors(i), top);
    if (!inside)
      RC_ASSERT(test::same_bits(&a.o[i * 4], &b.o[i * 4], 4) && test::same_bits(&a.u[i * 4], &b.u[i * 4], 4));
    if (i == top) RC_ASSERT(!test::same_bits(&a.u[i * 4], &b.u[i * 4], 4));
  }
}

}  // namespace
}  // namespace canopy
