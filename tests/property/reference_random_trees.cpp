// 1,000 random trees of 1..256 nodes at K = V = 128: the closed form under every stable solver against the oracle, in
// fp64 at 1e-10 and in fp32 at 1e-5 max abs (docs/math.md, tolerances). The largest fp32 error and its tree are
// printed.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

constexpr int kTrees = 1000;
constexpr double kFp64 = 1e-10, kFp32 = 1e-5;

struct Worst {
  double fp64 = 0, fp32 = 0;
  int fp64_case = -1, fp32_case = -1;
};

Tree case_tree(int c) {
  const double straight[] = {0.0, 0.3, 0.6, 0.9, 0.97, 1.0};
  return test::tree_of(test::random_parents(1 + (c * 97) % 256, straight[c % 6], 1000 + c));
}

// Largest error of o and u over the stable solvers; one system is shared by them.
template <class Real>
double largest_error(const Head<double>& head, const Output<double>& truth) {
  const Head<Real> own = convert<Real>(head);
  const System<Real> system = build_system(own, ancestor_sets(*head.tree));
  double largest = 0;
  for (const Solver solver : test::stable_solvers()) {
    const std::vector<Real> u = solve(system, *head.tree, solver, kBlockRows);
    largest = std::max({largest, sample_error(truth.u, u).max_abs, sample_error(truth.o, outputs(system, u)).max_abs});
  }
  return largest;
}

TEST(ReferenceRandomTrees, EveryStableSolverMatchesTheOracle) {
  std::atomic<int> next{0};
  std::mutex mutex;
  Worst worst;
  const auto work = [&] {
    for (int c; (c = next++) < kTrees;) {
      const Tree tree = case_tree(c);
      Sample spec;
      spec.seed = c;
      spec.cosine = c % 3 == 0 ? 0.0 : c % 3 == 1 ? 0.5 : 0.9;
      const Head<double> head = sample_head(tree, spec);
      const Output<double> truth = oracle(head);
      const double fp64 = largest_error<double>(head, truth), fp32 = largest_error<float>(head, truth);
      const std::lock_guard lock(mutex);
      if (fp64 > worst.fp64) worst.fp64 = fp64, worst.fp64_case = c;
      if (fp32 > worst.fp32) worst.fp32 = fp32, worst.fp32_case = c;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();

  ASSERT_GE(worst.fp64_case, 0) << "no rounding at all in 1,000 trees: nothing was compared";
  ASSERT_GE(worst.fp32_case, 0);
  const Tree tree64 = case_tree(worst.fp64_case), tree32 = case_tree(worst.fp32_case);
  EXPECT_LT(worst.fp64, kFp64) << "case " << worst.fp64_case << " parents " << test::parents_text(tree64);
  EXPECT_LT(worst.fp32, kFp32) << "case " << worst.fp32_case << " parents " << test::parents_text(tree32);
  std::printf("largest fp64 error %.3g: case %d, %d nodes, depth %d\n", worst.fp64, worst.fp64_case, tree64.size(),
              tree64.depth());
  std::printf("largest fp32 error %.3g: case %d, %d nodes, depth %d, parents %s\n", worst.fp32, worst.fp32_case,
              tree32.size(), tree32.depth(), test::parents_text(tree32).c_str());
}

}  // namespace
}  // namespace canopy
