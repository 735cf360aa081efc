// Commit, every implementation: the oracle's state at every leaf, in every slot arrangement, and not a bit elsewhere.
#include "parity/layers.hpp"

namespace canopy::parity {
namespace {

using Slots = std::vector<std::int32_t>;

ProblemSpec base(const char* family, int nodes) {
  ProblemSpec spec;
  spec.family.name = family, spec.family.nodes = nodes;
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 24, spec.dim_v = 40, spec.seed = 6;
  return spec;
}

TEST(ParityCommit, EveryNodeOfEveryFamily) {
  int number = 0;
  for (const char* name : family_names()) {
    for (const int layers : {1, 3}) {
      if (skip(++number, 4)) continue;
      ProblemSpec spec = base(name, number % 2 ? 21 : 34);
      spec.batch = 2, spec.raw_gates = number % 4 < 2, spec.l2norm = number % 3 == 0;
      Layers set(spec, layers);
      for (const CommitContender& contender : contenders<CommitParams>()) {
        CommitParams params = set.params();
        set_method(contender, params);
        for (int node = 0; node < spec.family.nodes; ++node) {
          const std::int32_t leaf[] = {node, spec.family.nodes - 1 - node};
          params.leaf = leaf;
          const HostTensor after = run_commit(contender, params, set.pool());
          set.expect_pool(contender, set.pool(), after, {Placed{0, leaf[0]}, Placed{1, leaf[1]}}, "in place");
        }
      }
    }
  }
}

TEST(ParityCommit, EveryStateTypeLayoutAndWidth) {
  int number = 0;
  for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
        for (const auto& [dim_k, dim_v] : {std::pair{8, 8}, {16, 136}, {128, 128}, {256, 24}, {72, 256}}) {
          if (skip(++number, 9)) continue;
          ProblemSpec spec = base("best-first", 30);
          spec.state = state, spec.input = input, spec.layout = layout, spec.dim_k = dim_k, spec.dim_v = dim_v;
          Layers set(spec, 1);
          for (const CommitContender& contender : contenders<CommitParams>()) {
            CommitParams params = set.params();
            set_method(contender, params);
            for (const std::int32_t leaf : {0, 29}) {
              params.leaf = &leaf;
              set.expect_pool(contender, set.pool(), run_commit(contender, params, set.pool()), {Placed{0, leaf}},
                              "in place");
            }
          }
        }
      }
    }
  }
}

TEST(ParityCommit, LongPaths) {
  for (const int nodes : {16, 17, 63, 64, 65, 255, 256}) {
    for (const host::Keys keys : {host::Keys::random, host::Keys::equal, host::Keys::similar, host::Keys::opposite}) {
      ProblemSpec spec = base("chain", nodes);
      spec.input = CANOPY_F32, spec.keys = keys;
      if (keys != host::Keys::random) spec.gates = host::Gates::zero, spec.betas = host::Betas::one;
      Layers set(spec, 1);
      const std::int32_t leaf = nodes - 1;
      for (const CommitContender& contender : contenders<CommitParams>()) {
        CommitParams params = set.params();
        set_method(contender, params);
        params.leaf = &leaf;
        set.expect_pool(contender, set.pool(), run_commit(contender, params, set.pool()), {Placed{0, leaf}},
                        "in place");
      }
    }
  }
}

TEST(ParityCommit, HostileGatesAndBetas) {
  using host::Gates;
  for (const Gates gates :
       {Gates::zero, Gates::all_strong, Gates::root_strong, Gates::root_912, Gates::eighth, Gates::half_half,
        Gates::inf_root, Gates::inf_middle, Gates::inf_leaf, Gates::tiny, Gates::positive}) {
    for (const host::Betas betas : {host::Betas::zero, host::Betas::one, host::Betas::mixed}) {
      ProblemSpec spec = base("skewed", 80);
      spec.family.depth = 60, spec.input = CANOPY_F32, spec.gates = gates, spec.betas = betas,
      spec.keys = host::Keys::similar;
      Layers set(spec, 1);
      for (const CommitContender& contender : contenders<CommitParams>()) {
        CommitParams params = set.params();
        set_method(contender, params);
        for (const std::int32_t leaf : {0, 40, 60, 79}) {
          params.leaf = &leaf;
          set.expect_pool(contender, set.pool(), run_commit(contender, params, set.pool()), {Placed{0, leaf}},
                          "in place");
        }
      }
    }
  }
}

