// The result of a row depends neither on the batch it is in nor on the number of threads, bit for bit.
#include "parity/harness.hpp"

namespace canopy::parity {
namespace {

ProblemSpec base() {
  ProblemSpec spec;
  spec.family.name = "best-first", spec.family.nodes = 40;
  spec.batch = 5, spec.heads_k = 2, spec.heads_v = 6, spec.dim_k = 40, spec.dim_v = 72;
  spec.ragged = spec.slots = true, spec.seed = 9;
  return spec;
}

// Sequence b of a batch as a call of its own, of `nodes` nodes.
VerifyParams alone(const VerifyParams& batch, int b, int nodes) {
  VerifyParams one = batch;
  Problem& p = one.problem;
  for (canopy_tensor* t : {&p.q, &p.k, &p.v, &p.g, &p.beta, &p.a, &p.b}) {
    if (t->data)
      t->data = static_cast<char*>(t->data) + b * t->stride[1] * std::int64_t(host::size_of(canopy_dtype(t->dtype)));
  }
  p.trees.parents += b * p.trees.row_stride;
  if (p.trees.count) p.trees.count += b;
  p.slot_index = static_cast<const std::int32_t*>(p.slot_index) + b;
  p.batch = 1, p.nodes = nodes;
  return one;
}

TEST(CpuThreads, ARowAloneGivesTheSameBits) {
  for (const bool raw : {false, true}) {
    ProblemSpec spec = base();
    spec.raw_gates = spec.l2norm = raw;
    Case c(spec);
    int lonely = 0;
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs batch = run(contender, c.params);
      for (int b = 0; b < spec.batch; ++b) {
        const int live = live_nodes(c.params.problem, b);
        for (const int nodes : {c.params.problem.nodes, std::max(live, 1)}) {  // in a grid of any T
          const Outputs one = run(contender, alone(c.params, b, nodes));
          for (int node = 0; node < live; ++node) {
            EXPECT_TRUE(std::ranges::equal(row(batch.o, b, node), row(one.o, 0, node)) &&
                        std::ranges::equal(row(batch.u, b, node), row(one.u, 0, node)) &&
                        std::ranges::equal(row(batch.l, b, node), row(one.l, 0, node)))
                << contender.name() << ": row " << b << ", node " << node << ", T = " << nodes;
            ++lonely;
          }
        }
      }
    }
    EXPECT_GT(lonely, 100);
  }
}

TEST(CpuThreads, AnyNumberOfThreadsGivesTheSameBits) {
  if (!threads_can_be_set()) GTEST_SKIP() << "built without OpenMP";
  for (const int batch : {1, 3}) {  // fewer key heads than threads: the value heads of a key head are split
    ProblemSpec spec = base();
    spec.batch = batch, spec.heads_k = 1, spec.heads_v = 5;
    Case c(spec);
    c.solved();
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      set_threads(1);
      const Outputs one = run(contender, c.params);
      expect_parity(contender, c.params.problem, c.truth, one, c.name);
      for (const int threads : {2, 3, 7}) {
        set_threads(threads);
        const Outputs many = run(contender, c.params);
        set_threads(1);
        EXPECT_TRUE(many.error.ok());
        EXPECT_TRUE(same_bits(one, many)) << contender.name() << " with " << threads << " threads";
      }
    }
  }
}

TEST(CpuThreads, CommitsTooGiveTheSameBits) {
  if (!threads_can_be_set()) GTEST_SKIP() << "built without OpenMP";
  ProblemSpec spec = base();
  Case c(spec);
  Outputs stash = run(contenders<VerifyParams>().front(), c.params);
  const std::vector<std::byte> before = c.tensor("state").bytes;
  const std::vector<std::int32_t> leaf(std::size_t(spec.batch), 0);
  for (const Contender<CommitParams>& contender : contenders<CommitParams>()) {
    const InUse use(contender.set);
    CommitParams params = commit_params();
    params.problem = c.params.problem, params.leaf = leaf.data();
    params.stash_u = stash.u.view(), params.stash_l = stash.l.view();
    while (!contender.implementation->refuses(params).empty()) ASSERT_LT(++params.method, 3) << contender.name();
    std::vector<std::byte> one;
    for (const int threads : {1, 2, 3}) {
      set_threads(threads);
      c.tensor("state").bytes = before;
      params.problem.state.data = c.tensor("state").bytes.data();
      const auto bytes = commit_workspace(params, contender.implementation->name);
      ASSERT_TRUE(bytes.ok());
      Fenced workspace(*bytes);
      EXPECT_TRUE(commit(params, contender.implementation->name, workspace.data(), *bytes).ok());
      EXPECT_TRUE(workspace.intact()) << contender.name();
      set_threads(1);
      if (threads == 1) one = c.tensor("state").bytes;
      EXPECT_EQ(c.tensor("state").bytes, one) << contender.name() << " with " << threads << " threads";
      EXPECT_NE(one, before) << contender.name();
    }
  }
}

}  // namespace
}  // namespace canopy::parity
