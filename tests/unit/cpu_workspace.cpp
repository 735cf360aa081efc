// The workspace: exactly the bytes asked for suffice, what stood in it before does not matter, less is refused.
#include "parity/layers.hpp"

namespace canopy::parity {
namespace {

// Without fences: AddressSanitizer sees a read past the end too.
struct Exact {
  explicit Exact(std::size_t bytes) : data(::operator new (bytes, std::align_val_t{64})) {
    std::memset(data, 0xff, bytes);
  }
  ~Exact() { ::operator delete (data, std::align_val_t{64}); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;
  void* data;
};

std::vector<ProblemSpec> specs() {
  std::vector<ProblemSpec> list;
  int number = 0;
  for (const int nodes : {1, 2, 15, 16, 17, 33, 100, 256}) {
    for (const auto& [dim_k, dim_v] : {std::pair{8, 8}, {8, 256}, {256, 8}, {72, 24}, {24, 136}}) {
      for (const char* family : {"chain", "random", "spine"}) {
        ProblemSpec spec;
        spec.family.name = family, spec.family.nodes = nodes, spec.batch = 2;
        spec.family.depth =
            std::max(nodes / 2, 1);  // a spine with one leaf beside every node: most states kept at once
        spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = dim_k, spec.dim_v = dim_v, spec.seed = std::uint64_t(nodes);
        if (!skip(++number, 11)) list.push_back(spec);
      }
    }
  }
  return list;
}

TEST(CpuWorkspace, WhatStoodInItChangesNothing) {
  for (const ProblemSpec& spec : specs()) {
    Layers set(spec, 1);
    for (const int threads : {1, 3}) {
      set_threads(threads);
      for (const VerifyContender& contender : contenders<VerifyParams>()) {
        const Outputs zeros = run(contender, set.layer(0).params, {.workspace_fill = 0});
        for (const unsigned char fill : {0xff, 0x7f})  // NaN; large numbers
          EXPECT_TRUE(same_bits(zeros, run(contender, set.layer(0).params, {.workspace_fill = fill})))
              << contender.name() << " on " << set.name();
      }
      const std::int32_t leaf[] = {spec.family.nodes - 1, spec.family.nodes / 2};
      for (const CommitContender& contender : contenders<CommitParams>()) {
        CommitParams params = set.params();
        set_method(contender, params);
        params.leaf = leaf;
        const HostTensor zeros = run_commit(contender, params, set.pool(), nullptr, 0);
        for (const unsigned char fill : {0xff, 0x7f})
          EXPECT_TRUE(same_bits(zeros, run_commit(contender, params, set.pool(), nullptr, fill)))
              << contender.name() << " on " << set.name();
      }
    }
    set_threads(1);
  }
}

TEST(CpuWorkspace, ExactlyTheBytesAskedFor) {
  for (const ProblemSpec& spec : specs()) {
    Layers set(spec, 1);
    VerifyParams params = set.layer(0).params;
    const std::int64_t B = spec.batch, T = spec.family.nodes, HV = spec.heads_v, V = spec.dim_v;
    HostTensor o = HostTensor::make(CANOPY_F32, {B, T, HV, V});
    params.o = o.view();
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const InUse use(contender.set);
      const auto bytes = verify_workspace(params, contender.implementation->name);
      ASSERT_TRUE(bytes.ok());
      const Exact workspace(*bytes);
      EXPECT_TRUE(verify(params, contender.implementation->name, workspace.data, *bytes).ok());
    }
    const std::int32_t leaf[] = {spec.family.nodes - 1, 0};
    for (const CommitContender& contender : contenders<CommitParams>()) {
      const InUse use(contender.set);
      CommitParams commit_params = set.params();
      set_method(contender, commit_params);
      commit_params.leaf = leaf;
      const auto bytes = commit_workspace(commit_params, contender.implementation->name);
      ASSERT_TRUE(bytes.ok());
      const Exact workspace(*bytes);
      EXPECT_TRUE(commit(commit_params, contender.implementation->name, workspace.data, *bytes).ok());
    }
  }
}

// Too few bytes, none, or at an odd address: refused with the numbers, outputs and pool as they were.
template <class Params, class Call>
void expect_refusals(const Contender<Params>& contender, std::size_t bytes, Call call) {
  if (bytes == 0) return;  // needs none
  Fenced workspace(bytes + 64);
  const Error small = call(workspace.data(), bytes - 1), null = call(nullptr, bytes),
              odd = call(static_cast<char*>(workspace.data()) + 4, bytes);
  for (const Error* error : {&small, &null, &odd}) EXPECT_EQ(error->status, CANOPY_WORKSPACE) << error->message;
  for (const std::string& part :
       {std::to_string(bytes), std::to_string(bytes - 1), std::string(contender.implementation->name)})
    EXPECT_NE(small.message.find(part), std::string::npos) << small.message;
  EXPECT_NE(null.message.find(std::to_string(bytes)), std::string::npos) << null.message;
  EXPECT_NE(odd.message.find("64"), std::string::npos) << odd.message;
}

TEST(CpuWorkspace, TooLittleIsRefused) {
  ProblemSpec spec;
  spec.family.nodes = 20, spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 16, spec.dim_v = 24;
  Layers set(spec, 1);
  VerifyParams params = set.layer(0).params;
  HostTensor o = poisoned(CANOPY_F32, {1, 20, 2, 24});
  params.o = o.view();
  int refusing = 0;
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const InUse use(contender.set);
    const char* name = contender.implementation->name;
    const auto bytes = verify_workspace(params, name);
    ASSERT_TRUE(bytes.ok());
    refusing += *bytes > 0;
    expect_refusals(contender, *bytes,
                    [&](void* memory, std::size_t size) { return verify(params, name, memory, size); });
    EXPECT_TRUE(untouched(o.bytes)) << contender.name();
  }
  const std::vector<std::byte> before = set.pool().bytes;
  const std::int32_t leaf = 7;
  for (const CommitContender& contender : contenders<CommitParams>()) {
    const InUse use(contender.set);
    const char* name = contender.implementation->name;
    CommitParams commit_params = set.params();
    set_method(contender, commit_params);
    commit_params.leaf = &leaf;
    const auto bytes = commit_workspace(commit_params, name);
    ASSERT_TRUE(bytes.ok());
    refusing += *bytes > 0;
    expect_refusals(contender, *bytes,
                    [&](void* memory, std::size_t size) { return commit(commit_params, name, memory, size); });
    EXPECT_EQ(set.pool().bytes, before) << contender.name();
  }
  EXPECT_GT(refusing, 0);
}

// B = 0, rows of no nodes, nothing but padding: legal, and nothing is written.
TEST(CpuWorkspace, EmptyCalls) {
  for (const int kind : {0, 1, 2}) {
    ProblemSpec spec;
    spec.family.nodes = 9, spec.batch = kind == 0 ? 0 : 2, spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 16,
    spec.dim_v = 8;
    Case c(spec);
    if (kind == 1) c.problem.tensors["count"] = HostTensor::make(CANOPY_I32, {2});
    if (kind == 2) {
      c.problem.tensors["slots"] = HostTensor::make(CANOPY_I32, {2});
      c.tensor("slots").i32()[0] = c.tensor("slots").i32()[1] = -1;
    }
    c.refresh();
    const std::vector<std::byte> before = c.tensor("state").bytes;
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs out = run(contender, c.params);
      EXPECT_TRUE(out.error.ok()) << contender.name() << ": " << out.error.message;
      EXPECT_TRUE(untouched(out.o.bytes) && untouched(out.u.bytes) && untouched(out.l.bytes)) << contender.name();
      EXPECT_EQ(out.status, std::vector<std::int32_t>(std::size_t(spec.batch), 0));
    }
    const std::int32_t leaf[] = {0, 3};
    HostTensor u = HostTensor::make(CANOPY_F32, {2, 9, 2, 8}), l = HostTensor::make(CANOPY_F32, {2, 9, 2});
    for (const CommitContender& contender : contenders<CommitParams>()) {
      CommitParams params = commit_params();
      params.problem = c.params.problem, params.leaf = leaf;
      params.stash_u = u.view(), params.stash_l = l.view();
      set_method(contender, params);
      EXPECT_EQ(run_commit(contender, params, c.tensor("state")).bytes, before) << contender.name();
    }
  }
}

}  // namespace
}  // namespace canopy::parity
