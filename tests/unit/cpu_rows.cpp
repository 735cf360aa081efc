// Bad rows: flagged where the caller reads a status, refused with place and values where he does not. Either way the
// other rows are what they would be alone.
#include <functional>

#include "parity/layers.hpp"

namespace canopy::parity {
namespace {

constexpr int kBatch = 4, kNodes = 12, kBad = 2;  // row 2 is spoilt

ProblemSpec base() {
  ProblemSpec spec;
  spec.family.name = "random", spec.family.nodes = kNodes, spec.batch = kBatch, spec.slots = true;
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 24, spec.dim_v = 16, spec.seed = 8;
  return spec;
}

struct Spoiled {
  std::string what;
  std::int32_t flags;
  std::vector<std::string> message;  // what a refusal must name
  std::function<void(Case&)> spoil;
};

// A case with tensors for counts and slots 0..3, in which row 1 is no padding.
std::unique_ptr<Case> sound() {
  auto c = std::make_unique<Case>(base());
  c->problem.tensors["count"] = HostTensor::make(CANOPY_I32, {kBatch});
  for (int b = 0; b < kBatch; ++b) c->tensor("count").i32()[b] = kNodes - b, c->tensor("slots").i32()[b] = 3 - b;
  c->refresh();
  return c;
}

std::vector<Spoiled> spoils() {
  std::vector<Spoiled> list;
  const auto parent = [&](int node, std::int32_t value) {
    list.push_back({"parent of " + std::to_string(node) + " is " + std::to_string(value),
                    CANOPY_ROW_BAD_TREE,
                    {"parents[b=2][" + std::to_string(node) + "]", "= " + std::to_string(value)},
                    [=](Case& c) { c.tensor("parents").i32()[kBad * kNodes + node] = value; }});
  };
  for (const std::int32_t value : {5, 6, 11, 12, 1000000, -1, -2, INT32_MAX, INT32_MIN}) parent(5, value);
  parent(1, 1), parent(9, 256);
  for (const std::int32_t value : {kNodes + 1, 257, -1, INT32_MAX, INT32_MIN}) {
    list.push_back({"count " + std::to_string(value),
                    CANOPY_ROW_BAD_COUNT,
                    {"count[b=2]", "= " + std::to_string(value)},
                    [=](Case& c) { c.tensor("count").i32()[kBad] = value; }});
  }
  for (const std::int32_t value : {8, 1000, INT32_MAX}) {
    list.push_back({"slot " + std::to_string(value),
                    CANOPY_ROW_BAD_SLOT,
                    {"slot_index[b=2]", "= " + std::to_string(value), "8"},
                    [=](Case& c) { c.tensor("slots").i32()[kBad] = value; }});
  }
  return list;
}

void expect_others_as_alone(const Outputs& clean, const Outputs& out, const std::string& where) {
  for (int b = 0; b < kBatch; ++b) {
    for (int node = 0; b != kBad && node < kNodes; ++node)
      EXPECT_TRUE(same_row(clean, out, b, node)) << where << ": row " << b << ", node " << node;
  }
}

// NaN was written to all of a live row, in every output.
void expect_poisoned(const Outputs& out, int live, const std::string& where) {
  for (const HostTensor* t : {&out.o, &out.u, &out.l}) {
    const std::int64_t width = t->elements() / (kBatch * kNodes), first = kBad * kNodes * width;
    for (std::int64_t i = first; i < first + live * width; ++i) ASSERT_TRUE(std::isnan(t->get(i))) << where;
  }
  for (int node = 0; node < kNodes; ++node)
    EXPECT_EQ(untouched_row(out, kBad, node), node >= live) << where << ", node " << node;
}

TEST(CpuRows, VerifyFlagsThem) {
  const auto clean = sound();
  for (const Spoiled& spoiled : spoils()) {
    const auto dirty = sound();
    spoiled.spoil(*dirty);
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const std::string where = contender.name() + ", " + spoiled.what;
      const Outputs expected = run(contender, clean->params), out = run(contender, dirty->params);
      ASSERT_TRUE(out.error.ok()) << where << ": " << out.error.message;
      for (int b = 0; b < kBatch; ++b) EXPECT_EQ(out.status[b], b == kBad ? spoiled.flags : 0) << where;
      expect_others_as_alone(expected, out, where);
      expect_poisoned(out, spoiled.flags == CANOPY_ROW_BAD_TREE ? kNodes - kBad : 0, where);
    }
  }
}

TEST(CpuRows, VerifyRefusesThemWithoutAStatus) {
  for (const Spoiled& spoiled : spoils()) {
    const auto dirty = sound();
    spoiled.spoil(*dirty);
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      VerifyParams params = dirty->params;
      HostTensor o = poisoned(CANOPY_F32, {kBatch, kNodes, 2, 16});
      params.o = o.view();
      Fenced workspace(1 << 22, 0);
      const Error error = verify(params, contender.implementation->name, workspace.data(), 1 << 22);
      EXPECT_EQ(error.status, CANOPY_INVALID) << spoiled.what;
      for (const std::string& part : spoiled.message)
        EXPECT_NE(error.message.find(part), std::string::npos) << error.message << " does not name " << part;
      EXPECT_TRUE(untouched(o.bytes)) << contender.name() << ", " << spoiled.what;
    }
  }
}