// Five rows over nine slots, the third row padding (-1 in `source`). An empty list: not given.
struct Arrangement {
  const char* name;
  Slots leaf, dst, track_leaf, track;
  std::vector<std::optional<Placed>> expected;
};
const Slots kSource{2, 5, -1, 0, 7};
const std::optional<Placed> kOld;  // the slot keeps what it holds
const Arrangement kArrangements[] = {
    {"in place",
     {3, 9, 4, 0, 19},
     {},
     {},
     {},
     {Placed{3, 0}, kOld, Placed{0, 3}, kOld, kOld, Placed{1, 9}, kOld, Placed{4, 19}, kOld}},
    {"to other slots",
     {3, 9, 4, 0, 19},
     {1, 3, 6, 4, 8},
     {},
     {},
     {kOld, Placed{0, 3}, kOld, Placed{1, 9}, Placed{3, 0}, kOld, kOld, kOld, Placed{4, 19}}},
    {"one in place, one nowhere; the padding row names a slot in use",
     {3, 9, 4, 0, 19},
     {2, 3, 3, -1, 7},
     {},
     {},
     {kOld, kOld, Placed{0, 3}, Placed{1, 9}, kOld, kOld, kOld, Placed{4, 19}, kOld}},
    {"leaves that are none", {-1, 20, 4, INT32_MAX, INT32_MIN}, {}, {}, {}, std::vector<std::optional<Placed>>(9)},
    {"tracks in slots of their own",
     {3, 9, 4, 0, 19},
     {},
     {1, -1, 2, 0, 8},
     {1, 3, 3, 4, 6},
     {Placed{3, 0}, Placed{0, 1}, Placed{0, 3}, kOld, Placed{3, 0}, Placed{1, 9}, Placed{4, 8}, Placed{4, 19}, kOld}},
    {"tracks in the source slots",
     {3, 9, 4, 0, 19},
     {1, 3, 6, 4, 6},
     {2, 20, 2, 11, 8},
     {2, 5, 5, 0, 7},
     {Placed{3, 11}, Placed{0, 3}, Placed{0, 2}, Placed{1, 9}, Placed{3, 0}, kOld, Placed{4, 19}, Placed{4, 8}, kOld}},
    {"a track alone, a track to padding, a track of a skipped row",
     {3, 9, 4, 0, -1},
     {-1, 3, 6, 4, 6},
     {2, 5, 2, 11, 8},
     {2, -1, 5, 0, 7},
     {Placed{3, 11}, kOld, Placed{0, 2}, Placed{1, 9}, Placed{3, 0}, kOld, kOld, kOld, kOld}},
};

HostTensor indices(const Slots& values, canopy_dtype dtype) {
  HostTensor out = HostTensor::make(dtype, {std::int64_t(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == CANOPY_I32)
      out.i32()[i] = values[i];
    else
      reinterpret_cast<std::int64_t*>(out.bytes.data())[i] = values[i];
  }
  return out;
}

TEST(ParityCommit, SlotArrangements) {
  for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    for (const canopy_dtype index : {CANOPY_I32, CANOPY_I64}) {
      for (const int layers : {1, 3}) {
        ProblemSpec spec = base("random", 20);
        spec.batch = 5, spec.state = state, spec.slots = true;
        spec.layout = layers == 1 ? CANOPY_STATE_VK : CANOPY_STATE_KV;
        const HostTensor source = indices(kSource, index);
        Layers set(spec, layers, &source);
        ASSERT_EQ(set.params().problem.slots, 9);
        for (const Arrangement& arrangement : kArrangements) {
          const HostTensor dst = indices(arrangement.dst, index), track = indices(arrangement.track, index);
          CommitParams params = set.params();
          params.leaf = arrangement.leaf.data();
          if (!arrangement.dst.empty()) params.dst_slot = dst.bytes.data();
          if (!arrangement.track.empty()) {
            params.track_leaf = arrangement.track_leaf.data(), params.track_slot = track.bytes.data();
          }
          for (const CommitContender& contender : contenders<CommitParams>()) {
            set_method(contender, params);
            std::vector<std::int32_t> status;
            const HostTensor after = run_commit(contender, params, set.pool(), &status);
            EXPECT_EQ(status, std::vector<std::int32_t>(5, 0)) << contender.name() << ", " << arrangement.name;
            set.expect_pool(contender, set.pool(), after, arrangement.expected, arrangement.name);
            EXPECT_TRUE(same_bits(after, run_commit(contender, params, set.pool()))) << "without a row_status";
          }
        }
      }
    }
  }
}

