// Solvers watched step by step: what the page shows. The steps that wait for one another, and what each has finished.
#include "canopy/plan.hpp"
#include "reference/system.hpp"
#include "reference_support.hpp"
#include "support.hpp"

namespace canopy {
namespace {
using namespace reference;

struct Watched {
  std::vector<std::vector<double>> steps;
  std::vector<double> u;
};

Watched watched(const System<double>& system, const Tree& tree, Solver solver, int rows) {
  Watched w;
  w.u = solve(system, tree, solver, rows, Watch<double>([&](const std::vector<double>& u) { w.steps.push_back(u); }));
  return w;
}

Head<double> small_head(const Tree& tree, std::uint64_t seed) {
  Sample spec;
  spec.dim_k = 16, spec.dim_v = 3, spec.seed = seed;
  return sample_head(tree, spec);
}

TEST(ReferenceWatch, CountsTheStepsAndEndsAtTheAnswer) {
  for (const char* family : {"chain", "star", "balanced", "best-first", "skewed", "random"}) {
    for (const int nodes : {1, 2, 16, 17, 100}) {
      const auto tree = make_family({.name = family, .nodes = nodes, .top_k = 4, .depth = 12});
      ASSERT_TRUE(tree) << tree.error().message;
      const Head<double> head = small_head(*tree, 5);
      const auto system = build_system(head, ancestor_sets(*tree));
      const int depth = tree->depth();
      int factors = 0;
      while (1 << factors < depth + 1) ++factors;
      const auto steps = [&](Solver solver, int rows) {
        const Watched w = watched(system, *tree, solver, rows);
        EXPECT_EQ(w.u, solve(system, *tree, solver, rows)) << family << ' ' << nodes << ' ' << name_of(solver);
        if (!w.steps.empty())
          EXPECT_EQ(w.steps.back(), w.u);
        else
          EXPECT_EQ(w.u, system.r);
        return int(w.steps.size());
      };
      EXPECT_EQ(steps(Solver::row, 16), nodes);
      EXPECT_EQ(steps(Solver::blocked, 16), (nodes + 15) / 16);
      EXPECT_EQ(steps(Solver::path_blocked, 16), (nodes + 15) / 16);
      EXPECT_EQ(steps(Solver::path_blocked, 64), (nodes + 63) / 64);
      EXPECT_EQ(steps(Solver::level, 16), depth + 1);
      EXPECT_EQ(steps(Solver::neumann, 16), depth);
      EXPECT_EQ(steps(Solver::squaring, 16), factors);
    }
  }
}

TEST(ReferenceWatch, ABlockIsFinalOnceItIsDoneAndUntouchedBefore) {
  const auto tree = make_family({.name = "best-first", .nodes = 50, .top_k = 4, .depth = 8});
  ASSERT_TRUE(tree);
  const Head<double> head = small_head(*tree, 6);
  const auto system = build_system(head, ancestor_sets(*tree));
  const Watched w = watched(system, *tree, Solver::path_blocked, 16);
  ASSERT_EQ(w.steps.size(), 4u);
  for (int step = 0; step < 4; ++step) {
    for (int r = 0; r < tree->size(); ++r) {
      const std::vector<double>& expected = r < 16 * (step + 1) ? w.u : system.r;
      for (int e = tree->dfs_order()[r] * 3, end = e + 3; e < end; ++e) EXPECT_EQ(w.steps[step][e], expected[e]);
    }
  }
}

TEST(ReferenceWatch, ATermFinishesALevelOfTheSeries) {
  const auto tree = make_family({.name = "balanced", .nodes = 40, .top_k = 3});
  ASSERT_TRUE(tree);
  const Head<double> head = small_head(*tree, 7);
  const auto system = build_system(head, ancestor_sets(*tree));
  const Watched w = watched(system, *tree, Solver::neumann, 16);
  ASSERT_EQ(int(w.steps.size()), tree->depth());
  for (int term = 1; term <= tree->depth(); ++term) {
    for (int i = 0; i < tree->size(); ++i) {
      if (tree->depths()[i] > term) continue;
      for (int e = i * 3; e < i * 3 + 3; ++e)
        EXPECT_EQ(w.steps[term - 1][e], w.u[e]) << "node " << i << " term " << term;
    }
  }
}

}  // namespace
}  // namespace canopy
