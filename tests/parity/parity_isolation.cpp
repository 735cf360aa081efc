// What a node may depend on: its root path and nothing else, bit for bit. Poison, changes and garbage go everywhere
// else.
#include <functional>
#include <limits>

#include "parity/harness.hpp"

namespace canopy::parity {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

ProblemSpec base(const char* family, int nodes) {
  ProblemSpec spec;
  spec.family.name = family, spec.family.nodes = nodes, spec.family.depth = nodes > 100 ? 70 : 8;
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 40, spec.dim_v = 24;
  spec.input = CANOPY_F32, spec.seed = 3;
  return spec;
}
// Sizes around blocks of 16; the deep ones are solved in several segments.
std::vector<ProblemSpec> bases() {
  std::vector<ProblemSpec> list{base("random", 40), base("best-first", 33), base("caterpillar", 50)};
  if (!light()) {
    for (const char* family : {"spine", "skewed", "specla"}) list.push_back(base(family, 140));
    list.push_back(base("chain", 150));
    list.push_back(base("spine", 200));
    list.push_back(base("random", 180));
    list.back().trees = {broom(70, 110)};
    list.push_back(base("star", 48));
  }
  return list;
}

bool below(const Tree& tree, int top, int node) { return node == top || contains(tree.ancestors(node), top); }

void fill_node(HostTensor& tensor, int node, float value) {
  const std::int64_t width = tensor.elements() / (tensor.shape[0] * tensor.shape[1]);
  for (std::int64_t i = node * width; i < (node + 1) * width; ++i) tensor.set(i, value);
}

// A problem and a copy of it in which `spoil` changed one node: outside the node's subtree no bit of the outputs
// differs, the node's own do.
void expect_isolated(const ProblemSpec& spec, int top, const std::function<void(Case&)>& spoil,
                     const std::string& what) {
  Case clean(spec), dirty(spec);
  spoil(dirty);
  const Tree tree = tree_of(spec);
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const Outputs a = run(contender, clean.params), b = run(contender, dirty.params);
    ASSERT_TRUE(a.error.ok() && b.error.ok());
    for (int node = 0; node < tree.size(); ++node) {
      if (below(tree, top, node)) continue;
      EXPECT_TRUE(same_row(a, b, 0, node))
          << contender.name() << ": node " << node << " felt " << what << " at node " << top << " of " << clean.name;
    }
    EXPECT_FALSE(same_row(a, b, 0, top)) << contender.name() << ": " << what << " at " << top << " changed nothing";
  }
}

std::vector<int> tops(int nodes) {
  std::vector<int> list;
  for (int top = 1; top < nodes; top += nodes / (light() ? 3 : 6)) list.push_back(top);
  list.push_back(nodes - 1);
  return list;
}

TEST(ParityIsolation, PoisonStaysInItsSubtree) {
  for (const ProblemSpec& spec : bases()) {
    for (const int top : tops(spec.family.nodes)) {
      for (const float value : {kNaN, kInf, -kInf, 1e30f}) {
        const auto everywhere = [&](Case& c) {
          for (const char* name : {"q", "k", "v", "g", "beta"}) fill_node(c.tensor(name), top, value);
        };
        expect_isolated(spec, top, everywhere, "all " + std::to_string(value));
        if (light()) continue;
        for (const char* name : {"q", "k", "v", "g", "beta"}) {
          const auto one = [&](Case& c) { fill_node(c.tensor(name), top, value); };
          expect_isolated(spec, top, one, std::string(name) + " " + std::to_string(value));
        }
      }
    }
  }
}

TEST(ParityIsolation, PoisonInRawGatesUnderTheNorm) {
  for (ProblemSpec spec : bases()) {
    spec.raw_gates = spec.l2norm = true;
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16}) {
      spec.input = input;
      for (const int top : tops(spec.family.nodes)) {
        const auto spoil = [&](Case& c) {
          for (const char* name : {"q", "k", "v", "a", "b"}) fill_node(c.tensor(name), top, kNaN);
        };
        expect_isolated(spec, top, spoil, "NaN");
      }
    }
  }
}

TEST(ParityIsolation, AChangedNodeChangesItsSubtreeAlone) {
  for (const ProblemSpec& spec : bases()) {
    for (const int top : tops(spec.family.nodes)) {
      for (const char* name : {"q", "k", "v", "g", "beta"}) {
        const float value = std::string(name) == "g" ? -0.5f : 0.375f;
        expect_isolated(
            spec, top, [&](Case& c) { fill_node(c.tensor(name), top, value); }, name);
      }
    }
  }
}

