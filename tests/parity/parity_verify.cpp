// Every implementation against the fp64 oracle: every family at every size, every width, head ratio and combination of
// types, with the other options taking turns.
#include "host/random.hpp"
#include "parity/harness.hpp"

namespace canopy::parity {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256};
constexpr int kWidths[] = {8, 16, 24, 64, 72, 128, 136, 256};
constexpr int kRatios[] = {1, 2, 3, 4, 8};
constexpr int kDepths[] = {8, 20, 80, 150};
constexpr canopy_dtype kTypes[] = {CANOPY_F32, CANOPY_BF16, CANOPY_F16};

FamilySpec family(std::string name, int nodes, std::uint64_t seed = 0) {
  FamilySpec spec;
  spec.name = std::move(name), spec.nodes = nodes, spec.seed = seed;
  return spec;
}

TEST(ParityVerify, EveryFamilyAtEverySize) {
  int turn = 0;
  for (const char* name : family_names()) {
    for (int i = 0; i < 3 * int(std::size(kSizes)); ++i) {
      const int nodes = kSizes[i / 3];
      if (skip(++turn, 41)) continue;
      const std::uint64_t seed = std::uint64_t(turn);
      const host::Stream random(seed, 1);
      std::uint64_t draw = 0;
      const auto pick = [&](const auto& list) { return list[random.below(draw++, std::size(list))]; };
      ProblemSpec spec;
      spec.family = family(name, nodes, seed), spec.seed = seed;
      spec.family.depth = pick(kDepths);
      spec.heads_k = 1 + int(random.below(draw++, 2)), spec.heads_v = spec.heads_k * pick(kRatios);
      spec.batch = 1 + int(random.below(draw++, 4));
      spec.dim_k = pick(kWidths), spec.dim_v = pick(kWidths);
      // Few heads and narrow ones where the tree is large: 2^22 state elements times nodes.
      const auto work = [&] { return 1.0 * nodes * spec.batch * spec.heads_v * spec.dim_k * spec.dim_v; };
      if (work() > 0x1p22) spec.batch = 1;
      if (work() > 0x1p22) spec.heads_k = 1, spec.heads_v = 1 + int(seed % 2);
      if (work() > 0x1p22) (seed % 2 ? spec.dim_k : spec.dim_v) = 24;
      spec.input = pick(kTypes), spec.state = pick(kTypes);
      spec.layout = random.below(draw++, 2) ? CANOPY_STATE_VK : CANOPY_STATE_KV;
      spec.raw_gates = random.below(draw++, 2), spec.l2norm = random.below(draw++, 2);
      spec.ragged = random.below(draw++, 2), spec.slots = random.below(draw++, 2);
      const canopy_dtype output = random.below(draw++, 2) ? CANOPY_F32 : pick(kTypes);
      expect_parity(spec, output, random.below(draw++, 4) != 0);
    }
  }
}

TEST(ParityVerify, EveryWidth) {
  int turn = 0;
  for (const int dim_k : kWidths) {
    for (const int dim_v : kWidths) {
      if (skip(++turn, 7)) continue;
      ProblemSpec spec;
      spec.family = family(turn % 2 ? "random" : "best-first", 33, std::uint64_t(turn)),
      spec.seed = std::uint64_t(turn);
      spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = dim_k, spec.dim_v = dim_v;
      spec.input = kTypes[turn % 3], spec.state = kTypes[turn / 3 % 3];
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
        spec.layout = layout;
        expect_parity(spec);
      }
    }
  }
}

TEST(ParityVerify, EveryHeadRatio) {
  for (const int heads_k : {1, 2, 3}) {
    for (const int ratio : kRatios) {
      ProblemSpec spec;
      spec.family = family("best-first", 19), spec.batch = 2, spec.seed = ratio;
      spec.heads_k = heads_k, spec.heads_v = heads_k * ratio, spec.dim_k = 24, spec.dim_v = 40;
      expect_parity(spec);
    }
  }
}

TEST(ParityVerify, EveryCombinationOfTypes) {
  int turn = 0;
  for (const canopy_dtype input : kTypes) {
    for (const canopy_dtype state : kTypes) {
      for (const canopy_dtype output : kTypes) {
        for (int options = 0; options < 8; ++options) {
          if (skip(++turn, 7)) continue;
          ProblemSpec spec;
          spec.family = family("random", 18, options), spec.seed = std::uint64_t(turn);
          spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 40, spec.dim_v = 72;
          spec.input = input, spec.state = state, spec.layout = options & 1 ? CANOPY_STATE_VK : CANOPY_STATE_KV;
          spec.raw_gates = options & 2, spec.l2norm = options & 4;
          expect_parity(spec, output);
        }
      }
    }
  }
}

