// The tree convolution: every type, width and layout against the definition in every implementation of the CPU, what
// siblings and leaves see, rows that are skipped or malformed, and every wrong call refused with its reason.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "conv_cases.hpp"
#include "cpu/kernels.hpp"

namespace canopy {
namespace {

using tests::ConvCase;
using tests::ConvSpec;

template <class Params>
std::vector<const Implementation<Params>*> usable(std::span<const Implementation<Params>> all) {
  std::vector<const Implementation<Params>*> out;
  for (const auto& implementation : all)
    if (implementation.device == CANOPY_CPU) out.push_back(&implementation);
  return out;
}
const auto verifiers = [] { return usable<ConvVerifyParams>(conv_verify_implementations()); };
const auto committers = [] { return usable<ConvCommitParams>(conv_commit_implementations()); };

std::vector<std::int32_t> status_of(const ConvCase& made) {
  const std::int32_t* status = made.buffers.at("status").i32();
  return {status, status + made.spec().batch};
}

// Every implementation on a case of its own; the pool must be what it was.
void expect_verified(const ConvSpec& spec) {
  for (const auto* implementation : verifiers()) {
    ConvCase made(spec);
    const auto before = made.buffers.at("state").bytes;
    const Error error = conv_verify(made.verify(made.here()), implementation->name);
    ASSERT_EQ(error.message, "") << implementation->name;
    EXPECT_EQ(wrong_output(made, made.buffers.at("o"), status_of(made)), "") << implementation->name;
    EXPECT_EQ(before, made.buffers.at("state").bytes) << implementation->name << " changed the pool";
  }
}
void expect_committed(const ConvSpec& spec) {
  for (const auto* implementation : committers()) {
    ConvCase made(spec);
    const host::HostTensor expected = tests::pool_after(made);
    const Error error = conv_commit(made.commit(made.here()), implementation->name);
    ASSERT_EQ(error.message, "") << implementation->name;
    EXPECT_EQ(expected.bytes, made.buffers.at("state").bytes) << implementation->name;
    EXPECT_EQ(status_of(made), std::vector<std::int32_t>(spec.batch, 0)) << implementation->name;
  }
}

TEST(Conv, EveryTypeAndWidth) {
  for (const int width : {2, 3, 4})
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
        for (const bool wide_output : {false, true}) {
          ConvSpec spec{.width = width, .layers = 2, .input = input, .state = state};
          spec.constants = width == 3 ? CANOPY_F16 : state, spec.output = wide_output ? CANOPY_F32 : input;
          spec.bias = width != 3, spec.taps_apart = input == CANOPY_F16;
          spec.moved = wide_output, spec.tracked = width != 2;
          for (const bool silu : {false, true}) {
            spec.silu = silu;
            expect_verified(spec);
          }
          expect_committed(spec);
        }
}

TEST(Conv, ChannelsStridesTreesAndIndices) {
  for (const int channels : {1, 7, 16, 255, 256, 257, 600})
    expect_verified({.channels = channels, .gap = channels % 3});
  for (const char* family : {"chain", "star", "best-first", "random"})
    for (const int nodes : {1, 2, 3, 5, 64, 256})
      for (const bool links : {false, true}) {
        ConvSpec spec{.nodes = nodes, .channels = 20, .input = CANOPY_F32, .links = links, .long_index = links};
        spec.family = family, spec.output = CANOPY_F32, spec.moved = links, spec.tracked = !links;
        expect_verified(spec);
        expect_committed(spec);
      }
}

// The instruction sets of this machine give the same bits: the sum has one definition.
TEST(Conv, EveryInstructionSetGivesTheSameBits) {
  const cpu::Kernels* sets[3];
  const int count = cpu::kernel_sets(sets);
  for (int s = 0; s < count; ++s) {
    cpu::use_kernels(sets[s]);
    for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
      ConvSpec spec{.channels = 83, .input = input, .output = CANOPY_F32};
      ConvCase made(spec);
      ASSERT_EQ(conv_verify(made.verify(made.here()), "cpu_conv").message, "");
      EXPECT_EQ(wrong_output(made, made.buffers.at("o"), status_of(made)), "") << sets[s]->name;
    }
  }
  cpu::use_kernels(nullptr);
}

// One channel by hand: w = 1, 10, 100, 1000 on the committed window 1 2 3, a root 4 and its children 5, 6,
// grandchild 7.
struct ByHand {
  std::vector<std::int32_t> parents{-1, 0, 0, 1}, leaf{0}, status{0};
  std::vector<float> x{4, 5, 6, 7}, weight{1, 10, 100, 1000}, window{1, 2, 3}, o = std::vector<float>(4, -1);
  ConvVerifyParams verify = conv_verify_params();
  ConvCommitParams commit = conv_commit_params();
  ByHand() {
    ConvProblem& p = verify.problem;
    p.batch = 1, p.nodes = 4, p.channels = 1, p.width = 4, p.slots = 1;
    p.trees.parents = parents.data(), p.trees.row_stride = 4;
    p.x = contiguous(x.data(), CANOPY_F32, {1, 4, 1}), p.state = contiguous(window.data(), CANOPY_F32, {1, 1, 3});
    verify.weight = contiguous(weight.data(), CANOPY_F32, {1, 4}),
    verify.o = contiguous(o.data(), CANOPY_F32, {1, 4, 1});
    commit.problem = p, commit.leaf = leaf.data();
  }
};

TEST(Conv, ByHandSiblingsSeeTheSameWindow) {
  for (const auto* implementation : verifiers()) {
    ByHand hand;
    ASSERT_EQ(conv_verify(hand.verify, implementation->name).message, "");
    EXPECT_EQ(hand.o, (std::vector<float>{4321, 5432, 6432, 7543})) << implementation->name;
  }
}

TEST(Conv, ByHandLeafAtEachDepth) {
  const std::vector<float> after[] = {{2, 3, 4}, {3, 4, 5}, {3, 4, 6}, {4, 5, 7}};  // leaf 0, 1, 2, 3
  for (const auto* implementation : committers())
    for (int leaf = 0; leaf < 4; ++leaf) {
      ByHand hand;
      hand.leaf[0] = leaf;
      ASSERT_EQ(conv_commit(hand.commit, implementation->name).message, "");
      EXPECT_EQ(hand.window, after[leaf]) << implementation->name << ", leaf " << leaf;
    }
}

TEST(Conv, SkippedRowsKeepTheirBits) {
  for (const auto* implementation : committers())
    for (const int leaf : {-1, 4, 100, std::numeric_limits<int>::min()}) {
      ByHand hand;
      hand.leaf[0] = leaf;
      ASSERT_EQ(conv_commit(hand.commit, implementation->name).message, "");
      EXPECT_EQ(hand.window, (std::vector<float>{1, 2, 3})) << implementation->name << ", leaf " << leaf;
    }
}

// With the rounds of a decoding loop the window stays that of the whole sequence so far.
TEST(Conv, ManyRoundsAreOneLongSequence) {
  for (const auto* implementation : committers()) {
    ByHand hand;
    const std::vector<int> paths[] = {{0}, {0, 1}, {0, 2}, {0, 1, 3}};  // to node 0, 1, 2, 3
    std::vector<float> all{1, 2, 3};
    for (int round = 0; round < 40; ++round) {
      for (int i = 0; i < 4; ++i) hand.x[i] = static_cast<float>(100 * round + i);
      hand.leaf[0] = round % 4;
      for (const int node : paths[round % 4]) all.push_back(hand.x[node]);
      ASSERT_EQ(conv_commit(hand.commit, implementation->name).message, "");
      ASSERT_EQ(hand.window, std::vector<float>(all.end() - 3, all.end()))
          << implementation->name << " round " << round;
    }
  }
}

TEST(Conv, NaNStaysInTheSubtreeWithinReach) {
  for (const auto* implementation : verifiers()) {
    ConvSpec spec{.batch = 1, .nodes = 120, .channels = 33, .ragged = false};
    ConvCase made(spec), poisoned(spec);
    for (int c = 0; c < 33; ++c) poisoned.buffers.at("x").set(17 * 33 + c, std::nanf(""));
    ASSERT_TRUE(conv_verify(made.verify(made.here()), implementation->name).ok());
    ASSERT_TRUE(conv_verify(poisoned.verify(poisoned.here()), implementation->name).ok());
    int reached = 0;
    for (int node = 0; node < 120; ++node) {
      int up = node, steps = 0;
      while (up > 17 && steps < 3) up = made.parent(0, up), ++steps;
      const bool sees = up == 17;
      reached += sees;
      for (int c = 0; c < 33; ++c) {
        EXPECT_EQ(std::isnan(poisoned.output(0, node, c)), sees) << node;
        if (sees) continue;
        EXPECT_EQ(made.output(0, node, c), poisoned.output(0, node, c)) << node;
      }
    }
    EXPECT_GE(reached, 1);
  }
}

TEST(Conv, BadRowsAreFlaggedAndTheOthersRun) {
  for (const auto* implementation : verifiers()) {
    ConvSpec spec{.batch = 5, .nodes = 9, .padding = false};
    ConvCase sound(spec), made(spec);
    std::int32_t* const count = made.buffers.at("count").i32();
    made.buffers.at("parents").i32()[0 * 9 + 3] = 4, count[0] = 8;  // a tree with NaN for outputs
    made.buffers.at("slot").i32()[2] = static_cast<int>(made.slots());
    count[3] = 10;
    ASSERT_EQ(conv_verify(made.verify(made.here()), implementation->name).message, "");
    ASSERT_EQ(conv_verify(sound.verify(sound.here()), implementation->name).message, "");
    EXPECT_EQ(status_of(made),
              (std::vector<std::int32_t>{CANOPY_ROW_BAD_TREE, 0, CANOPY_ROW_BAD_SLOT, CANOPY_ROW_BAD_COUNT, 0}));
    const auto& o = made.buffers.at("o").bytes;
    const std::size_t row = o.size() / 5;
    EXPECT_TRUE(std::isnan(made.output(0, 7, 69)));
    for (int c = 0; c < 70; ++c) EXPECT_TRUE(std::isnan(made.output(0, 0, c)));
    for (std::size_t i = 0; i < row; ++i) {
      EXPECT_EQ(o[2 * row + i], std::byte{0xff}) << "the row with the bad slot was written";
      EXPECT_EQ(o[3 * row + i], std::byte{0xff}) << "the row with the bad count was written";
      EXPECT_EQ(o[4 * row + i], sound.buffers.at("o").bytes[4 * row + i]) << "the last row is not as if alone";
    }
    for (std::size_t i = 8 * row / 9; i < row; ++i) EXPECT_EQ(o[i], std::byte{0xff}) << "NaN past the count";
  }
  for (const auto* implementation : committers()) {
    ConvSpec spec{.batch = 3, .nodes = 9, .ragged = false, .padding = false, .moved = true};
    ConvCase made(spec);
    made.buffers.at("parents").i32()[3] = 4;
    made.buffers.at("dst").i32()[1] = static_cast<int>(made.slots());
    for (int b = 0; b < 3; ++b) made.buffers.at("leaf").i32()[b] = 5;
    ConvCase skipped = made;
    skipped.buffers.at("leaf").i32()[0] = skipped.buffers.at("leaf").i32()[1] = -1;
    ASSERT_EQ(conv_commit(made.commit(made.here()), implementation->name).message, "");
    EXPECT_EQ(status_of(made), (std::vector<std::int32_t>{CANOPY_ROW_BAD_TREE, CANOPY_ROW_BAD_SLOT, 0}));
    EXPECT_EQ(made.buffers.at("state").bytes, pool_after(skipped).bytes) << implementation->name;
  }
}

TEST(Conv, AnEmptyBatchNeedsNoPointers) {
  ConvVerifyParams verify = conv_verify_params();
  ConvCommitParams commit = conv_commit_params();
  verify.problem.nodes = commit.problem.nodes = 4, verify.problem.channels = commit.problem.channels = 8;
  verify.problem.width = commit.problem.width = 4;
  EXPECT_EQ(conv_verify(verify).message, "");
  EXPECT_EQ(conv_commit(commit).message, "");
  EXPECT_EQ(*conv_verify_workspace(verify), 0u);
  EXPECT_EQ(*conv_commit_workspace(commit), 0u);
}

TEST(Conv, NamesAndDevices) {
  ByHand hand;
  EXPECT_EQ(conv_verify(hand.verify, "conv").status, CANOPY_INVALID);
  EXPECT_NE(conv_verify(hand.verify, "conv").message.find("implementation = \"conv\": expected one of cpu_conv"),
            std::string::npos);
  hand.verify.problem.device = CANOPY_CUDA;
  EXPECT_EQ(conv_verify(hand.verify, "reference_conv", nullptr, 0).message,
            "reference_conv: device is cuda: expected cpu; copy the tensors to the host");
  EXPECT_EQ(conv_verify_workspace(hand.verify, "cpu_conv").error().message,
            "cpu_conv: device is cuda: expected cpu; copy the tensors to the host");
}

// ---- refusals ----------------------------------------------------------------------------------------------------
struct Wrong {
  const char* name;
  std::function<void(ConvVerifyParams&, ConvCommitParams&)> spoil;  // both are checked where both have the argument
  const char* message;
  bool verify, commit;
};

std::int32_t kLate[] = {-1, 0, 3, 1}, kSlot[] = {7}, kOne[] = {1};

const Wrong kWrong[] = {
    {"abi", [](auto& v, auto& c) { v.problem.abi_version = c.problem.abi_version = 9; },
     "abi_version = 9: expected 1; call canopy_conv_verify_params_init or canopy_conv_commit_params_init, and build "
     "against "
     "this library's canopy.h",
     true, true},
    {"device", [](auto& v, auto& c) { v.problem.device = c.problem.device = 2; },
     "device = 2: expected 0 (CANOPY_CPU) or 1 (CANOPY_CUDA)", true, true},
    {"nodes", [](auto& v, auto& c) { v.problem.nodes = c.problem.nodes = 257; },
     "nodes = 257: expected 1 to 256 nodes a tree; split or prune larger trees", true, true},
    {"channels", [](auto& v, auto& c) { v.problem.channels = c.problem.channels = 0; },
     "channels = 0: expected 1 or more channels", true, true},
    {"narrow", [](auto& v, auto& c) { v.problem.width = c.problem.width = 1; },
     "width = 1: expected 2 to 4 taps; pad a narrower weight with zeros in front (a width of 1 needs no window)", true,
     true},
    {"wide", [](auto& v, auto& c) { v.problem.width = c.problem.width = 5; },
     "width = 5: expected 2 to 4 taps; pad a narrower weight with zeros in front (a width of 1 needs no window)", true,
     true},
    {"no_tree", [](auto& v, auto& c) { v.problem.trees.parents = c.problem.trees.parents = nullptr; },
     "trees.parents is NULL: expected [B,T] int32, or next_token with next_sibling", true, true},
    {"no_x", [](auto& v, auto& c) { v.problem.x.data = c.problem.x.data = nullptr; }, "x is NULL: expected [B,T,C]",
     true, true},
    {"x_type", [](auto& v, auto& c) { v.problem.x.dtype = c.problem.x.dtype = CANOPY_I32; },
     "x.dtype = i32: expected f32, bf16 or f16 for [B,T,C]; convert it first", true, true},
    {"x_stride", [](auto& v, auto& c) { v.problem.x.stride[3] = c.problem.x.stride[3] = 2; },
     "x.stride[3] = 2: expected 1 (the channels of [B,T,C] are contiguous); make the last axis contiguous or fill in "
     "the "
     "strides, in elements",
     true, true},
    {"no_state", [](auto& v, auto& c) { v.problem.state.data = c.problem.state.data = nullptr; },
     "state is NULL: expected [slots,C,W-1]", true, true},
    {"state_type", [](auto& v, auto& c) { v.problem.state.dtype = c.problem.state.dtype = 9; },
     "state.dtype = dtype 9: expected f32, bf16 or f16 for [slots,C,W-1]; convert it first", true, true},
    {"slot", [](auto& v, auto& c) { v.problem.slot_index = c.problem.slot_index = kSlot; },
     "slot_index[b=0] = 7: expected less than slots = 1; indices at or below padding_slot = -1 mark a padding row",
     true, true},
    {"late_parent", [](auto& v, auto& c) { v.problem.trees.parents = c.problem.trees.parents = kLate; },
     "trees.parents[b=0][2] = 3: a parent must precede its child (expected 0 <= parent < 2); renumber the nodes "
     "parents first",
     true, true},
    {"no_weight", [](auto& v, auto&) { v.weight.data = nullptr; }, "weight is NULL: expected [C,W]", true, false},
    {"weight_type", [](auto& v, auto&) { v.weight.dtype = CANOPY_I64; },
     "weight.dtype = i64: expected f32, bf16 or f16 for [C,W]; convert it first", true, false},
    {"bias_type", [](auto& v, auto&) { v.bias = v.weight, v.bias.dtype = CANOPY_I32; },
     "bias.dtype = i32: expected f32, bf16 or f16 for [C]; convert it first", true, false},
    {"no_o", [](auto& v, auto&) { v.o.data = nullptr; }, "o is NULL: expected [B,T,C]", true, false},
    {"o_stride", [](auto& v, auto&) { v.o.stride[3] = 4; },
     "o.stride[3] = 4: expected 1 (the channels of [B,T,C] are contiguous); make the last axis contiguous or fill in "
     "the "
     "strides, in elements",
     true, false},
    {"o_overlaps", [](auto& v, auto&) { v.o.stride[2] = 0; },
     "o.stride[2] = 0: the elements of [B,T,C] overlap in memory and it is written; expected at least 1; give it "
     "memory of its own, not an expanded view",
     true, false},
    {"o_type", [](auto& v, auto&) { v.o.dtype = CANOPY_F16; },
     "o.dtype = f16: expected f32, the dtype of x, or f32; convert the result yourself", true, false},
    {"in_place", [](auto& v, auto&) { v.o = v.problem.x; },
     "o.data = x.data: expected memory of its own, since a node's descendants still read its input; give another "
     "output",
     true, false},
    {"layers", [](auto&, auto& c) { c.layers = 0; }, "layers = 0: expected 1 or more", false, true},
    {"layer_stride", [](auto&, auto& c) { c.layers = 2, c.problem.x.stride[0] = 0; },
     "x.stride[0] = 0: expected the elements from one layer to the next, 1 or more, because layers = 2", false, true},
    {"flat_pool", [](auto&, auto& c) { c.problem.state.stride[3] = 0; },
     "state.stride[3] = 0: the elements of [slots,C,W-1] overlap in memory and it is written; expected at least 1; "
     "give it memory of its own, not an expanded view",
     false, true},
    {"no_leaf", [](auto&, auto& c) { c.leaf = nullptr; },
     "leaf is NULL: expected [B] int32, the accepted node of each sequence", false, true},
    {"track_alone", [](auto&, auto& c) { c.track_leaf = kOne; },
     "track_slot is NULL: expected [B]: the two come together", false, true},
    {"dst", [](auto&, auto& c) { c.dst_slot = kSlot; },
     "dst_slot[b=0] = 7: expected less than slots = 1; indices at or below padding_slot = -1 mark a padding row", false,
     true},
};

class WrongConv : public testing::TestWithParam<Wrong> {};
TEST_P(WrongConv, IsRefused) {
  ByHand hand;
  GetParam().spoil(hand.verify, hand.commit);
  const Error verify = check(hand.verify), commit = check(hand.commit);
  EXPECT_EQ(verify.message, GetParam().verify ? GetParam().message : "");
  EXPECT_EQ(commit.message, GetParam().commit ? GetParam().message : "");
  EXPECT_EQ(verify.status, GetParam().verify ? CANOPY_INVALID : CANOPY_OK);
  EXPECT_EQ(commit.status, GetParam().commit ? CANOPY_INVALID : CANOPY_OK);
}
INSTANTIATE_TEST_SUITE_P(Check, WrongConv, testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace canopy
