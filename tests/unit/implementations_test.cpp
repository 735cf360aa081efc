// Every registered implementation with every feature of docs/api.md on small shapes, against the fp64 oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "element.hpp"
#include "host/host_problem.hpp"

namespace canopy {
namespace {

using host::HostTensor;

host::ProblemSpec base_spec() {
  host::ProblemSpec spec;
  spec.batch = 5, spec.heads_k = 2, spec.heads_v = 6, spec.dim_k = 16, spec.dim_v = 24;
  spec.family.name = "random", spec.family.nodes = 21;
  spec.input = CANOPY_F32;
  spec.slots = spec.ragged = true;
  return spec;
}

struct Feature {
  const char* name;
  void (*apply)(host::ProblemSpec&);
};
const Feature kFeatures[] = {
    {"plain", [](host::ProblemSpec& s) { s.slots = s.ragged = false; }},
    {"slots_and_counts", [](host::ProblemSpec&) {}},
    {"bf16", [](host::ProblemSpec& s) { s.input = CANOPY_BF16; }},
    {"f16", [](host::ProblemSpec& s) { s.input = CANOPY_F16; }},
    {"bf16_state", [](host::ProblemSpec& s) { s.state = CANOPY_BF16; }},
    {"f16_state_kv", [](host::ProblemSpec& s) { s.state = CANOPY_F16, s.layout = CANOPY_STATE_KV; }},
    {"kv", [](host::ProblemSpec& s) { s.layout = CANOPY_STATE_KV; }},
    {"raw_gates", [](host::ProblemSpec& s) { s.raw_gates = true; }},
    {"raw_gates_bf16_l2norm", [](host::ProblemSpec& s) { s.raw_gates = s.l2norm = true, s.input = CANOPY_BF16; }},
    {"l2norm", [](host::ProblemSpec& s) { s.l2norm = true; }},
    {"tiny_keys_l2norm", [](host::ProblemSpec& s) { s.l2norm = true, s.keys = host::Keys::tiny; }},
    {"wide_heads", [](host::ProblemSpec& s) { s.heads_k = 1, s.heads_v = 1, s.dim_k = 256, s.dim_v = 8, s.batch = 2; }},
};

std::vector<double> oracle_o(const VerifyParams& params) {
  const Problem& p = params.problem;
  std::vector<double> o(std::size_t(p.batch) * p.nodes * p.heads_v * p.dim_v);
  canopy_error error;
  EXPECT_EQ(canopy_oracle_verify(&params, o.data(), nullptr, nullptr, &error), CANOPY_OK) << error.message;
  return o;
}

// The overloads that take a workspace, by a name of their own.
const auto call_verify = [](auto&&... arguments) { return verify(arguments...); };

// Runs with aligned memory of the implementation's own size.
template <class Params, class Call>
Error run_with_workspace(const Implementation<Params>& implementation, const Params& params, Call call) {
  const std::size_t bytes = implementation.workspace(params);
  void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
  std::memset(memory, 0xff, bytes);  // NaN: nothing may be read before it is written
  const Error error = call(params, implementation.name, memory, bytes, nullptr);
  std::free(memory);
  return error;
}

TEST(Implementations, EveryFeatureAgreesWithTheOracle) {
  for (const Feature& feature : kFeatures) {
    host::ProblemSpec spec = base_spec();
    feature.apply(spec);
    auto problem = host::make_problem(spec);
    ASSERT_TRUE(problem) << problem.error().message;
    const std::vector<double> truth = oracle_o(*problem->verify());
    const auto pool = problem->tensors["state"].bytes;
    const Problem view = *problem->problem();
    const std::int64_t row = std::int64_t(view.heads_v) * view.dim_v;
    for (const auto& implementation : verify_implementations()) {
      if (implementation.device != CANOPY_CPU) continue;
      const auto run = host::run_verify(*problem, implementation, CANOPY_F32, true);
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_EQ(problem->tensors["state"].bytes, pool) << implementation.name << ": verification changed the pool";
      const float* o = reinterpret_cast<const float*>(run->o.bytes.data());
      for (int b = 0; b < view.batch; ++b) {
        EXPECT_EQ(run->row_status[b], 0);
        const int live = slot_of(view, view.slot_index, b) < 0 ? 0 : count_of(view, b);
        const std::int64_t at = b * view.nodes * row;
        const auto error = host::deviation(truth.data() + at, o + at, live * row);
        EXPECT_TRUE(error.finite) << feature.name << " " << implementation.name;
        EXPECT_LE(error.relative, implementation.relative_tolerance)
            << feature.name << " " << implementation.name << " b=" << b;
        for (std::int64_t i = live * row; i < view.nodes * row; ++i) {
          ASSERT_TRUE(std::isnan(o[at + i]))
              << feature.name << " " << implementation.name << ": wrote past the live rows of b=" << b;
        }
      }
    }
  }
}

// q, k, v as slices of one [B*T, width] buffer, gates with gaps, a pool with longer slots, o with gaps: the gaps hold
// NaN going in and must hold it coming out.
TEST(Implementations, StridedViewsReadAndWriteOnlyTheirElements) {
  host::ProblemSpec spec = base_spec();
  auto problem = host::make_problem(spec);
  ASSERT_TRUE(problem);
  const std::vector<double> truth = oracle_o(*problem->verify());
  VerifyParams params = *problem->verify();
  Problem& p = params.problem;
  const int B = p.batch, T = p.nodes, H = p.heads_k, HV = p.heads_v, K = p.dim_k, V = p.dim_v;
  const float nan = std::nanf("");
  const std::int64_t width = 2 * H * K + HV * V + 13;
  std::vector<float> mixed(B * T * width, nan), gates(B * T * HV * 3, nan), pool(p.slots * (HV * V * K + 100), nan);
  const auto spread = [&](Tensor& view, const char* name, float* to, std::int64_t token, int heads, int dim,
                          std::int64_t head) {
    const HostTensor& from = problem->tensors.at(name);
    for (int t = 0; t < B * T; ++t) {
      for (int h = 0; h < heads; ++h) {
        for (int c = 0; c < dim; ++c) to[t * token + h * head + c] = from.get((std::int64_t(t) * heads + h) * dim + c);
      }
    }
    view = {to, CANOPY_F32, 0, {0, T * token, token, head, 1}};
  };
  spread(p.q, "q", mixed.data(), width, H, K, K);
  spread(p.k, "k", mixed.data() + H * K, width, H, K, K);
  spread(p.v, "v", mixed.data() + 2 * H * K, width, HV, V, V);
  spread(p.g, "g", gates.data(), HV * 3, HV, 1, 3);
  spread(p.beta, "beta", gates.data() + 1, HV * 3, HV, 1, 3);
  const std::int64_t slot = HV * V * K + 100;
  for (std::int64_t s = 0; s < p.slots; ++s) {
    for (std::int64_t i = 0; i < HV * V * K; ++i)
      pool[s * slot + i] = problem->tensors.at("state").get(s * HV * V * K + i);
  }
  p.state = {pool.data(), CANOPY_F32, 0, {0, slot, V * K, K, 1}};
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    const std::int64_t token = HV * (V + 5) + 7;
    std::vector<float> o(B * T * token, nan);
    params.o = {o.data(), CANOPY_F32, 0, {0, T * token, token, V + 5, 1}};
    const Error error = run_with_workspace(implementation, params, call_verify);
    ASSERT_TRUE(error.ok()) << implementation.name << ": " << error.message;
    for (int b = 0; b < B; ++b) {
      const int live = slot_of(p, p.slot_index, b) < 0 ? 0 : count_of(p, b);
      for (int t = 0; t < T; ++t) {
        for (std::int64_t i = 0; i < token; ++i) {
          const std::int64_t hv = i / (V + 5), c = i % (V + 5);
          const float value = o[(b * T + t) * token + i];
          if (t < live && hv < HV && c < V) {
            ASSERT_NEAR(value, truth[((std::int64_t(b) * T + t) * HV + hv) * V + c], 1e-5) << implementation.name;
          } else {
            ASSERT_TRUE(std::isnan(value)) << implementation.name << " wrote between its rows";
          }
        }
      }
    }
  }
}

TEST(Implementations, BadRowsAreFlaggedAndHarmTheirOwnRowsOnly) {
  host::ProblemSpec spec = base_spec();
  spec.slots = spec.ragged = false;
  auto clean = host::make_problem(spec);
  ASSERT_TRUE(clean);
  const std::vector<double> truth = oracle_o(*clean->verify());
  host::HostProblem spoilt = *clean;
  HostTensor slots = HostTensor::make(CANOPY_I32, {5}), count = slots;
  for (int b = 0; b < 5; ++b) slots.i32()[b] = b, count.i32()[b] = 21;
  slots.i32()[1] = 5, count.i32()[2] = 22, count.i32()[3] = 20;
  spoilt.tensors["parents"].i32()[3 * 21 + 9] = 12;  // a parent after its child
  spoilt.tensors["slots"] = slots, spoilt.tensors["count"] = count;
  const std::vector<std::int32_t> expected{0, CANOPY_ROW_BAD_SLOT, CANOPY_ROW_BAD_COUNT, CANOPY_ROW_BAD_TREE, 0};
  VerifyParams params = *spoilt.verify();
  const std::int64_t row = 6 * 24, sequence = 21 * row;
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    HostTensor o = HostTensor::make(CANOPY_F32, {5, 21, 6, 24});
    std::vector<std::int32_t> status(5, -1);
    params.o = o.view(), params.row_status = status.data();
    const Error error = run_with_workspace(implementation, params, call_verify);
    ASSERT_TRUE(error.ok()) << error.message;
    EXPECT_EQ(status, expected) << implementation.name;
    for (std::int64_t i = 0; i < 5 * sequence; ++i) {
      const int b = static_cast<int>(i / sequence);
      const bool live = i % sequence < 20 * row;
      const float value = o.get(i);
      if (b == 0 || b == 4) {
        ASSERT_NEAR(value, truth[i], 1e-5) << implementation.name;
      } else if (b == 3 && live) {
        ASSERT_TRUE(std::isnan(value)) << implementation.name << ": a malformed tree gave numbers";
      } else {
        ASSERT_EQ(value, 0.0f) << implementation.name << ": a skipped row was written, b=" << b;
      }
    }
    params.row_status = nullptr;
    EXPECT_EQ(run_with_workspace(implementation, params, call_verify).status, CANOPY_INVALID);
  }
}

}  // namespace
}  // namespace canopy