TEST(ParityVerify, RaggedPoolsWithPadding) {
  for (const bool vllm : {false, true}) {  // vLLM: 0 is padding too
    for (const canopy_dtype index : {CANOPY_I32, CANOPY_I64}) {
      ProblemSpec spec;
      spec.family = family("specla", 37), spec.batch = 6, spec.seed = 5;
      spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 64, spec.dim_v = 24, spec.ragged = spec.slots = true;
      Case c(spec);
      c.params.problem.padding_slot = vllm ? 0 : -1;
      HostTensor slots = HostTensor::make(index, {spec.batch});
      const std::int32_t chosen[] = {4, vllm ? 0 : -3, 6, 1, 3, 2};
      for (int b = 0; b < spec.batch; ++b) {
        if (index == CANOPY_I32)
          slots.i32()[b] = chosen[b];
        else
          reinterpret_cast<std::int64_t*>(slots.bytes.data())[b] = chosen[b];
      }
      c.tensor("slots") = slots;
      expect_parity(c.solved());
    }
  }
}

// The trees as first-child and next-sibling links, siblings from the last to the first.
TEST(ParityVerify, TreesAsLinks) {
  for (const char* name : family_names()) {
    ProblemSpec spec;
    spec.family = family(name, 45, 3), spec.batch = 3, spec.seed = 7;
    spec.heads_k = spec.heads_v = 1, spec.dim_k = 24, spec.dim_v = 16;
    Case c(spec);
    c.solved();
    const std::int32_t* parents = c.tensor("parents").i32();
    std::vector<std::int32_t> child(3 * 45, -1), sibling(3 * 45, -1);
    for (int i = 0; i < 3 * 45; ++i) {
      if (i % 45 == 0) continue;
      const int parent = i / 45 * 45 + parents[i];
      sibling[i] = child[parent], child[parent] = i % 45;
    }
    c.params.problem.trees.parents = nullptr;
    c.params.problem.trees.next_token = child.data(), c.params.problem.trees.next_sibling = sibling.data();
    expect_parity(c);
  }
}

TEST(ParityVerify, ScaleAndEpsilonAsGiven) {
  ProblemSpec spec;
  spec.family = family("best-first", 20), spec.heads_k = spec.heads_v = 1, spec.dim_k = 72, spec.dim_v = 24;
  spec.l2norm = true;
  Case c(spec);
  c.params.problem.scale = -0.75f, c.params.problem.l2norm_eps = 0.5f;
  expect_parity(c.solved());
  Case other(spec);
  other.solved();
  EXPECT_NE(c.truth.o, other.truth.o);  // both options matter
}

// A node hung under another node of the same depth: the closeness tests above must see it, for every such mistake.
TEST(ParityVerify, AWrongAncestorIsCaught) {
  for (const double scale : {1.0, 1e-4}) {
    ProblemSpec spec;
    spec.family = family("best-first", 32), spec.heads_k = spec.heads_v = 1, spec.dim_k = spec.dim_v = 64;
    spec.input = CANOPY_F32, spec.state_scale = scale;
    const Case right(spec);
    const Truth truth = solve(right.params);
    const Tree tree = *make_family(spec.family);
    int mistakes = 0;
    for (int node = 1; node < tree.size(); ++node) {
      const int parent = tree.parents()[node];
      for (int other = 0; other < node; ++other) {
        if (other == parent || tree.depths()[other] != tree.depths()[parent]) continue;
        Case wrong(spec);
        wrong.tensor("parents").i32()[node] = other;
        for (const VerifyContender& contender : contenders<VerifyParams>()) {
          const auto& impl = *contender.implementation;
          const Outputs out = run(contender, wrong.params);
          const Problem& p = right.params.problem;
          EXPECT_FALSE(closeness(p, truth.o, out.o, impl.absolute_tolerance)
                           .within(impl.relative_tolerance, impl.absolute_tolerance, CANOPY_F32))
              << contender.name() << ": node " << node << " under " << other << " instead of " << parent;
          EXPECT_FALSE(closeness(p, truth.u, out.u, impl.absolute_tolerance)
                           .within(impl.relative_tolerance, impl.absolute_tolerance, CANOPY_F32));
        }
        ++mistakes;
        break;  // one for each node
      }
    }
    EXPECT_GT(mistakes, 10);
  }
}

}  // namespace
}  // namespace canopy::parity
