// Every registered commit: destinations, tracks, layers, skips and padding, against the oracle's state.
#include "canopy/commit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "host/host_problem.hpp"

namespace canopy {
namespace {

using host::HostTensor;

constexpr int B = 5, T = 13, H = 1, HV = 2, K = 16, V = 8, kSlots = 12, kLayers = 2;

// Two layers of the same trees, each with numbers of its own, stacked as [L, ...].
struct Layers {
  host::HostProblem layer[kLayers];
  std::map<std::string, HostTensor> stacked;
  HostTensor u, l;
  std::vector<std::int32_t> slot{3, 0, -1, 7, 5}, dst{3, 9, 1, -1, 5}, leaf{12, 6, 4, 8, -1},
      track_leaf{5, 12, 2, 3, 1}, track{10, 0, 11, 8, 2};
  canopy_state_layout layout;

  Layers(canopy_state_layout state_layout, canopy_dtype state_dtype) : layout(state_layout) {
    for (int i = 0; i < kLayers; ++i) {
      host::ProblemSpec spec;
      spec.batch = B, spec.heads_k = H, spec.heads_v = HV, spec.dim_k = K, spec.dim_v = V;
      spec.family.name = "random", spec.family.nodes = T;
      spec.input = CANOPY_F32, spec.layout = layout, spec.seed = std::uint64_t(i);
      auto made = host::make_problem(spec);
      EXPECT_TRUE(made);
      layer[i] = *std::move(made);
      const bool vk = layout == CANOPY_STATE_VK;
      HostTensor state = HostTensor::make(state_dtype, {kSlots, HV, vk ? V : K, vk ? K : V}),
                 slots = HostTensor::make(CANOPY_I32, {B});
      for (std::int64_t e = 0; e < state.elements(); ++e) state.set(e, std::sin(float(e + 7 * i)));
      std::copy(slot.begin(), slot.end(), slots.i32());
      layer[i].tensors["state"] = state, layer[i].tensors["slots"] = slots;
      const auto run = host::run_verify(layer[i], *find_verify("reference_serial"), CANOPY_F32, true);
      EXPECT_TRUE(run) << run.error().message;
      layer[i].tensors["u"] = run->u, layer[i].tensors["l"] = run->l;
    }
    for (const auto& [name, tensor] : layer[0].tensors) {
      HostTensor both = tensor;
      both.shape.insert(both.shape.begin(), kLayers);
      const auto& second = layer[1].tensors.at(name).bytes;
      both.bytes.insert(both.bytes.end(), second.begin(), second.end());
      stacked[name] = both;
    }
  }

  CommitParams params(int method) {
    CommitParams out = commit_params();
    out.problem = *layer[0].problem();
    for (auto [view, name] : {std::pair{&out.problem.k, "k"},
                              {&out.problem.v, "v"},
                              {&out.problem.g, "g"},
                              {&out.problem.beta, "beta"},
                              {&out.problem.state, "state"},
                              {&out.stash_u, "u"},
                              {&out.stash_l, "l"}}) {
      *view = stacked.at(name).view(true);
    }
    out.problem.q.data = nullptr;
    out.layers = kLayers, out.method = method, out.leaf = leaf.data(), out.dst_slot = dst.data();
    out.track_leaf = track_leaf.data(), out.track_slot = track.data();
    return out;
  }

  // Oracle state of sequence b after `node` on one layer, [HV,K,V].
  std::vector<double> truth(int of_layer, int b, int node) {
    std::vector<std::int32_t> nodes(B, -1);
    nodes[b] = node;
    std::vector<double> all(std::size_t(B) * HV * K * V);
    canopy_error error;
    const VerifyParams view = *layer[of_layer].verify();
    EXPECT_EQ(canopy_oracle_state(&view, nodes.data(), all.data(), &error), CANOPY_OK) << error.message;
    return {all.begin() + b * HV * K * V, all.begin() + (b + 1) * HV * K * V};
  }

