// The inputs every kernel must survive (docs/math.md), for every stable solver: fp64 within 1e-10 and fp32 within 1e-5
// max abs of the oracle. Only where the state is scaled by 1e4 are both scaled by max(1, max |reference|): there one
// fp32 rounding of a value is already 1e-3.
#include <cmath>
#include <cstdio>
#include <limits>

#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Prints the largest absolute fp32 error of the suite and where it was.
class ReferenceHostile : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    std::printf("largest fp32 error over the hostile inputs: %.3g (%s)\n", largest_fp32, largest_where.c_str());
  }

 public:
  static inline double largest_fp32 = 0;
  static inline std::string largest_where;
};

enum class Bound { absolute, scaled };
double magnitude(const std::vector<double>& x) {
  double most = 1;
  for (const double e : x) most = std::max(most, std::abs(e));
  return most;
}

template <class Real>
void expect_close(const Head<double>& head, const Output<double>& truth, double bound, Bound kind,
                  const std::string& where) {
  const Head<Real> own = convert<Real>(head);
  const System<Real> system = build_system(own, ancestor_sets(*head.tree));
  for (const Solver solver : test::stable_solvers()) {
    const std::vector<Real> u = solve(system, *head.tree, solver, kBlockRows);
    const double o_bound = bound * (kind == Bound::scaled ? magnitude(truth.o) : 1);
    const double u_bound = bound * (kind == Bound::scaled ? magnitude(truth.u) : 1);
    const double o_error = sample_error(truth.o, outputs(system, u)).max_abs,
                 u_error = sample_error(truth.u, u).max_abs;
    EXPECT_LT(o_error, o_bound) << "o, " << name_of(solver) << ", " << where;
    EXPECT_LT(u_error, u_bound) << "u, " << name_of(solver) << ", " << where;
    if (sizeof(Real) == 4 && kind == Bound::absolute && std::max(o_error, u_error) > ReferenceHostile::largest_fp32) {
      ReferenceHostile::largest_fp32 = std::max(o_error, u_error), ReferenceHostile::largest_where = where;
    }
  }
}

void expect_survives(const Tree& tree, const Sample& spec, const std::string& where, Bound kind = Bound::absolute) {
  const Head<double> head = sample_head(tree, spec);
  const Output<double> truth = oracle(head);
  for (const double o : truth.o) ASSERT_TRUE(std::isfinite(o)) << where;
  expect_close<double>(head, truth, 1e-10, kind, where);
  expect_close<float>(head, truth, 1e-5, kind, where);
}

Sample base() {
  Sample spec;
  spec.dim_v = 16;
  return spec;
}
double zero(int, int) { return 0.0; }
double one(int, int) { return 1.0; }

TEST_F(ReferenceHostile, SimilarKeysWithNothingForgotten) {
  std::vector<std::pair<std::string, Tree>> trees;
  for (const int nodes : {8, 16, 17, 32, 33, 64, 128, 255, 256}) {
    trees.emplace_back("chain " + std::to_string(nodes), test::chain_of(nodes));
  }
  trees.emplace_back("depth 8", test::tree_by(256, [](int i) { return i < 9 ? i - 1 : i / 2 < 9 ? 0 : (i * 7) % 8; }));
  trees.emplace_back("heap", test::tree_by(256, [](int i) { return (i - 1) / 2; }));
  for (const auto& [name, tree] : trees) {
    for (const char* keys : {"equal", "0.95", "0.99", "two", "opposite"}) {
      Sample spec = base();
      spec.gate = zero, spec.beta = one;
      spec.cosine = std::string(keys) == "two" ? 0.0 : std::string(keys)[0] == '0' ? std::stod(keys) : 1.0;
      spec.two_keys = std::string(keys) == "two", spec.opposite = std::string(keys) == "opposite";
      expect_survives(tree, spec, name + ", keys " + keys);
    }
  }
}

