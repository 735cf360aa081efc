// What the CUDA solve strategies refuse, and what the dispatcher leaves to callers who name them. Nothing is launched,
// so no GPU is needed; without CUDA in the build the entries are not there.
#include <gtest/gtest.h>

#include <string>

#include "dispatch/dispatch.hpp"
#include "host/host_problem.hpp"

namespace canopy {
namespace {

struct Call {
  host::HostProblem owner;
  host::HostTensor o, u, l;
  VerifyParams params;
  explicit Call(int nodes, canopy_dtype input = CANOPY_BF16, int dim = 128, const char* family = "chain") {
    host::ProblemSpec spec;
    spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = spec.dim_v = dim, spec.input = input;
    spec.family.name = family, spec.family.nodes = nodes;
    owner = *host::make_problem(spec);
    params = *owner.verify();
    params.problem.device = CANOPY_CUDA;
    o = host::HostTensor::make(CANOPY_F32, {1, nodes, 2, dim});
    u = o, l = host::HostTensor::make(CANOPY_F32, {1, nodes, 2});
    params.o = o.view();
  }
  Call& with(canopy_precision precision, bool stash = false) {
    params.precision = precision;
    params.stash_u = stash ? u.view() : Tensor{}, params.stash_l = stash ? l.view() : Tensor{};
    return *this;
  }
};

const VerifyImplementation* entry(const char* name) { return find_verify(name); }
#define SKIP_WITHOUT_CUDA() \
  if (!entry("cuda_fused")) GTEST_SKIP() << "no CUDA in this build"

constexpr const char* kTensorCore[] = {"cuda_split", "cuda_neumann", "cuda_squaring", "cuda_dense"};

TEST(Strategies, EachIsAnEntryOfItsOwn) {
  SKIP_WITHOUT_CUDA();
  for (const char* name : kTensorCore) {
    ASSERT_NE(entry(name), nullptr) << name;
    EXPECT_EQ(entry(name)->device, CANOPY_CUDA);
    for (const int nodes : {1, 2, 16, 17, 64, 65, 255, 256}) {
      Call call(nodes);
      EXPECT_EQ(entry(name)->refuses(call.params), "") << name;
      EXPECT_GT(entry(name)->workspace(call.params), 0u) << name;
      EXPECT_EQ(entry(name)->workspace(call.params) % 64, 0u) << name;
    }
  }
}

TEST(Strategies, RefusalsSayWhatWasExpectedWhatCameAndWhatToDo) {
  SKIP_WITHOUT_CUDA();
  const auto why = [](const char* name, const Call& call) { return entry(name)->refuses(call.params); };
  for (const char* name : kTensorCore) {
    EXPECT_EQ(why(name, Call(8, CANOPY_F32)).rfind("q.dtype = 0: expected bf16, which this ", 0), 0u) << name;
    EXPECT_EQ(why(name, Call(8, CANOPY_F16)).rfind("q.dtype = 2: expected bf16, which this ", 0), 0u) << name;
    EXPECT_EQ(why(name, Call(8, CANOPY_BF16, 32)), "dim_k, dim_v = 32, 32: expected 64 or 128 each; pad with zeros")
        << name;
    for (const canopy_precision precision : {CANOPY_PRECISION_FP32, CANOPY_PRECISION_FAST})
      EXPECT_EQ(why(name, Call(8).with(precision)).rfind("precision = " + std::to_string(precision) + ": expected ", 0),
                0u)
          << name;
    for (const canopy_precision precision : {CANOPY_PRECISION_DEFAULT, CANOPY_PRECISION_PRECISE})
      for (const bool stash : {false, true}) EXPECT_EQ(why(name, Call(8).with(precision, stash)), "") << name;
    Call shifted(8);
    shifted.params.problem.k.stride[2] += 3;
    EXPECT_EQ(why(name, shifted).rfind("k: expected rows on 16-byte boundaries", 0), 0u) << name;
    Call on_the_host(8);
    on_the_host.params.problem.device = CANOPY_CPU;
    EXPECT_EQ(why(name, on_the_host).rfind("problem.device = 0 (cpu)", 0), 0u) << name;
  }
  for (const char* name : {"cuda_split", "cuda_dense"}) {
    EXPECT_EQ(why(name, Call(8).with(CANOPY_PRECISION_HALF)), "") << name;
    EXPECT_EQ(why(name, Call(8).with(CANOPY_PRECISION_HALF, true)).rfind("precision = 3 with stash_u", 0), 0u) << name;
  }
  for (const char* name : {"cuda_neumann", "cuda_squaring"})
    EXPECT_NE(why(name, Call(8).with(CANOPY_PRECISION_HALF)).find("the terms of the series cancel"), std::string::npos)
        << name;
}

// The depth of a tree on the device is not known to the host, only that T nodes are at most T - 1 deep.
TEST(Strategies, TheSeriesAreLeftToCallersWhoNameThemWhereTheyMayFail) {
  SKIP_WITHOUT_CUDA();
  for (const char* name : {"cuda_neumann", "cuda_squaring"}) {
    ASSERT_NE(entry(name)->unless_named, nullptr);
    for (const int nodes : {1, 2, 11}) EXPECT_EQ(entry(name)->unless_named(Call(nodes).params), "") << nodes;
    for (const int nodes : {12, 64, 256}) {
      const Call call(nodes);
      EXPECT_EQ(entry(name)->refuses(call.params), "") << "asked for by name it runs";
      EXPECT_EQ(entry(name)->unless_named(call.params),
                "nodes = " + std::to_string(nodes) + ": a tree of as many may be " + std::to_string(nodes - 1) +
                    " deep, and the series is to be trusted to depth 10 (docs/kernels.md); ask for it by name, or use "
                    "cuda_fused");
      // A hint is not a promise: trees deeper than it says are to be right too (canopy.h).
      Call hinted(nodes);
      hinted.params.max_depth = 8;
      EXPECT_EQ(entry(name)->unless_named(hinted.params),
                "nodes = " + std::to_string(nodes) + ": a tree of as many may be " + std::to_string(nodes - 1) +
                    " deep, whatever max_depth says, which nothing checks, and the series is to be trusted to depth 10 "
                    "(docs/kernels.md); ask for it by name, or use cuda_fused");
    }
    Call doubled(8);  // betas up to 2
    doubled.params.problem.beta_doubled = 1;
    EXPECT_EQ(entry(name)->unless_named(doubled.params), "");
    doubled.params.problem.nodes = 9, doubled.params.max_depth = 0;
    EXPECT_EQ(
        entry(name)->unless_named(doubled.params),
        "nodes = 9: a tree of as many may be 8 deep, and the series is to be trusted to depth 7 with beta_doubled "
        "(docs/kernels.md); ask for it by name, or use cuda_fused");
  }
  for (const char* name : {"cuda_split", "cuda_dense", "cuda_fused", "cuda_serial_resident"})
    EXPECT_EQ(entry(name)->unless_named, nullptr) << name;
}

TEST(Strategies, TheHybridTakesWhatTheSerialKernelsTake) {
  SKIP_WITHOUT_CUDA();
  const VerifyImplementation &hybrid = *entry("cuda_hybrid"), &serial = *entry("cuda_serial_resident");
  for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
    for (const int dim : {32, 64, 128})
      for (const canopy_precision precision : {CANOPY_PRECISION_DEFAULT, CANOPY_PRECISION_FP32, CANOPY_PRECISION_HALF})
        for (const bool stash : {false, true}) {
          Call call(40, input, dim);
          call.with(precision, stash);
          EXPECT_EQ(hybrid.refuses(call.params), serial.refuses(call.params));
        }
  EXPECT_NE(hybrid.refuses(Call(40).with(CANOPY_PRECISION_HALF).params), "");
  // A state for each node that can branch: a tree of T nodes has at most (T - 1) / 2 with more than one child.
  const std::size_t state = 2 * 128 * 128 * 4;
  EXPECT_EQ(hybrid.workspace(Call(5).params) - hybrid.workspace(Call(2).params), 2 * state);
  EXPECT_EQ(hybrid.workspace(Call(256).params) - hybrid.workspace(Call(1).params), 127 * state);
}

// A stash in default precision asks the rows `stash`, or in a table without them those of precise (fp32 for f32 inputs,
// always). Whom they lead to takes the call as it is.
TEST(Dispatch, RowsThatAStashAsksForLeadToOneThatTakesIt) {
  SKIP_WITHOUT_CUDA();
  const auto table = dispatch::verify_table(CANOPY_CUDA);
  ASSERT_TRUE(table) << table.error().message;
  dispatch::Row none;
  none.implementation = "none";
  const auto first = [&](const Call& call, const VerifyParams& asking, bool with_rows_for_it = true) {
    for (const dispatch::Row& row : table->rows)
      if (dispatch::holds(row, dispatch::asked(asking)) && entry(row.implementation)->refuses(call.params).empty() &&
          (with_rows_for_it || !row.stash))
        return row;
    return none;
  };
  bool has_rows = false;
  for (const dispatch::Row& row : table->rows) has_rows |= row.stash;
  for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
    for (const int nodes : {1, 16, 128, 256})
      for (const int depth : {0, 8, 255}) {
        Call call(nodes, input);
        call.with(CANOPY_PRECISION_DEFAULT, true);
        call.params.max_depth = depth;
        VerifyParams named = call.params;
        named.precision = input == CANOPY_F32 ? CANOPY_PRECISION_FP32 : CANOPY_PRECISION_PRECISE;
        EXPECT_EQ(first(call, call.params, false).implementation, first(call, named).implementation) << nodes;
        const dispatch::Row chosen = first(call, call.params);
        ASSERT_NE(entry(chosen.implementation), nullptr) << chosen.implementation;
        EXPECT_EQ(chosen.stash, has_rows && input != CANOPY_F32) << nodes;
        if (input == CANOPY_F32) {  // one whose default is fp32 whatever is stored
          EXPECT_LE(entry(chosen.implementation)->relative_tolerance, 1e-5) << chosen.implementation;
        }
      }
}

TEST(Dispatch, WhatIsLeftToThoseWhoNameItIsNotPicked) {
  VerifyImplementation shy{};
  shy.missing = [] { return std::string(); };
  shy.refuses = [](const VerifyParams& p) { return std::string(p.problem.nodes > 20 ? "too many" : ""); };
  shy.unless_named = [](const VerifyParams& p) { return std::string(p.problem.nodes > 10 ? "risky" : ""); };
  VerifyParams params = verify_params();
  params.problem.nodes = 10;
  EXPECT_EQ(dispatch::objection_unnamed(shy, params), "");
  params.problem.nodes = 11;
  EXPECT_EQ(dispatch::objection(shy, params), "");
  EXPECT_EQ(dispatch::objection_unnamed(shy, params), "risky");
  params.problem.nodes = 21;
  EXPECT_EQ(dispatch::objection_unnamed(shy, params), "too many");
}

}  // namespace
}  // namespace canopy
