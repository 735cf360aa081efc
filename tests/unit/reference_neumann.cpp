// Neumann series and squaring: right where they are stable, and wrong where docs/numerics.md says they are.
#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

template <class Real>
double error_of(const Head<double>& head, Solver solver) {
  return sample_error(oracle(head).o, closed_form(convert<Real>(head), solver).o).relative;
}

Head<double> remembering_head(const Tree& tree, double cosine) {
  Sample spec;
  spec.dim_v = 16, spec.cosine = cosine;
  spec.gate = [](int, int) { return 0.0; };
  spec.beta = [](int, int) { return 1.0; };
  return sample_head(tree, spec);
}

TEST(ReferenceNeumann, ShallowTreesAreSafeEvenWithEqualKeys) {
  const Tree depth8 = test::tree_by(200, [](int i) { return i < 9 ? i - 1 : (i * 5) % 8; });
  ASSERT_EQ(depth8.depth(), 8);
  for (const double cosine : {0.0, 0.95, 1.0}) {
    const Head<double> head = remembering_head(depth8, cosine);
    for (const Solver solver : {Solver::neumann, Solver::squaring}) {
      EXPECT_LT(error_of<double>(head, solver), 1e-13) << name_of(solver) << " cosine " << cosine;
      EXPECT_LT(error_of<float>(head, solver), 1e-5) << name_of(solver) << " cosine " << cosine;
    }
  }
}

TEST(ReferenceNeumann, UnrelatedKeysAreSafeOnEveryShape) {
  for (const int nodes : {1, 2, 16, 65, 128}) {
    for (const auto& [name, tree] : test::shapes(nodes)) {
      Sample spec;
      spec.dim_v = 8, spec.seed = nodes;
      const Head<double> head = sample_head(tree, spec);
      for (const Solver solver : {Solver::neumann, Solver::squaring}) {
        EXPECT_LT(error_of<double>(head, solver), 1e-12) << name << ' ' << nodes << ' ' << name_of(solver);
        EXPECT_LT(error_of<float>(head, solver), 1e-5) << name << ' ' << nodes << ' ' << name_of(solver);
      }
    }
  }
}

// What lets the study read every depth off one long chain: the first nodes of it are the shorter chain, to the bit.
TEST(ReferenceNeumann, TheFirstNodesOfALongChainAreTheShortChain) {
  const Tree longer = test::chain_of(96), shorter = test::chain_of(37);
  const Head<double> whole = remembering_head(longer, 0.99);
  Head<double> part = whole;
  part.tree = &shorter;
  for (const Solver solver : kSolvers) {
    const Output<float> a = closed_form(convert<float>(whole), solver), b = closed_form(convert<float>(part), solver);
    for (int e = 0; e < 37 * whole.dim_v; ++e) ASSERT_EQ(a.o[e], b.o[e]) << name_of(solver) << " element " << e;
  }
}

// A chain of 64 equal keys that forgets nothing: nothing of the answer is left, even fp64 keeps no more than a digit
// or two, while substitution does not notice.
TEST(ReferenceNeumann, DeepEqualKeysDestroyThem) {
  const Tree chain = test::chain_of(64);
  const Head<double> head = remembering_head(chain, 1.0);
  for (const Solver solver : {Solver::neumann, Solver::squaring}) {
    EXPECT_GT(error_of<float>(head, solver), 1e3) << name_of(solver);
    EXPECT_GT(error_of<double>(head, solver), 1e-5) << name_of(solver);
  }
  for (const Solver solver : test::stable_solvers()) {
    EXPECT_LT(error_of<float>(head, solver), 1e-5) << name_of(solver);
    EXPECT_LT(error_of<double>(head, solver), 1e-13) << name_of(solver);
  }
}

}  // namespace
}  // namespace canopy
