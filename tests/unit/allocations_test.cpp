// A call with a workspace of the caller's allocates nothing when it succeeds: an engine makes one a layer. The
// program's operator new counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "canopy/canopy.h"

namespace {

std::atomic<long> news = 0;
void* counted(std::size_t bytes, std::size_t alignment) {
  ++news;
  void* const memory = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (!memory) std::abort();
  return memory;
}
// Not inlined: gcc, which may inline one half of a pair and not the other, would warn of free for what came from new.
[[gnu::noinline]] void release(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t to) { return counted(bytes, static_cast<std::size_t>(to)); }
void* operator new[](std::size_t bytes, std::align_val_t to) { return counted(bytes, static_cast<std::size_t>(to)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace canopy {
namespace {

// Two sequences, one head of 16 x 16, a node each.
constexpr int kBatch = 2, kDim = 16;
canopy_tensor tensor(std::vector<float>& memory, std::int64_t a, std::int64_t b, std::int64_t c) {
  return {memory.data(), CANOPY_F32, 0, {0, a, b, c, 1}};
}

struct Calls {
  std::int32_t parents[kBatch] = {-1, -1}, leaf[kBatch] = {0, 0};
  std::vector<float> q, k, v, g, beta, state, o, u, l;
  alignas(64) unsigned char plan[1 << 16], memory[1 << 18];
  canopy_verify_params verify;
  canopy_commit_params commit;
  canopy_conv_verify_params conv;
  canopy_conv_commit_params conv_commit;
  canopy_error error;

  Calls() : q(kBatch * kDim, 0.1f), g(kBatch, -0.1f), beta(kBatch, 0.5f), state(kBatch * kDim * kDim, 0.5f) {
    k = v = o = u = q, l = g;
    canopy_verify_params_init(&verify);
    canopy_commit_params_init(&commit);
    canopy_conv_verify_params_init(&conv);
    canopy_conv_commit_params_init(&conv_commit);
    canopy_problem& p = verify.problem;
    p.batch = kBatch, p.nodes = p.heads_k = p.heads_v = 1, p.dim_k = p.dim_v = kDim;
    p.trees.parents = parents, p.trees.row_stride = 1;
    for (const auto& [to, from] : {std::pair{&p.q, &q}, {&p.k, &k}, {&p.v, &v}}) *to = tensor(*from, kDim, kDim, kDim);
    p.g = {g.data(), CANOPY_F32, 0, {kBatch, 1, 1, 1, 1}}, p.beta = {beta.data(), CANOPY_F32, 0, {kBatch, 1, 1, 1, 1}};
    p.state = tensor(state, kDim * kDim, kDim * kDim, kDim), p.slots = kBatch;
    verify.o = tensor(o, kDim, kDim, kDim);
    verify.stash_u = tensor(u, kDim, kDim, kDim), verify.stash_l = {l.data(), CANOPY_F32, 0, {kBatch, 1, 1, 1, 1}};
    commit.problem = p, commit.leaf = leaf, commit.stash_u = verify.stash_u, commit.stash_l = verify.stash_l;

    canopy_conv_problem& c = conv.problem;
    c.batch = kBatch, c.nodes = 1, c.channels = kDim, c.width = 4, c.trees = p.trees, c.slots = kBatch;
    c.x = {q.data(), CANOPY_F32, 0, {0, kDim, kDim, 1, 0}};
    c.state = {state.data(), CANOPY_F32, 0, {0, kDim * 3, 3, 1, 0}};
    conv.weight = {v.data(), CANOPY_F32, 0, {0, 1, 1, 0, 0}};
    conv.o = {o.data(), CANOPY_F32, 0, {0, kDim, kDim, 1, 0}};
    conv_commit.problem = c, conv_commit.leaf = leaf;
  }
};

// Allocations of a second call, and its least time over rounds.
template <class Call>
void expect_none(const char* name, const char* implementation, canopy_error& error, Call call) {
  ASSERT_EQ(call(), CANOPY_OK) << name << ": " << error.message;  // tables and registries are made once
  const long before = news;
  call();
  EXPECT_EQ(news - before, 0) << name << " by " << (implementation ? implementation : "the dispatcher");
  double least = 1e9;
  for (int round = 0; round < 50; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) call();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 50);
  }
  std::printf("%-20s %-22s %6.0f ns a call\n", name, implementation ? implementation : "(dispatcher)", least * 1e9);
}

TEST(Allocations, TheCounterCounts) {
  const long before = news;
  std::vector<int> some(100);
  EXPECT_EQ(news - before, 1) << some.size();
}

TEST(Allocations, ACallWithAWorkspaceMakesNone) {
  Calls c;
  for (const bool planned : {false, true}) {
    if (planned) {
      ASSERT_LE(canopy_plan_bytes(&c.verify.problem), sizeof c.plan);
      expect_none("plan", nullptr, c.error,
                  [&] { return canopy_plan(&c.verify.problem, c.plan, sizeof c.plan, nullptr, &c.error); });
      for (canopy_trees* trees : {&c.verify.problem.trees, &c.conv.problem.trees}) trees->plan = c.plan;
    }
    for (const char* name : {static_cast<const char*>(nullptr), "cpu_closed_form", "cpu_serial_resident"}) {
      std::size_t bytes = 0;
      expect_none("verify_workspace", name, c.error,
                  [&] { return canopy_verify_workspace(&c.verify, name, &bytes, &c.error); });
      ASSERT_LE(bytes, sizeof c.memory);
      expect_none("verify", name, c.error,
                  [&] { return canopy_verify(&c.verify, name, c.memory, sizeof c.memory, nullptr, &c.error); });
    }
    for (const char* name : {static_cast<const char*>(nullptr), "cpu_conv"})
      expect_none("conv_verify", name, c.error,
                  [&] { return canopy_conv_verify(&c.conv, name, nullptr, 0, nullptr, &c.error); });
  }
  const char* commits[] = {"cpu_commit_resolve", "cpu_commit_stash", "cpu_commit_replay"};
  for (const char* name : {static_cast<const char*>(nullptr), commits[0], commits[1], commits[2]})
    for (int method = CANOPY_COMMIT_RESOLVE; method <= CANOPY_COMMIT_REPLAY; ++method) {
      if (name && name != commits[method]) continue;
      c.commit.method = method;
      std::size_t bytes = 0;
      ASSERT_EQ(canopy_commit_workspace(&c.commit, name, &bytes, &c.error), CANOPY_OK) << c.error.message;
      ASSERT_LE(bytes, sizeof c.memory);
      expect_none("commit", name, c.error,
                  [&] { return canopy_commit(&c.commit, name, c.memory, sizeof c.memory, nullptr, &c.error); });
    }
  for (const char* name : {static_cast<const char*>(nullptr), "cpu_conv_commit"})
    expect_none("conv_commit", name, c.error,
                [&] { return canopy_conv_commit(&c.conv_commit, name, nullptr, 0, nullptr, &c.error); });
}

}  // namespace
}  // namespace canopy