TEST(ParityCommit, RaggedRows) {
  ProblemSpec spec = base("specla", 30);
  spec.batch = 6, spec.ragged = spec.slots = true;
  Layers set(spec, 2);
  const Problem& p = set.params().problem;
  for (const int back : {0, 1, 5}) {  // the row's first dead node, its last live one, one before that
    Slots leaf;
    std::vector<std::optional<Placed>> expected(std::size_t(p.slots));
    for (int b = 0; b < spec.batch; ++b) {
      leaf.push_back(count_of(p, b) - back);
      if (slot_of(p, p.slot_index, b) >= 0 && leaf[b] >= 0 && leaf[b] < set.live(b))
        expected[std::size_t(slot_of(p, p.slot_index, b))] = Placed{b, leaf[b]};
    }
    for (const CommitContender& contender : contenders<CommitParams>()) {
      CommitParams params = set.params();
      set_method(contender, params);
      params.leaf = leaf.data();
      set.expect_pool(contender, set.pool(), run_commit(contender, params, set.pool()), expected, "ragged");
    }
  }
}

// The state depends on the accepted path alone: in another tree, as a chain, beside poisoned siblings.
TEST(ParityCommit, OnlyThePathCounts) {
  const ProblemSpec spec = base("random", 60);
  const Tree tree = *make_family(spec.family);
  for (const std::int32_t leaf : {59, 31, 7, 0}) {
    const std::vector<std::int32_t> path = tree.path(leaf);
    Layers whole(spec, 1);
    ProblemSpec chain_spec = spec;
    chain_spec.family.name = "chain", chain_spec.family.nodes = int(path.size());
    Case chain(chain_spec), poisoned_case(spec);
    for (const char* name : {"k", "v", "g", "beta"}) {
      HostTensor &from = poisoned_case.tensor(name), &to = chain.tensor(name);
      const std::size_t each = from.bytes.size() / std::size_t(tree.size());
      for (std::size_t i = 0; i < path.size(); ++i) std::memcpy(&to.bytes[i * each], &from.bytes[path[i] * each], each);
      for (int node = 0; node < tree.size(); ++node)
        if (node != leaf && !contains(tree.ancestors(leaf), node)) std::memset(&from.bytes[node * each], 0xff, each);
    }
    chain.tensor("state") = poisoned_case.tensor("state");
    chain.refresh(), poisoned_case.refresh();
    for (const CommitContender& contender : contenders<CommitParams>()) {
      CommitParams params = whole.params(), poisoned_params = params, chain_params = params;
      set_method(contender, params);
      params.leaf = &leaf;
      const HostTensor expected = run_commit(contender, params, whole.pool());
      if (params.method == CANOPY_COMMIT_STASH) continue;  // its U belongs to the tree
      poisoned_params.problem = poisoned_case.params.problem;
      const std::int32_t end = std::int32_t(path.size()) - 1;
      chain_params.problem = chain.params.problem;
      poisoned_params.method = chain_params.method = params.method;
      poisoned_params.leaf = &leaf, chain_params.leaf = &end;
      EXPECT_EQ(expected.bytes, run_commit(contender, poisoned_params, poisoned_case.tensor("state")).bytes)
          << contender.name();
      // Bit for bit also for a chain: replay promises it (canopy.h), and resolve solves the same chain.
      EXPECT_EQ(expected.bytes, run_commit(contender, chain_params, chain.tensor("state")).bytes) << contender.name();
    }
  }
}

}  // namespace
}  // namespace canopy::parity