// NaN is carried, not hidden: the poisoned node and all below it show it.
TEST(ParityIsolation, NaNShowsInTheWholeSubtree) {
  for (const ProblemSpec& spec : bases()) {
    const Tree tree = tree_of(spec);
    for (const int top : tops(spec.family.nodes)) {
      Case c(spec);
      fill_node(c.tensor("v"), top, kNaN);
      for (const VerifyContender& contender : contenders<VerifyParams>()) {
        const Outputs out = run(contender, c.params);
        const std::int64_t width = std::int64_t{spec.heads_v} * spec.dim_v;
        for (int node = 0; node < tree.size(); ++node)
          for (std::int64_t i = node * width; i < (node + 1) * width; ++i)
            ASSERT_EQ(std::isnan(out.o.get(i)), below(tree, top, node)) << contender.name() << ", node " << node;
      }
    }
  }
}

// Padding rows, slots that no row uses and rows past a count are not read.
TEST(ParityIsolation, NothingDeadIsRead) {
  for (const bool raw : {false, true}) {
    ProblemSpec spec = base("best-first", 33);
    spec.batch = 6, spec.ragged = spec.slots = true, spec.raw_gates = spec.l2norm = raw;
    Case clean(spec), dirty(spec);
    const Problem& p = clean.params.problem;
    std::vector<bool> used(std::size_t(p.slots), false);
    for (int b = 0; b < spec.batch; ++b) {
      const std::int64_t slot = slot_of(p, p.slot_index, b);
      if (slot >= 0) used[std::size_t(slot)] = true;
      for (int node = live_nodes(p, b); node < p.nodes; ++node) {
        for (auto& [name, tensor] : dirty.problem.tensors) {
          if (tensor.shape.size() >= 3 && name != "state") fill_node(tensor, b * p.nodes + node, kNaN);
          if (name == "parents") tensor.i32()[b * p.nodes + node] = node % 2 ? INT32_MIN : INT32_MAX;
        }
      }
      if (slot < 0) dirty.tensor("count").i32()[b] = -77;
    }
    HostTensor& state = dirty.tensor("state");
    const std::int64_t each = state.elements() / p.slots;
    int unused = 0;
    for (std::int64_t slot = 0; slot < p.slots; ++slot) {
      if (used[std::size_t(slot)]) continue;
      ++unused;
      for (std::int64_t i = slot * each; i < (slot + 1) * each; ++i) state.set(i, kNaN);
    }
    ASSERT_GT(unused, 1);
    clean.solved();
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs a = run(contender, clean.params), b = run(contender, dirty.params);
      expect_parity(contender, p, clean.truth, b, dirty.name + " with NaN wherever nothing lives");
      EXPECT_TRUE(same_bits(a, b)) << contender.name() << " read something dead: " << dirty.name;
      EXPECT_EQ(a.status, b.status);
    }
  }
}

// A node's outputs are those of the last node of its own root path, alone.
TEST(ParityIsolation, APathIsAChain) {
  for (const ProblemSpec& spec : bases()) {
    Case whole(spec);
    whole.solved();
    const Tree tree = tree_of(spec);
    for (const int leaf : tops(spec.family.nodes)) {
      const std::vector<std::int32_t> path = tree.path(leaf);
      ProblemSpec chain_spec = spec;
      chain_spec.trees.clear();
      chain_spec.family.name = "chain", chain_spec.family.nodes = int(path.size());
      Case chain(chain_spec);
      const auto gather = [&](const auto& from, auto& to) {
        const std::size_t each = from.size() / std::size_t(tree.size());
        for (std::size_t i = 0; i < path.size(); ++i)
          std::copy_n(from.begin() + std::ptrdiff_t(path[i] * each), each, to.begin() + std::ptrdiff_t(i * each));
      };
      for (const char* name : {"q", "k", "v", "g", "beta"}) gather(whole.tensor(name).bytes, chain.tensor(name).bytes);
      chain.tensor("state") = whole.tensor("state");
      chain.solved();
      chain.name += ", the path to node " + std::to_string(leaf) + " of " + whole.name;
      // The oracle sees no difference at all, so closeness to the tree's answer is closeness to the chain's.
      Truth gathered = chain.truth;
      gather(whole.truth.o, gathered.o), gather(whole.truth.u, gathered.u), gather(whole.truth.l, gathered.l);
      EXPECT_EQ(gathered.o, chain.truth.o);
      EXPECT_EQ(gathered.u, chain.truth.u);
      expect_parity(chain);
    }
  }
}

}  // namespace
}  // namespace canopy::parity