TEST(CpuRows, CommitSkipsThem) {
  HostTensor u = HostTensor::make(CANOPY_F32, {kBatch, kNodes, 2, 16}),
             l = HostTensor::make(CANOPY_F32, {kBatch, kNodes, 2});
  const std::int32_t leaf[] = {3, 8, 6, 1};
  const auto clean = sound();
  const HostTensor before = clean->tensor("state");
  const std::size_t slot_bytes = before.bytes.size() / std::size_t(clean->params.problem.slots);
  for (const Spoiled& spoiled : spoils()) {
    const auto dirty = sound();
    spoiled.spoil(*dirty);
    for (const CommitContender& contender : contenders<CommitParams>()) {
      const std::string where = contender.name() + ", " + spoiled.what;
      CommitParams params = commit_params();
      params.problem = clean->params.problem, params.leaf = leaf, params.stash_u = u.view(), params.stash_l = l.view();
      set_method(contender, params);
      HostTensor expected = run_commit(contender, params, before);
      std::memcpy(&expected.bytes[1 * slot_bytes], &before.bytes[1 * slot_bytes], slot_bytes);  // row 2 has slot 1

      params.problem = dirty->params.problem;
      std::vector<std::int32_t> status;
      const HostTensor after = run_commit(contender, params, before, &status);
      for (int b = 0; b < kBatch; ++b) EXPECT_EQ(status[b], b == kBad ? spoiled.flags : 0) << where;
      EXPECT_TRUE(same_bits(expected, after)) << where;

      HostTensor pool = before;
      params.problem.state.data = pool.bytes.data();
      Fenced workspace(1 << 22, 0);
      const Error error = commit(params, contender.implementation->name, workspace.data(), 1 << 22);
      EXPECT_EQ(error.status, CANOPY_INVALID) << where;
      for (const std::string& part : spoiled.message)
        EXPECT_NE(error.message.find(part), std::string::npos) << error.message << " does not name " << part;
      EXPECT_TRUE(same_bits(pool, before)) << where;
    }
  }
}

