// docs/math.md, "Inputs every kernel must survive": keys, gates, betas and scales at their worst, within the same
// tolerances as natural ones.
#include <limits>

#include "parity/harness.hpp"

namespace canopy::parity {
namespace {

using host::Betas;
using host::Gates;
using host::Keys;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Shape {
  const char* family;
  int nodes, depth = 8;
};
constexpr Shape kChains[] = {{"chain", 8},  {"chain", 16},  {"chain", 17},  {"chain", 32}, {"chain", 33},
                             {"chain", 64}, {"chain", 128}, {"chain", 255}, {"chain", 256}};
// The closed form folds a path of 64 into the state where all that follows descends from it (broom) and must not where
// it does not (deep spine).
constexpr Shape kTrees[] = {{"best-first", 64}, {"skewed", 129, 90}, {"caterpillar", 100},
                            {"spine", 70},      {"broom", 230},      {"specla", 48},
                            {"random", 130},    {"spine", 256, 150}, {"skewed", 256, 180}};

ProblemSpec base(const Shape& shape, std::uint64_t seed = 1) {
  ProblemSpec spec;
  spec.family.name = shape.family, spec.family.nodes = shape.nodes, spec.family.seed = seed;
  spec.family.depth = shape.depth;
  if (std::string(shape.family) == "broom") spec.trees = {broom(shape.nodes / 3, shape.nodes - shape.nodes / 3)};
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = spec.dim_v = 64;
  spec.input = CANOPY_F32, spec.seed = seed;
  return spec;
}

template <class Visit>
void for_every_shape(Visit visit) {
  int number = 0;
  for (const Shape& shape : kChains)
    if (!skip(++number, 14)) visit(shape);
  for (const Shape& shape : kTrees)
    if (!skip(++number, 14)) visit(shape);
}

// beta = 1, alpha = 1: nothing decays, every update is whole.
TEST(ParityHostile, KeysThatResembleEachOther) {
  for_every_shape([](const Shape& shape) {
    ProblemSpec spec = base(shape);
    spec.gates = Gates::zero, spec.betas = Betas::one;
    for (const Keys keys : {Keys::equal, Keys::alternating, Keys::opposite}) {
      for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16}) {
        spec.keys = keys, spec.input = input;
        expect_parity(spec);
      }
    }
    spec.input = CANOPY_F32, spec.keys = Keys::similar;
    for (const double cosine : {0.5, 0.95, 0.99, 0.999999}) {
      spec.key_cosine = cosine;
      expect_parity(spec);
    }
  });
}

TEST(ParityHostile, KeysThatResembleEachOtherAtFullWidth) {
  for (const Shape& shape : {Shape{"chain", 256}, Shape{"best-first", 256}}) {
    for (const Keys keys : {Keys::equal, Keys::similar, Keys::alternating, Keys::opposite}) {
      ProblemSpec spec = base(shape);
      spec.dim_k = spec.dim_v = 128, spec.heads_v = 1, spec.key_cosine = 0.99;
      spec.keys = keys, spec.gates = Gates::zero, spec.betas = Betas::one;
      if (!light()) expect_parity(spec);
    }
  }
}

TEST(ParityHostile, Gates) {
  constexpr Gates kinds[] = {Gates::zero,     Gates::all_strong, Gates::root_strong, Gates::root_912,
                             Gates::eighth,   Gates::half_half,  Gates::inf_root,    Gates::inf_middle,
                             Gates::inf_leaf, Gates::tiny,       Gates::positive};
  for_every_shape([&](const Shape& shape) {
    for (const Gates gates : kinds) {
      for (const Keys keys : {Keys::random, Keys::similar}) {
        ProblemSpec spec = base(shape);
        spec.gates = gates, spec.keys = keys, spec.betas = keys == Keys::similar ? Betas::one : Betas::natural;
        expect_parity(spec);
        spec.raw_gates = true;
        if (gates != Gates::positive) expect_parity(spec);
      }
    }
  });
}

TEST(ParityHostile, EveryGateForgets) {
  for_every_shape([](const Shape& shape) {
    for (const float gate : {-kInf, std::numeric_limits<float>::lowest(), -104.0f, -90.0f}) {
      Case c(base(shape));
      HostTensor& g = c.tensor("g");
      for (std::int64_t i = 0; i < g.elements(); ++i) g.set(i, gate);
      expect_parity(c.solved());
    }
  });
}

TEST(ParityHostile, Betas) {
  for_every_shape([](const Shape& shape) {
    for (const Betas betas : {Betas::zero, Betas::one, Betas::mixed}) {
      for (const bool raw : {false, true}) {
        ProblemSpec spec = base(shape);
        spec.betas = betas, spec.raw_gates = raw, spec.keys = Keys::similar;
        expect_parity(spec);
      }
    }
  });
}

TEST(ParityHostile, BetaZeroLeavesUExactlyZero) {
  for (const Keys keys : {Keys::random, Keys::equal}) {
    ProblemSpec spec = base({"best-first", 80});
    spec.betas = Betas::zero, spec.keys = keys;
    Case c(spec);
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs out = run(contender, c.params);
      for (std::int64_t i = 0; i < out.u.elements(); ++i) ASSERT_EQ(out.u.get(i), 0.0f) << contender.name();
    }
  }
}

