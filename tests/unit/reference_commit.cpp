// Commit by stash, by resolve and by replay gives the oracle's state, at every node of the tree.
#include <cmath>
#include <limits>

#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

template <class Real>
void every_node(const Tree& tree, const Sample& spec, double bound, const std::string& where) {
  const Head<double> head = sample_head(tree, spec);
  std::vector<std::vector<double>> states;
  oracle(head, &states);
  const Head<Real> own = convert<Real>(head);
  const Output<Real> stash = closed_form(own, Solver::path_blocked);
  for (int leaf = 0; leaf < tree.size(); ++leaf) {
    EXPECT_LT(sample_error(states[leaf], commit_stash(own, stash, leaf)).max_abs, bound) << where << ", stash " << leaf;
    EXPECT_LT(sample_error(states[leaf], commit_resolve(own, leaf)).max_abs, bound) << where << ", resolve " << leaf;
    EXPECT_LT(sample_error(states[leaf], commit_replay(own, leaf)).max_abs, bound) << where << ", replay " << leaf;
  }
}

TEST(ReferenceCommit, EveryMethodAtEveryNode) {
  for (const int nodes : {1, 2, 17, 48}) {
    for (const auto& [name, tree] : test::shapes(nodes)) {
      Sample spec;
      spec.dim_k = 32, spec.dim_v = 16, spec.seed = nodes, spec.cosine = 0.5;
      every_node<double>(tree, spec, 1e-12, name);
      every_node<float>(tree, spec, 1e-5, name);
    }
  }
}

TEST(ReferenceCommit, SurvivesStrongGates) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::function<double(int, int)> gates[] = {
      [=](int, int d) { return d == 0 ? -1e4 : -0.01; },
      [=](int, int d) { return d == 6 ? -inf : -0.01; },
      [=](int, int) { return -inf; },
      [=](int, int) { return 1e-3; },
  };
  for (const auto& gate : gates) {
    Sample spec;
    spec.dim_k = 32, spec.dim_v = 16, spec.gate = gate, spec.cosine = 0.95;
    every_node<double>(test::chain_of(40), spec, 1e-12, "chain");
    every_node<float>(test::chain_of(40), spec, 1e-5, "chain");
  }
}

// Replay runs E1 itself: the oracle's bits, and the same bits from whatever tree the path sits in.
TEST(ReferenceCommit, ReplayIsTheOracleToTheBit) {
  const Tree tree = test::tree_of(test::random_parents(60, 0.7, 4));
  Sample spec;
  spec.dim_k = 32, spec.dim_v = 16;
  const Head<double> head = sample_head(tree, spec);
  std::vector<std::vector<double>> states;
  EXPECT_EQ(oracle(head, &states).o, oracle(head).o);  // kept or passed on, the states are the same
  for (int leaf = 0; leaf < tree.size(); ++leaf) {
    const std::vector<double> state = commit_replay(head, leaf);
    EXPECT_TRUE(test::same_bits(state.data(), states[leaf].data(), int(state.size()))) << leaf;
  }
}

// A wrong stash must show in the stash commit and only there.
TEST(ReferenceCommit, StashIsWhatTheStashCommitReads) {
  const Tree tree = test::chain_of(9);
  Sample spec;
  spec.dim_k = 16, spec.dim_v = 8;
  const Head<double> head = sample_head(tree, spec);
  Output<double> stash = closed_form(head, Solver::row);
  const std::vector<double> before = commit_stash(head, stash, 5);
  stash.u[7 * 8] += 1;  // not on the path of 5
  EXPECT_EQ(commit_stash(head, stash, 5), before);
  stash.u[3 * 8] += 1;
  EXPECT_NE(commit_stash(head, stash, 5), before);
}

TEST(ReferenceCommit, HundredRoundsStayClose) {
  // verify + commit 100 times, each round's tree its own, fp32 resolve against the fp64 oracle's own chain of states
  std::vector<double> truth;
  std::vector<float> ours;
  for (int round = 0; round < 100; ++round) {
    const Tree tree = test::tree_of(test::random_parents(24, 0.6, round));
    Sample spec;
    spec.dim_k = 32, spec.dim_v = 16, spec.seed = 500 + round;
    Head<double> head = sample_head(tree, spec);
    if (round > 0) head.state = truth;
    Head<float> own = convert<float>(head);
    if (round > 0) own.state = ours;
    std::vector<std::vector<double>> states;
    oracle(head, &states);
    const int leaf = tree.size() - 1 - round % 5;
    truth = states[leaf], ours = commit_resolve(own, leaf);
  }
  EXPECT_LT(sample_error(truth, ours).relative, 1e-5);  // 1e-3 is asked for
}

}  // namespace
}  // namespace canopy