TEST(CpuRows, CommitSkipsBadDestinations) {
  HostTensor u = HostTensor::make(CANOPY_F32, {kBatch, kNodes, 2, 16}),
             l = HostTensor::make(CANOPY_F32, {kBatch, kNodes, 2});
  const std::int32_t leaf[] = {3, 8, 6, 1}, track_leaf[] = {0, 0, 0, 0};
  struct Destinations {
    std::int32_t dst, track;
    const char* place;
  };
  const auto c = sound();  // 8 slots; rows in slots 3, 2, 1, 0
  const HostTensor before = c->tensor("state");
  for (const Destinations& bad : {Destinations{8, -1, "dst_slot[b=2] = 8"},
                                  {6, 8, "track_slot[b=2] = 8"},
                                  {6, 6, "track_slot[b=2] = 6"},
                                  {6, INT32_MAX, "track_slot[b=2] = 2147483647"}}) {
    std::int32_t dst[] = {3, 2, bad.dst, 0}, track[] = {4, -1, bad.track, 5};
    for (const CommitContender& contender : contenders<CommitParams>()) {
      CommitParams params = commit_params();
      params.problem = c->params.problem, params.leaf = leaf, params.stash_u = u.view(), params.stash_l = l.view();
      params.dst_slot = dst, params.track_leaf = track_leaf, params.track_slot = track;
      set_method(contender, params);
      dst[kBad] = track[kBad] = -1;
      const HostTensor expected = run_commit(contender, params, before);
      dst[kBad] = bad.dst, track[kBad] = bad.track;
      std::vector<std::int32_t> status;
      EXPECT_TRUE(same_bits(expected, run_commit(contender, params, before, &status)))
          << contender.name() << ", " << bad.place;
      for (int b = 0; b < kBatch; ++b) EXPECT_EQ(status[b], b == kBad ? CANOPY_ROW_BAD_SLOT : 0) << bad.place;

      HostTensor pool = before;
      params.problem.state.data = pool.bytes.data();
      Fenced workspace(1 << 22, 0);
      const Error error = commit(params, contender.implementation->name, workspace.data(), 1 << 22);
      EXPECT_EQ(error.status, CANOPY_INVALID);
      EXPECT_NE(error.message.find(bad.place), std::string::npos) << error.message << " does not name " << bad.place;
      EXPECT_TRUE(same_bits(pool, before)) << contender.name();
    }
  }
}

// First child and next sibling of nodes 0..11; the sound tree is 0 -> 1..4, 1 -> 5..11.
TEST(CpuRows, LinksThatAreNoTree) {
  const std::vector<std::int32_t> child{1, 5, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
      sibling{-1, 2, 3, 4, -1, 6, 7, 8, 9, 10, 11, -1};
  struct Link {
    bool to_child;
    int node;
    std::int32_t value;
  };
  const Link spoils[] = {{true, 5, 1},         {true, 5, 5},           {true, 1, 1},  {true, 11, 0},  {false, 4, 1},
                         {false, 3, 3},        {false, 4, 0},          {true, 2, 5},  {true, 0, -1},  {true, 1, -1},
                         {false, 1, -1},       {true, 4, 12},          {true, 4, -2}, {false, 11, 5}, {false, 7, 300},
                         {true, 0, INT32_MAX}, {false, 11, INT32_MIN}, {false, 0, 1}};
  const auto c = sound();
  std::vector<std::int32_t> children, siblings;
  for (int b = 0; b < kBatch; ++b) {
    c->tensor("count").i32()[b] = kNodes;
    children.insert(children.end(), child.begin(), child.end()),
        siblings.insert(siblings.end(), sibling.begin(), sibling.end());
  }
  VerifyParams params = c->params;
  params.problem.trees.parents = nullptr;
  params.problem.trees.next_token = children.data(), params.problem.trees.next_sibling = siblings.data();
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const Outputs clean = run(contender, params);
    ASSERT_EQ(clean.status, std::vector<std::int32_t>(kBatch, 0));
    for (const Link& link : spoils) {
      std::int32_t& spoilt = (link.to_child ? children : siblings)[kBad * kNodes + link.node];
      const std::int32_t old = spoilt;
      spoilt = link.value;
      const std::string where = contender.name() + (link.to_child ? ", child of " : ", sibling of ") +
                                std::to_string(link.node) + " is " + std::to_string(link.value);
      const Outputs out = run(contender, params), refused = run(contender, params, {.status = false});
      for (int b = 0; b < kBatch; ++b) EXPECT_EQ(out.status[b], b == kBad ? CANOPY_ROW_BAD_TREE : 0) << where;
      expect_others_as_alone(clean, out, where);
      expect_poisoned(out, kNodes, where);
      EXPECT_EQ(refused.error.status, CANOPY_INVALID) << where;
      EXPECT_NE(refused.error.message.find("[b=2]"), std::string::npos) << refused.error.message;
      EXPECT_TRUE(untouched(refused.o.bytes)) << where;
      spoilt = old;
    }
  }
}

}  // namespace
}  // namespace canopy::parity