// beta = 2 sigmoid(b): the state's eigenvalues go down to -1.
TEST(ParityHostile, NegativeEigenvalues) {
  for_every_shape([](const Shape& shape) {
    for (const Betas betas : {Betas::one, Betas::natural, Betas::mixed}) {
      ProblemSpec spec = base(shape);
      spec.raw_gates = true, spec.betas = betas, spec.l2norm = true;
      Case c(spec);
      c.problem.beta_doubled = true;
      expect_parity(c.solved());
    }
  });
}

TEST(ParityHostile, ZeroAndTinyKeysAndQueries) {
  for_every_shape([](const Shape& shape) {
    for (const Keys keys : {Keys::zero, Keys::tiny}) {
      for (const bool norm : {false, true}) {
        ProblemSpec spec = base(shape);
        spec.keys = keys, spec.l2norm = norm;
        expect_parity(spec);
      }
    }
    ProblemSpec spec = base(shape);
    spec.l2norm = true;
    Case c(spec);
    HostTensor &q = c.tensor("q"), &k = c.tensor("k");
    for (std::int64_t i = 0; i < q.elements(); ++i) q.set(i, q.get(i) * 1e-7f), k.set(i, k.get(i) * 1e4f);
    expect_parity(c.solved());
  });
}

// exp(A_log) past fp32 and past fp64, against a softplus from nothing to 100.
TEST(ParityHostile, RawGatesAtTheEndsOfTheirRange) {
  int number = 0;
  const float a_logs[] = {0.0f, 5.0f, 100.0f, 1000.0f, -100.0f, -1000.0f};
  for (const Shape& shape : {Shape{"best-first", 40}, Shape{"chain", 70}}) {
    for (const float a_log : a_logs) {
      for (const float argument : {100.0f, -100.0f, 20.0f, 20.5f, -39.5f, -40.5f, 0.0f}) {
        if (skip(++number, 5)) continue;
        ProblemSpec spec = base(shape);
        spec.raw_gates = true;
        Case c(spec);
        for (std::int64_t hv = 0; hv < 2; ++hv)
          c.tensor("A_log").set(hv, a_log), c.tensor("dt_bias").set(hv, argument / 4);
        HostTensor &a = c.tensor("a"), &b = c.tensor("b");
        for (std::int64_t i = 0; i < a.elements(); ++i) {
          a.set(i, argument - argument / 4);
          if (i % 3) b.set(i, i % 3 == 1 ? 100.0f : -100.0f);
        }
        expect_parity(c.solved());
      }
    }
  }
}

TEST(ParityHostile, StateScale) {
  for_every_shape([](const Shape& shape) {
    for (const double scale : {1e4, 1e-4, 0.0}) {
      for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16}) {
        ProblemSpec spec = base(shape);
        spec.state_scale = scale, spec.state = state;
        expect_parity(spec);
        spec.keys = Keys::similar, spec.gates = Gates::zero, spec.betas = Betas::one;
        expect_parity(spec);
      }
    }
  });
}

// Renumbered parents-first, a tree gives the same answer: here the original's, moved, not a new one.
TEST(ParityHostile, RelabelledTrees) {
  for_every_shape([](const Shape& shape) {
    ProblemSpec spec = base(shape);
    spec.keys = Keys::similar;
    Case original(spec);
    original.solved();
    const Tree tree = tree_of(spec);
    const auto labels_of = [](std::span<const std::int32_t> rank) {
      return std::vector<std::int32_t>(rank.begin(), rank.end());
    };
    for (const auto& labels : {labels_of(tree.level_rank()), labels_of(tree.dfs_rank()),
                               random_topological_labels(tree, 1), random_topological_labels(tree, 2)}) {
      const Result<Tree> moved_tree = relabel(tree, labels);
      ASSERT_TRUE(moved_tree.ok());
      Case moved(spec);
      moved.name += " relabelled";
      std::ranges::copy(moved_tree->parents(), moved.tensor("parents").i32());
      const auto move = [&](const auto* from, auto* to, std::size_t bytes_a_row) {
        for (int i = 0; i < tree.size(); ++i)
          std::memcpy(reinterpret_cast<char*>(to) + labels[i] * bytes_a_row,
                      reinterpret_cast<const char*>(from) + i * bytes_a_row, bytes_a_row);
      };
      for (const char* name : {"q", "k", "v", "g", "beta"}) {
        const HostTensor& from = original.tensor(name);
        move(from.bytes.data(), moved.tensor(name).bytes.data(), from.bytes.size() / tree.size());
      }
      moved.truth = original.truth;
      move(original.truth.o.data(), moved.truth.o.data(), original.truth.o.size() / tree.size() * sizeof(double));
      move(original.truth.u.data(), moved.truth.u.data(), original.truth.u.size() / tree.size() * sizeof(double));
      move(original.truth.l.data(), moved.truth.l.data(), original.truth.l.size() / tree.size() * sizeof(double));
      expect_parity(moved);
    }
  });
}

}  // namespace
}  // namespace canopy::parity
