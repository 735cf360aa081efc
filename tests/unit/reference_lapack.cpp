// A second opinion on (I + G) U = R from LAPACK's triangular solve, and the structure of G.
#include <cmath>

#include "reference_support.hpp"

extern "C" void dtrtrs_(const char* uplo, const char* trans, const char* diag, const int* n, const int* nrhs,
                        const double* a, const int* lda, double* b, const int* ldb, int* info);

namespace canopy {
namespace {
using namespace reference;

TEST(ReferenceLapack, TriangularSolveAgrees) {
  for (const int nodes : {1, 2, 17, 64, 256}) {
    for (const auto& [name, tree] : test::shapes(nodes)) {
      Sample spec;
      spec.dim_k = 64, spec.dim_v = 8, spec.seed = nodes, spec.cosine = 0.9;
      const Head<double> head = sample_head(tree, spec);
      const System<double> system = build_system(head, ancestor_sets(tree));

      // Row-major lower G is column-major upper G^T: ask for the transposed system, unit diagonal.
      std::vector<double> columns(system.r.size());  // [V][T]
      for (int i = 0; i < nodes; ++i) {
        for (int c = 0; c < spec.dim_v; ++c) columns[c * nodes + i] = system.r[i * spec.dim_v + c];
      }
      int info = -1;
      dtrtrs_("U", "T", "U", &nodes, &spec.dim_v, build_g(head).data(), &nodes, columns.data(), &nodes, &info);
      ASSERT_EQ(info, 0);
      for (const Solver solver : test::stable_solvers()) {
        const std::vector<double> u = solve(system, tree, solver, kBlockRows);
        for (int i = 0; i < nodes; ++i) {
          for (int c = 0; c < spec.dim_v; ++c) {
            ASSERT_NEAR(u[i * spec.dim_v + c], columns[c * nodes + i], 1e-12) << name << ' ' << name_of(solver);
          }
        }
      }
    }
  }
}

// G's power d still has entries, power d + 1 is exactly zero: the Neumann series ends by itself.
TEST(ReferenceLapack, GIsNilpotentOfTheTreesDepth) {
  for (const int nodes : {1, 2, 16, 65}) {
    for (const auto& [name, tree] : test::shapes(nodes)) {
      Sample spec;
      spec.dim_k = 16, spec.dim_v = 4, spec.cosine = 0.9;
      spec.gate = [](int, int) { return -0.01; };
      spec.beta = [](int, int) { return 0.9; };
      const std::vector<double> g = build_g(sample_head(tree, spec));
      std::vector<double> power(g.size());
      for (int i = 0; i < nodes; ++i) power[i * nodes + i] = 1;
      for (int m = 0; m <= tree.depth(); ++m) {
        EXPECT_TRUE(std::any_of(power.begin(), power.end(), [](double e) { return e != 0; })) << name << " power " << m;
        std::vector<double> next(g.size());
        for (int i = 0; i < nodes; ++i) {
          for (int j = 0; j < nodes; ++j) {
            for (int c = 0; c < nodes; ++c) next[i * nodes + c] += power[i * nodes + j] * g[j * nodes + c];
          }
        }
        power = next;
      }
      for (const double e : power) ASSERT_EQ(e, 0.0) << name << " depth " << tree.depth();
    }
  }
}

}  // namespace
}  // namespace canopy
