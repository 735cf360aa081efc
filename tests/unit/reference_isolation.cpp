// What a node may depend on: its root path and nothing else. Poison, changes and wrong masks are put elsewhere.
#include <cmath>
#include <limits>

#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

bool below(const Tree& tree, int top, int node) { return node == top || contains(tree.ancestors(node), top); }

// Node `top` gets `value` in every input: outside its subtree no bit may change, inside every node must show it.
template <class Real>
void expect_isolated(const Head<double>& clean, int top, double value, Solver solver) {
  Head<double> dirty = clean;
  const int K = clean.dim_k, V = clean.dim_v;
  std::fill_n(&dirty.q[std::size_t(top) * K], K, value);
  std::fill_n(&dirty.k[std::size_t(top) * K], K, value);
  std::fill_n(&dirty.v[std::size_t(top) * V], V, value);
  dirty.g[top] = std::isfinite(value) ? -0.25 : value, dirty.beta[top] = value;
  const Output<Real> a = closed_form(convert<Real>(clean), solver), b = closed_form(convert<Real>(dirty), solver);
  for (int i = 0; i < clean.tree->size(); ++i) {
    const bool same_o = test::same_bits(&a.o[std::size_t(i) * V], &b.o[std::size_t(i) * V], V);
    const bool same_u = test::same_bits(&a.u[std::size_t(i) * V], &b.u[std::size_t(i) * V], V);
    const bool inside = below(*clean.tree, top, i);
    EXPECT_EQ(same_o, !inside) << name_of(solver) << ", node " << i << " after " << value << " at " << top;
    EXPECT_EQ(same_u, !inside) << name_of(solver) << ", node " << i << " after " << value << " at " << top;
  }
}

TEST(ReferenceIsolation, PoisonStaysInItsSubtree) {
  const double values[] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e30,
                           0.5};
  for (const auto& parents : {test::random_parents(40, 0.5, 1), test::random_parents(40, 0.0, 2)}) {
    const Tree tree = test::tree_of(parents);
    Sample spec;
    spec.dim_k = 16, spec.dim_v = 4, spec.cosine = 0.3;
    const Head<double> head = sample_head(tree, spec);
    for (int top = 0; top < tree.size(); top += 3) {
      for (const double value : values) {
        for (const Solver solver : kSolvers) {
          expect_isolated<float>(head, top, value, solver);
          expect_isolated<double>(head, top, value, solver);
        }
      }
    }
  }
}

TEST(ReferenceIsolation, OracleKeepsPoisonInItsSubtree) {
  const Tree tree = test::tree_of(test::random_parents(40, 0.5, 3));
  Sample spec;
  spec.dim_k = 16, spec.dim_v = 4;
  const Head<double> head = sample_head(tree, spec);
  const Output<double> clean = oracle(head);
  for (int top = 0; top < tree.size(); ++top) {
    Head<double> dirty = head;
    dirty.v[top * 4] = std::numeric_limits<double>::quiet_NaN();
    const Output<double> out = oracle(dirty);
    for (int i = 0; i < tree.size(); ++i) {
      EXPECT_EQ(test::same_bits(&clean.o[i * 4], &out.o[i * 4], 4), !below(tree, top, i)) << top << ' ' << i;
    }
  }
}

// Outputs along a root path are those of the path alone, as a chain: to the bit for the solvers that substitute.
TEST(ReferenceIsolation, APathIsItsChain) {
  const Tree tree = test::tree_of(test::random_parents(90, 0.8, 5));
  Sample spec;
  spec.dim_k = 32, spec.dim_v = 8, spec.cosine = 0.9;
  const Head<float> head = convert<float>(sample_head(tree, spec));
  for (const Solver solver : test::stable_solvers()) {
    const Output<float> whole = closed_form(head, solver);
    for (int leaf = 0; leaf < tree.size(); leaf += 7) {
      const auto path = tree.path(leaf);
      const Tree chain = test::chain_of(int(path.size()));
      Head<float> alone{&chain, head.dim_k, head.dim_v, {}, {}, {}, {}, {}, head.state};
      for (const int j : path) {
        alone.q.insert(alone.q.end(), &head.q[j * 32], &head.q[j * 32] + 32);
        alone.k.insert(alone.k.end(), &head.k[j * 32], &head.k[j * 32] + 32);
        alone.v.insert(alone.v.end(), &head.v[j * 8], &head.v[j * 8] + 8);
        alone.g.push_back(head.g[j]), alone.beta.push_back(head.beta[j]);
      }
      const Output<float> out = closed_form(alone, solver);
      for (int p = 0; p < int(path.size()); ++p) {
        ASSERT_TRUE(test::same_bits(&out.o[p * 8], &whole.o[path[p] * 8], 8)) << name_of(solver) << " node " << path[p];
      }
    }
  }
}

// Every single wrong bit of the ancestor sets is far outside the parity tolerance, so no wrong mask can pass.
TEST(ReferenceIsolation, OneFlippedAncestorBitIsCaught) {
  const Tree tree = test::tree_of(test::random_parents(36, 0.6, 6));
  Sample spec;
  spec.dim_k = 8, spec.dim_v = 8, spec.cosine = 0.2;
  spec.gate = [](int, int) { return -0.02; };
  spec.beta = [](int, int) { return 0.8; };
  const Head<double> head = sample_head(tree, spec);
  const Head<float> head32 = convert<float>(head);
  const Output<double> truth = oracle(head);
  for (int i = 1; i < tree.size(); ++i) {
    for (int j = 0; j < i; ++j) {
      std::vector<NodeSet> sets = ancestor_sets(tree);
      sets[i][j / 64] ^= std::uint64_t{1} << (j % 64);
      const System<double> system = build_system(head, sets);
      const System<float> system32 = build_system(head32, sets);
      for (const Solver solver : test::stable_solvers()) {
        const auto o = outputs(system, solve(system, tree, solver, kBlockRows));
        const auto o32 = outputs(system32, solve(system32, tree, solver, kBlockRows));
        EXPECT_GT(sample_error(truth.o, o).max_abs, 1e-4) << name_of(solver) << " bit " << i << ',' << j;
        EXPECT_GT(sample_error(truth.o, o32).max_abs, 1e-4) << name_of(solver) << " bit " << i << ',' << j;
      }
    }
  }
}

// A wrong parent, too: the closed form of a tree with one parent moved does not pass for the original.
TEST(ReferenceIsolation, OneWrongParentIsCaught) {
  const std::vector<std::int32_t> parents = test::random_parents(36, 0.6, 7);
  const Tree tree = test::tree_of(parents);
  Sample spec;
  spec.dim_k = 16, spec.dim_v = 8;
  const Head<double> head = sample_head(tree, spec);
  const Output<double> truth = oracle(head);
  for (int i = 2; i < tree.size(); ++i) {
    std::vector<std::int32_t> wrong = parents;
    wrong[i] = (wrong[i] + 1) % i;
    const Tree other = test::tree_of(wrong);
    Head<double> moved = head;
    moved.tree = &other;
    EXPECT_GT(sample_error(truth.o, closed_form(moved, Solver::path_blocked).o).max_abs, 1e-4) << i;
  }
}

}  // namespace
}  // namespace canopy