  // What is at [layer][slot] of the pool, [HV,K,V].
  std::vector<double> held(int of_layer, int at) const {
    const HostTensor& pool = stacked.at("state");
    std::vector<double> out;
    for (int hv = 0; hv < HV; ++hv) {
      for (int r = 0; r < K; ++r) {
        for (int c = 0; c < V; ++c) {
          const std::int64_t inside = layout == CANOPY_STATE_VK ? c * K + r : r * V + c;
          out.push_back(pool.get(((std::int64_t(of_layer) * kSlots + at) * HV + hv) * K * V + inside));
        }
      }
    }
    return out;
  }
};

Error run(const CommitImplementation& implementation, const CommitParams& params) {
  const std::size_t bytes = implementation.workspace(params);
  void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  std::memset(memory, 0xff, bytes);
  const Error error = commit(params, implementation.name, memory, bytes);
  std::free(memory);
  return error;
}

int method_of(const CommitImplementation& implementation, Layers& layers) {
  for (int method = 0; method < 3; ++method) {
    if (implementation.refuses(layers.params(method)).empty()) return method;
  }
  ADD_FAILURE() << implementation.name << " takes no method";
  return 0;
}

void expect_state(const std::vector<double>& held, const std::vector<double>& truth, double tolerance,
                  const std::string& where) {
  for (std::size_t i = 0; i < truth.size(); ++i) ASSERT_NEAR(held[i], truth[i], tolerance) << where << " element " << i;
}

TEST(Commit, DestinationsTracksSkipsAndLayers) {
  for (const auto& implementation : commit_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    for (const auto layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
      for (const canopy_dtype dtype : {CANOPY_F32, CANOPY_BF16}) {
        Layers layers(layout, dtype);
        const Layers before = layers;
        std::vector<std::int32_t> status(B, -1);
        CommitParams params = layers.params(method_of(implementation, layers));
        const Error refused = run(implementation, params);  // sequence 1 tracks into slot 0, its own source: legal
        ASSERT_TRUE(refused.ok()) << implementation.name << ": " << refused.message;
        layers.stacked["state"] = before.stacked.at("state");
        params = layers.params(params.method), params.row_status = status.data();
        ASSERT_TRUE(run(implementation, params).ok());
        EXPECT_EQ(status, std::vector<std::int32_t>(B, 0));
        // bf16 holds 8 bits: half a unit in the last place of states below 4.
        const double tolerance = dtype == CANOPY_F32 ? 1e-5 : 0x1p-7;
        for (int layer = 0; layer < kLayers; ++layer) {
          const std::string where = std::string(implementation.name) + " layer " + std::to_string(layer);
          std::vector<bool> written(kSlots, false);
          const auto wrote = [&](int slot, int b, int node) {
            written[slot] = true;
            expect_state(layers.held(layer, slot), layers.truth(layer, b, node), tolerance,
                         where + " slot " + std::to_string(slot));
          };
          wrote(3, 0, 12), wrote(10, 0, 5);  // in place, and a second node elsewhere
          wrote(9, 1, 6), wrote(0, 1, 12);   // to another slot; the track overwrites the source
          wrote(8, 3, 3);                    // destination padding: only the track
          for (int slot = 0; slot < kSlots; ++slot) {
            if (written[slot]) continue;
            EXPECT_EQ(layers.held(layer, slot), before.held(layer, slot)) << where << " slot " << slot;
          }
        }
      }
    }
  }
}

TEST(Commit, BadRowsAreFlaggedAndLeftAlone) {
  for (const auto& implementation : commit_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    Layers layers(CANOPY_STATE_VK, CANOPY_F32);
    const Layers before = layers;
    layers.slot = {3, 12, -1, 7, 5}, layers.dst = {12, 9, 1, 7, 6}, layers.leaf = {12, 6, 4, 8, 2};
    layers.track = {10, 0, 11, 7, 2};
    std::vector<std::int32_t> status(B, -1);
    CommitParams params = layers.params(method_of(implementation, layers));
    params.problem.slot_index = layers.slot.data(), params.row_status = status.data();
    layers.layer[0].tensors["parents"].i32()[4 * T + 6] = 6;  // the last sequence's tree is malformed
    ASSERT_TRUE(run(implementation, params).ok());
    EXPECT_EQ(status, (std::vector<std::int32_t>{CANOPY_ROW_BAD_SLOT, CANOPY_ROW_BAD_SLOT, 0, CANOPY_ROW_BAD_SLOT,
                                                 CANOPY_ROW_BAD_TREE}))
        << implementation.name;
    EXPECT_EQ(layers.stacked["state"].bytes, before.stacked.at("state").bytes) << implementation.name;
    params.row_status = nullptr;
    EXPECT_EQ(run(implementation, params).status, CANOPY_INVALID);
  }
}

TEST(Commit, StashWorksWithAndWithoutGates) {
  for (const auto& implementation : commit_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    Layers layers(CANOPY_STATE_VK, CANOPY_F32);
    if (method_of(implementation, layers) != CANOPY_COMMIT_STASH) continue;
    CommitParams params = layers.params(CANOPY_COMMIT_STASH);
    params.problem.v.data = params.problem.g.data = params.problem.beta.data = nullptr;
    ASSERT_TRUE(run(implementation, params).ok());
    expect_state(layers.held(1, 9), layers.truth(1, 1, 6), 1e-5, implementation.name);
  }
}

}  // namespace
}  // namespace canopy
