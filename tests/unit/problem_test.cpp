// check(): every wrong call is refused with a message that names the argument, what was expected and what came.
#include "canopy/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "canopy/canopy.hpp"
#include "host/host_problem.hpp"

namespace canopy {
namespace {

// A sound problem of two sequences with all that verify and commit can take; each test spoils one thing.
struct Sound {
  host::HostProblem owner;
  host::HostTensor o, u, l;
  std::vector<std::int32_t> count{6, 6}, slot{2, 0}, leaf{5, 3}, dst{1, 3}, track_leaf{2, 1}, track{4, 5}, status{0, 0};
  std::vector<std::int32_t> next_token{1, 2, 3, -1, 5, -1, 1, 2, 3, -1, 5, -1},
      next_sibling{-1, 4, -1, -1, -1, -1, -1, 4, -1, -1, -1, -1};
  VerifyParams verify = verify_params();
  CommitParams commit = commit_params();

  explicit Sound(bool raw = false) {
    host::ProblemSpec spec;
    spec.batch = 2, spec.heads_k = 2, spec.heads_v = 4, spec.dim_k = 8, spec.dim_v = 16;
    spec.family.name = "random", spec.family.nodes = 6;
    spec.input = CANOPY_F32, spec.raw_gates = raw;
    auto made = host::make_problem(spec);
    EXPECT_TRUE(made) << made.error().message;
    owner = *std::move(made);
    owner.tensors["state"] = host::HostTensor::make(CANOPY_F32, {6, 4, 16, 8});
    owner.tensors["slots"] = host::HostTensor::make(CANOPY_I32, {2});
    auto view = owner.verify();
    EXPECT_TRUE(view) << view.error().message;
    verify = *view;
    verify.problem.slot_index = slot.data();
    o = host::HostTensor::make(CANOPY_F32, {2, 6, 4, 16}), u = o;
    l = host::HostTensor::make(CANOPY_F32, {2, 6, 4});
    verify.o = o.view(), verify.stash_u = u.view(), verify.stash_l = l.view();
    commit.problem = verify.problem;
    commit.leaf = leaf.data();
    commit.stash_u = u.view(), commit.stash_l = l.view();
  }
  std::int32_t* parents() { return owner.tensors["parents"].i32(); }
};

TEST(Check, TakesASoundProblem) {
  Sound sound, raw(true);
  EXPECT_EQ(check(sound.verify).message, "");
  EXPECT_EQ(check(raw.verify).message, "");
  for (const int method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
    sound.commit.method = method;
    EXPECT_EQ(check(sound.commit).message, "");
  }
  sound.commit.method = CANOPY_COMMIT_STASH;  // neither q, v nor gates are needed then
  for (auto* view :
       {&sound.commit.problem.q, &sound.commit.problem.v, &sound.commit.problem.g, &sound.commit.problem.beta}) {
    view->data = nullptr;
  }
  EXPECT_EQ(check(sound.commit).message, "");
  sound.verify.problem.trees.parents = nullptr;
  sound.verify.problem.trees.next_token = sound.next_token.data();
  sound.verify.problem.trees.next_sibling = sound.next_sibling.data();
  EXPECT_EQ(check(sound.verify).message, "");
}

TEST(Check, TakesAnEmptyBatchWithoutPointers) {
  VerifyParams params = verify_params();
  Problem& p = params.problem;
  p.nodes = 6, p.heads_k = 1, p.heads_v = 2, p.dim_k = 8, p.dim_v = 8;
  EXPECT_EQ(check(params).message, "");
  p.batch = 1;
  EXPECT_FALSE(check(params).ok());
}

struct WrongVerify {
  const char* name;
  std::function<void(Sound&)> spoil;
  const char* message;
};

const WrongVerify kWrongVerify[] = {
    {"abi", [](Sound& s) { s.verify.problem.abi_version = 7; },
     "abi_version = 7: expected 1; call canopy_verify_params_init or canopy_commit_params_init, and build against this "
     "library's "
     "canopy.h"},
    {"device", [](Sound& s) { s.verify.problem.device = 2; }, "device = 2: expected 0 (CANOPY_CPU) or 1 (CANOPY_CUDA)"},
    {"batch", [](Sound& s) { s.verify.problem.batch = -1; }, "batch = -1: expected 0 or more sequences"},
    {"no_nodes", [](Sound& s) { s.verify.problem.nodes = 0; },
     "nodes = 0: expected 1 to 256 nodes a tree; split or prune larger trees"},
    {"many_nodes", [](Sound& s) { s.verify.problem.nodes = 257; },
     "nodes = 257: expected 1 to 256 nodes a tree; split or prune larger trees"},
    {"heads_k", [](Sound& s) { s.verify.problem.heads_k = 0; }, "heads_k = 0: expected 1 or more key heads"},
    {"heads_v", [](Sound& s) { s.verify.problem.heads_v = 5; },
     "heads_v = 5: expected a positive multiple of heads_k = 2; give every key head as many value heads"},
    {"dim_k", [](Sound& s) { s.verify.problem.dim_k = 12; },
     "dim_k = 12: expected a multiple of 8 from 8 to 256; pad the head with zeros"},
    {"dim_v", [](Sound& s) { s.verify.problem.dim_v = 264; },
     "dim_v = 264: expected a multiple of 8 from 8 to 256; pad the head with zeros"},
    {"scale", [](Sound& s) { s.verify.problem.scale = std::numeric_limits<float>::infinity(); },
     "scale = inf: expected a finite factor on q, or 0 for K^-0.5"},
    {"eps", [](Sound& s) { s.verify.problem.l2norm = 1, s.verify.problem.l2norm_eps = -1; },
     "l2norm_eps = -1: expected a finite value of 0 or more (1e-6 is usual)"},
    {"layout", [](Sound& s) { s.verify.problem.state_layout = 3; },
     "state_layout = 3: expected 0 (CANOPY_STATE_VK, [slots,HV,V,K]) or 1 (CANOPY_STATE_KV, [slots,HV,K,V])"},
    {"slot_dtype", [](Sound& s) { s.verify.problem.slot_index_dtype = CANOPY_BF16; },
     "slot_index_dtype = bf16: expected i32 or i64; convert the indices"},
    {"padding", [](Sound& s) { s.verify.problem.padding_slot = -2; },
     "padding_slot = -2: expected -1 or more, so that negative indices are padding"},
    {"slots", [](Sound& s) { s.verify.problem.slots = -4; }, "slots = -4: expected 0 or more state slots"},
    {"small_pool", [](Sound& s) { s.verify.problem.slot_index = nullptr, s.verify.problem.slots = 1; },
     "slots = 1: expected at least batch = 2 because slot_index is NULL (sequence b uses slot b); give slot_index or a "
     "larger pool"},
    {"two_tree_forms", [](Sound& s) { s.verify.problem.trees.next_token = s.next_token.data(); },
     "trees: expected either parents or next_token with next_sibling, got both; leave one form NULL"},
    {"no_tree", [](Sound& s) { s.verify.problem.trees.parents = nullptr; },
     "trees.parents is NULL: expected [B,T] int32, or next_token with next_sibling"},
    {"half_links",
     [](Sound& s) {
       s.verify.problem.trees.parents = nullptr, s.verify.problem.trees.next_token = s.next_token.data();
     },
     "trees.next_sibling is NULL: expected [B,T] int32: the two links come together"},
    {"row_stride", [](Sound& s) { s.verify.problem.trees.row_stride = 5; },
     "trees.row_stride = 5: expected at least nodes = 6 int32 elements from one sequence's row to the next"},
    {"no_q", [](Sound& s) { s.verify.problem.q.data = nullptr; }, "q is NULL: expected [B,T,H,K]"},
    {"q_dtype", [](Sound& s) { s.verify.problem.q.dtype = CANOPY_I32; },
     "q.dtype = i32: expected f32, bf16 or f16 for [B,T,H,K]; convert it first"},
    {"k_dtype", [](Sound& s) { s.verify.problem.k.dtype = CANOPY_BF16; },
     "k.dtype = bf16: expected f32, the dtype of q; convert one of them"},
    {"unknown_dtype", [](Sound& s) { s.verify.problem.v.dtype = 9; },
     "v.dtype = dtype 9: expected f32, bf16 or f16 for [B,T,HV,V]; convert it first"},
    {"inner_stride", [](Sound& s) { s.verify.problem.k.stride[4] = 2; },
     "k.stride[4] = 2: expected 1 (the last axis of [B,T,H,K] is contiguous); make the last axis contiguous or fill in "
     "the strides, "
     "in elements"},
    {"negative_stride", [](Sound& s) { s.verify.problem.v.stride[2] = -16; },
     "v.stride[2] = -16: expected 0 or more elements for [B,T,HV,V]; make the tensor contiguous"},
    {"forgotten_strides",
     [](Sound& s) { s.verify.problem.g.stride[1] = s.verify.problem.g.stride[2] = s.verify.problem.g.stride[3] = 0; },
     "g.stride = 0 on every axis of [B,T,HV]: expected strides in elements, axis i in stride[i + 1]; fill them in"},
    {"huge_stride", [](Sound& s) { s.verify.problem.q.stride[1] = std::numeric_limits<std::int64_t>::max(); },
     "q.stride: the last element of [B,T,H,K] lies past 2^60 elements; expected strides in elements that the memory "
     "can hold"},
    {"misaligned", [](Sound& s) { s.verify.problem.q.data = static_cast<char*>(s.verify.problem.q.data) + 2; },
     "q.data: expected an address that is a multiple of its 4-byte elements, got one that is not; check the pointer "
     "arithmetic"},
    {"both_gates", [](Sound& s) { s.verify.problem.a = s.verify.problem.g; },
     "gates: expected either g and beta, or a, b, a_log and dt_bias, got tensors of both forms; leave one form NULL"},
    {"no_gates", [](Sound& s) { s.verify.problem.g.data = s.verify.problem.beta.data = nullptr; },
     "gates: expected g and beta [B,T,HV], or a, b [B,T,HV] with a_log, dt_bias [HV], got neither form; give one"},
    {"no_beta", [](Sound& s) { s.verify.problem.beta.data = nullptr; }, "beta is NULL: expected [B,T,HV]"},
    {"g_dtype", [](Sound& s) { s.verify.problem.g.dtype = CANOPY_F16; },
     "g.dtype = f16: expected f32 for [B,T,HV]; convert it first"},
    {"doubled", [](Sound& s) { s.verify.problem.beta_doubled = 1; },
     "beta_doubled = 1: expected 0 with g and beta (it belongs to the raw form); double beta yourself"},
    {"no_state", [](Sound& s) { s.verify.problem.state.data = nullptr; }, "state is NULL: expected [slots,HV,V,K]"},
    {"state_dtype", [](Sound& s) { s.verify.problem.state.dtype = CANOPY_I64; },
     "state.dtype = i64: expected f32, bf16 or f16 for [slots,HV,V,K]; convert it first"},
    {"precision", [](Sound& s) { s.verify.precision = 5; },
     "precision = 5: expected 0 (default) to 4 (fast), a canopy_precision"},
    {"no_o", [](Sound& s) { s.verify.o.data = nullptr; }, "o is NULL: expected [B,T,HV,V]"},
    {"o_overlaps", [](Sound& s) { s.verify.o.stride[2] = 16; },
     "o.stride[3] = 16: the elements of [B,T,HV,V] overlap in memory and it is written; expected at least 96; give it "
     "memory of its own, not an expanded view"},
    {"u_without_l", [](Sound& s) { s.verify.stash_l.data = nullptr; },
     "stash_l is NULL: expected [B,T,HV] f32: U and l of the stash come together"},
    {"u_dtype", [](Sound& s) { s.verify.stash_u.dtype = CANOPY_BF16; },
     "stash_u.dtype = bf16: expected f32 for [B,T,HV,V]; convert it first"},
    {"late_parent", [](Sound& s) { s.parents()[6 + 3] = 4; },
     "trees.parents[b=1][3] = 4: a parent must precede its child (expected 0 <= parent < 3); renumber the nodes "
     "parents first"},
    {"second_root", [](Sound& s) { s.parents()[2] = -1; },
     "trees.parents[b=0][2] = -1: a second root, only node 0 has none (expected 0 <= parent < 2); renumber the nodes "
     "parents "
     "first"},
    {"count", [](Sound& s) { s.count[1] = 7, s.verify.problem.trees.count = s.count.data(); },
     "trees.count[b=1] = 7: expected 0 <= count <= nodes = 6; give row_status to have such a row flagged and "
     "the others run"},
    {"negative_count", [](Sound& s) { s.count[0] = -1, s.verify.problem.trees.count = s.count.data(); },
     "trees.count[b=0] = -1: expected 0 <= count <= nodes = 6; give row_status to have such a row flagged and "
     "the others run"},
    {"slot", [](Sound& s) { s.slot[1] = 6; },
     "slot_index[b=1] = 6: expected less than slots = 6; indices at or below padding_slot = -1 mark a padding row"},
    {"looping_links",
     [](Sound& s) {
       s.next_sibling[6 + 4] = 1;
       s.verify.problem.trees.parents = nullptr;
       s.verify.problem.trees.next_token = s.next_token.data(),
       s.verify.problem.trees.next_sibling = s.next_sibling.data();
     },
     "trees.next_token, trees.next_sibling at [b=1][1] = 2, 4: expected links that reach each of the 6 live nodes "
     "once, from a parent "
     "to later children, and -1 for none"},
};

class WrongVerifyCall : public testing::TestWithParam<WrongVerify> {};
TEST_P(WrongVerifyCall, IsRefused) {
  Sound sound;
  GetParam().spoil(sound);
  const Error error = check(sound.verify);
  EXPECT_EQ(error.status, CANOPY_INVALID);
  EXPECT_EQ(error.message, GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Check, WrongVerifyCall, testing::ValuesIn(kWrongVerify),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Check, RawGatesComeWithTheirFour) {
  Sound sound(true);
  sound.verify.problem.dt_bias.data = nullptr;
  EXPECT_EQ(check(sound.verify).message, "dt_bias is NULL: expected [HV]");
  Sound mixed(true);
  mixed.verify.problem.b.dtype = CANOPY_BF16;
  EXPECT_EQ(check(mixed.verify).message, "b.dtype = bf16: expected f32, the dtype of a; convert one of them");
}

TEST(Check, LeavesBadRowsToRowStatusWhenGiven) {
  Sound sound;
  sound.slot[0] = 6, sound.parents()[6 + 3] = 4;
  EXPECT_FALSE(check(sound.verify).ok());
  sound.verify.row_status = sound.status.data();
  EXPECT_TRUE(check(sound.verify).ok());
  EXPECT_EQ(row_flags(sound.verify.problem, 0), CANOPY_ROW_BAD_SLOT);
  EXPECT_EQ(row_flags(sound.verify.problem, 1), CANOPY_ROW_BAD_TREE);
}

struct WrongCommit {
  const char* name;
  std::function<void(Sound&)> spoil;
  const char* message;
};

const WrongCommit kWrongCommit[] = {
    {"abi", [](Sound& s) { s.commit.problem.abi_version = 0; },
     "abi_version = 0: expected 1; call canopy_verify_params_init or canopy_commit_params_init, and build against this "
     "library's "
     "canopy.h"},
    {"method", [](Sound& s) { s.commit.method = 3; }, "method = 3: expected 0 (resolve), 1 (stash) or 2 (replay)"},
    {"layers", [](Sound& s) { s.commit.layers = 0; }, "layers = 0: expected 1 or more"},
    {"layer_stride", [](Sound& s) { s.commit.layers = 2, s.commit.problem.k.stride[0] = 0; },
     "k.stride[0] = 0: expected the elements from one layer to the next, 1 or more, because layers = 2"},
    {"no_stash", [](Sound& s) { s.commit.method = CANOPY_COMMIT_STASH, s.commit.stash_u.data = nullptr; },
     "stash_u is NULL: expected [L,B,T,HV,V] f32 with method stash; let verify write U and l, or use method resolve"},
    {"no_leaf", [](Sound& s) { s.commit.leaf = nullptr; },
     "leaf is NULL: expected [B] int32, the accepted node of each sequence"},
    {"track_alone", [](Sound& s) { s.commit.track_leaf = s.track_leaf.data(); },
     "track_slot is NULL: expected [B]: the two come together"},
    {"no_v", [](Sound& s) { s.commit.problem.v.data = nullptr; }, "v is NULL: expected [B,T,HV,V]"},
    {"flat_pool", [](Sound& s) { s.commit.problem.state.stride[1] = 0; },
     "state.stride[1] = 0: the elements of [slots,HV,V,K] overlap in memory and it is written; expected at least 1; "
     "give it memory of its own, not an expanded view"},
    {"dst_slot", [](Sound& s) { s.dst[1] = 9, s.commit.dst_slot = s.dst.data(); },
     "dst_slot[b=1] = 9: expected less than slots = 6; indices at or below padding_slot = -1 mark a padding row"},
    {"track_slot",
     [](Sound& s) { s.track[0] = 8, s.commit.track_leaf = s.track_leaf.data(), s.commit.track_slot = s.track.data(); },
     "track_slot[b=0] = 8: expected less than slots = 6; indices at or below padding_slot = -1 mark a padding row"},
    {"track_is_dst",
     [](Sound& s) { s.track[1] = 0, s.commit.track_leaf = s.track_leaf.data(), s.commit.track_slot = s.track.data(); },
     "track_slot[b=1] = 0: expected another slot than the row's destination 0, two states cannot go to one slot; give "
     "it a slot of its "
     "own or a padding index"},
    {"shared_dst", [](Sound& s) { s.dst[1] = 1, s.commit.dst_slot = s.dst.data(); },
     "dst_slot[b=1] = 1: sequence 0 uses the same slot (its dst_slot) and one of them writes it; expected each written "
     "slot to belong to "
     "one sequence; give one of them another"},
    {"dst_is_anothers_source", [](Sound& s) { s.dst[0] = 0, s.commit.dst_slot = s.dst.data(); },
     "slot_index[b=1] = 0: sequence 0 uses the same slot (its dst_slot) and one of them writes it; expected each "
     "written slot to belong to one sequence; give one of them another"},
    {"in_place_twice", [](Sound& s) { s.slot[1] = 2; },
     "slot_index[b=1] = 2: sequence 0 uses the same slot (its slot_index) and one of them writes it; expected each "
     "written slot to belong to one sequence; give one of them another"},
};

class WrongCommitCall : public testing::TestWithParam<WrongCommit> {};
TEST_P(WrongCommitCall, IsRefused) {
  Sound sound;
  GetParam().spoil(sound);
  const Error error = check(sound.commit);
  EXPECT_EQ(error.status, CANOPY_INVALID);
  EXPECT_EQ(error.message, GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Check, WrongCommitCall, testing::ValuesIn(kWrongCommit),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Check, SlotsOfSkippedRowsAndPaddingAreFree) {
  Sound sound;
  sound.slot[1] = 2, sound.leaf[1] = -1;  // in place twice, but the second row is skipped
  EXPECT_EQ(check(sound.commit).message, "");
  sound.leaf[1] = 6;  // past the count
  EXPECT_EQ(check(sound.commit).message, "");
  sound.leaf[1] = 3, sound.dst = {-1, -1}, sound.commit.dst_slot = sound.dst.data();  // both read, none writes
  EXPECT_EQ(check(sound.commit).message, "");
}

TEST(Slots, PaddingAndWidth) {
  Problem p = verify_params().problem;
  const std::int32_t narrow[] = {3, -1, 0};
  const std::int64_t wide[] = {5, (std::int64_t{1} << 40), -7};
  EXPECT_EQ(slot_of(p, nullptr, 2), 2);
  EXPECT_EQ(slot_of(p, narrow, 0), 3);
  EXPECT_EQ(slot_of(p, narrow, 1), -1);
  EXPECT_EQ(slot_of(p, narrow, 2), 0);
  p.padding_slot = 0;  // vLLM: the null block
  EXPECT_EQ(slot_of(p, narrow, 2), -1);
  EXPECT_EQ(slot_of(p, nullptr, 0), 0);
  p.slot_index_dtype = CANOPY_I64;
  EXPECT_EQ(slot_of(p, wide, 1), std::int64_t{1} << 40);
  EXPECT_EQ(slot_of(p, wide, 2), -1);
}

TEST(Rows, FlagsOfACommit) {
  Sound sound;
  sound.commit.dst_slot = sound.dst.data(), sound.commit.track_leaf = sound.track_leaf.data();
  sound.commit.track_slot = sound.track.data();
  EXPECT_EQ(row_flags(sound.commit, 0), 0);
  sound.dst[0] = 6;
  EXPECT_EQ(row_flags(sound.commit, 0), CANOPY_ROW_BAD_SLOT);
  sound.leaf[0] = -1;  // skipped: its destination is not looked at
  EXPECT_EQ(row_flags(sound.commit, 0), 0);
  sound.track[1] = sound.dst[1];
  EXPECT_EQ(row_flags(sound.commit, 1), CANOPY_ROW_BAD_SLOT);
  sound.track[1] = -1;
  EXPECT_EQ(row_flags(sound.commit, 1), 0);
  sound.slot[1] = -1, sound.parents()[6 + 3] = 4;  // padding: nothing of the row is read
  EXPECT_EQ(row_flags(sound.commit, 1), 0);
}

TEST(Rows, ParentsFromEitherForm) {
  Sound sound;
  std::int32_t out[CANOPY_MAX_NODES];
  sound.parents()[0] = 77;  // what stands at node 0 is not read
  ASSERT_TRUE(row_parents(sound.verify.problem, 0, out));
  EXPECT_EQ(out[0], -1);
  Problem links = sound.verify.problem;
  links.trees.parents = nullptr;
  links.trees.next_token = sound.next_token.data(), links.trees.next_sibling = sound.next_sibling.data();
  ASSERT_TRUE(row_parents(links, 1, out));
  EXPECT_EQ(std::vector<std::int32_t>(out, out + 6), (std::vector<std::int32_t>{-1, 0, 1, 2, 0, 4}));
  int bad = -1;
  sound.parents()[4] = 5;
  EXPECT_FALSE(row_parents(sound.verify.problem, 0, out, &bad));
  EXPECT_EQ(bad, 4);
  sound.count = {4, 0};  // the bad node is past the count; no live node at all is well formed
  Problem ragged = sound.verify.problem;
  ragged.trees.count = sound.count.data();
  EXPECT_TRUE(row_parents(ragged, 0, out));
  EXPECT_EQ(row_flags(ragged, 1), 0);
}

}  // namespace
}  // namespace canopy