TEST_F(ReferenceHostile, Gates) {
  struct Case {
    const char* name;
    std::function<double(int, int)> gate;
  };
  const int depth = 63;
  const Case cases[] = {
      {"all 0", zero},
      {"all -1e4", [](int, int) { return -1e4; }},
      {"-1e4 at the root", [](int, int d) { return d == 0 ? -1e4 : -0.05; }},
      {"-912 at the root", [](int, int d) { return d == 0 ? -912.0 : -0.05; }},
      {"every eighth -100", [](int, int d) { return d % 8 == 3 ? -100.0 : -0.01; }},
      {"first half -20", [=](int, int d) { return d <= depth / 2 ? -20.0 : -0.001; }},
      {"-inf at the root", [](int, int d) { return d == 0 ? -kInf : -0.05; }},
      {"-inf in the middle", [=](int, int d) { return d == depth / 2 ? -kInf : -0.05; }},
      {"-inf at a leaf", [=](int, int d) { return d == depth ? -kInf : -0.05; }},
      {"all -inf", [](int, int) { return -kInf; }},
      {"-inf every other", [](int, int d) { return d % 2 ? -kInf : -0.3; }},
      {"-5e-7", [](int, int) { return -5e-7; }},
      {"slightly positive", [](int, int) { return 1e-3; }},
      {"lowest fp32", [](int, int d) { return d == 9 ? -3.4028234e38 : -0.05; }},
  };
  for (const Case& c : cases) {
    for (const double cosine : {0.0, 0.95}) {
      Sample spec = base();
      spec.gate = c.gate, spec.cosine = cosine;
      expect_survives(test::chain_of(depth + 1), spec, std::string("chain, gates ") + c.name);
      expect_survives(test::tree_of(test::random_parents(200, 0.8, 3)), spec, std::string("random, gates ") + c.name);
    }
  }
}

TEST_F(ReferenceHostile, ForgottenPastIsExactlyForgotten) {
  const Tree tree = test::chain_of(20);
  Sample spec = base();
  spec.gate = [](int i, int) { return i == 10 ? -kInf : -0.1; };
  const Head<double> head = sample_head(tree, spec);
  Head<double> other = head;  // another past: nodes 0..9 and S0
  for (int e = 0; e < 10 * head.dim_k; ++e) other.k[e] = -head.k[e] / 2;
  for (double& s : other.state) s += 1;
  for (const Solver solver : test::stable_solvers()) {
    const Output<double> a = closed_form(head, solver), b = closed_form(other, solver);
    EXPECT_TRUE(test::same_bits(&a.o[10 * head.dim_v], &b.o[10 * head.dim_v], 10 * head.dim_v)) << name_of(solver);
    EXPECT_FALSE(test::same_bits(&a.o[9 * head.dim_v], &b.o[9 * head.dim_v], head.dim_v)) << name_of(solver);
  }
}

TEST_F(ReferenceHostile, Betas) {
  const Tree tree = test::tree_of(test::random_parents(100, 0.8, 5));
  Sample spec = base();
  spec.cosine = 0.9;
  for (const double beta : {1.0, 1e-8}) {
    spec.beta = [=](int, int) { return beta; };
    expect_survives(tree, spec, "beta " + std::to_string(beta));
  }
  spec.beta = [](int i, int) { return i % 3 == 0 ? 0.0 : i % 3 == 1 ? 1.0 : 0.5; };
  expect_survives(tree, spec, "beta mixed");
  spec.beta = [](int i, int) { return i % 2 ? 2.0 : 1.7; };  // negative eigenvalues
  spec.cosine = 0;
  expect_survives(tree, spec, "beta to 2");

  spec.beta = zero;
  const Head<float> head = convert<float>(sample_head(tree, spec));
  for (const Solver solver : kSolvers) {
    for (const float u : closed_form(head, solver).u) ASSERT_EQ(u, 0.0f) << name_of(solver);
  }
}

TEST_F(ReferenceHostile, ZeroAndTinyKeysAndQueries) {
  const Tree tree = test::tree_of(test::random_parents(100, 0.8, 6));
  for (const double norm : {0.0, 1e-7}) {
    Sample spec = base();
    spec.key_norm = norm;
    expect_survives(tree, spec, "key norm " + std::to_string(norm));
  }
  Head<double> head = sample_head(tree, base());
  std::fill(head.q.begin(), head.q.end(), 0.0);
  for (const Solver solver : kSolvers) {
    for (const double o : closed_form(head, solver).o) ASSERT_EQ(o, 0.0) << name_of(solver);
  }
}

TEST_F(ReferenceHostile, SizesAndShapes) {
  for (const int nodes : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256}) {
    for (const auto& [name, tree] : test::shapes(nodes)) {
      Sample spec = base();
      spec.dim_k = 32, spec.dim_v = 8, spec.seed = nodes, spec.cosine = 0.5;
      expect_survives(tree, spec, name + " " + std::to_string(nodes));
    }
  }
}

TEST_F(ReferenceHostile, BlocksOfAnySizeGiveTheSameBits) {
  for (const auto& [name, tree] : test::shapes(129)) {
    Sample spec = base();
    spec.cosine = 0.95, spec.dim_v = 4;
    const Head<float> head = convert<float>(sample_head(tree, spec));
    const Output<float> row = closed_form(head, Solver::row);
    for (const Solver solver : {Solver::blocked, Solver::path_blocked, Solver::level}) {
      for (const int rows : {1, 3, 16, 64, 200}) {
        const Output<float> out = closed_form(head, solver, rows);
        EXPECT_TRUE(test::same_bits(out.u.data(), row.u.data(), int(row.u.size())))
            << name << ", " << name_of(solver) << " with blocks of " << rows;
      }
    }
  }
}

TEST_F(ReferenceHostile, RelabelledTreesGiveTheSameAnswer) {
  const Tree tree = test::tree_of(test::random_parents(150, 0.7, 8));
  Sample spec = base();
  spec.cosine = 0.9;
  const Head<double> head = sample_head(tree, spec);
  const Output<double> truth = oracle(head);
  const std::vector<std::int32_t> level(tree.level_rank().begin(), tree.level_rank().end());
  const std::vector<std::int32_t> dfs(tree.dfs_rank().begin(), tree.dfs_rank().end());
  for (const auto& labels : {level, dfs, random_topological_labels(tree, 1), random_topological_labels(tree, 2)}) {
    const Result<Tree> other = relabel(tree, labels);
    ASSERT_TRUE(other.ok()) << other.error().message;
    Head<double> moved = head;
    moved.tree = &*other;
    std::vector<double> expected(truth.o.size());
    for (int i = 0; i < tree.size(); ++i) {
      const auto move = [&](const std::vector<double>& from, std::vector<double>& to, int width) {
        std::copy_n(&from[std::size_t(i) * width], width, &to[std::size_t(labels[i]) * width]);
      };
      move(head.q, moved.q, head.dim_k), move(head.k, moved.k, head.dim_k), move(head.v, moved.v, head.dim_v);
      move(head.g, moved.g, 1), move(head.beta, moved.beta, 1), move(truth.o, expected, head.dim_v);
    }
    for (const Solver solver : test::stable_solvers()) {
      EXPECT_LT(sample_error(expected, closed_form(moved, solver).o).max_abs, 1e-10) << name_of(solver);
    }
  }
}

TEST_F(ReferenceHostile, StateScale) {
  for (const double scale : {1e4, 1e-4}) {
    for (const double cosine : {0.0, 0.99}) {
      Sample spec = base();
      spec.state_scale = scale, spec.cosine = cosine;
      expect_survives(test::chain_of(128), spec, "state scale " + std::to_string(scale), Bound::scaled);
      expect_survives(test::tree_of(test::random_parents(128, 0.8, 9)), spec, "state scale " + std::to_string(scale),
                      Bound::scaled);
    }
  }
}

}  // namespace
}  // namespace canopy
