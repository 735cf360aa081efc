// load_head: one head out of a strided problem of any dtype, layout and slot, with raw gates, norm and scale. Every
// element is a different number, so that a wrong stride, head or slot cannot go unnoticed.
#include <cmath>
#include <limits>

#include "element.hpp"
#include "reference_support.hpp"

namespace canopy {
namespace {
using namespace reference;

constexpr int B = 2, T = 3, H = 2, HV = 4, K = 8, V = 16, kSlots = 5;

// A view into a larger buffer whose gaps are NaN: reading one shows.
struct Strided {
  std::vector<std::byte> bytes;
  canopy_tensor view{};

  Strided(canopy_dtype dtype, std::vector<std::int64_t> shape, std::uint64_t seed, bool gaps = true) {
    view.dtype = dtype;
    std::int64_t stride = 1;
    for (int axis = int(shape.size()) - 1; axis >= 0; --axis) {
      view.stride[axis + 1] = stride;
      stride *= shape[axis] + (gaps && axis > 0 ? 3 : 0);
    }
    bytes.resize(std::size_t(stride * element_bytes(dtype)));
    view.data = bytes.data();
    for (std::int64_t e = 0; e < stride; ++e)
      store_element(dtype, view.data, e, std::numeric_limits<float>::quiet_NaN());
    SampleSource source(seed);
    shape.resize(4, 1);
    for (int b = 0; b < shape[0]; ++b) {
      for (int t = 0; t < shape[1]; ++t) {
        for (int h = 0; h < shape[2]; ++h) {
          for (int c = 0; c < shape[3]; ++c)
            store_element(dtype, view.data, offset(b, t, h, c), float(source.normal()));
        }
      }
    }
  }
  std::int64_t offset(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t c) const {
    return b * view.stride[1] + t * view.stride[2] + h * view.stride[3] + c * view.stride[4];
  }
  double at(std::int64_t b, std::int64_t t = 0, std::int64_t h = 0, std::int64_t c = 0) const {
    return load_element(view.dtype, view.data, offset(b, t, h, c));
  }
};

struct Fixture {
  Strided q, k, v, g, beta, a, b, a_log, dt_bias, state;
  std::vector<std::int64_t> slots64{3, -1};
  std::vector<std::int32_t> slots32{4, 2};
  VerifyParams params = verify_params();

  Fixture(canopy_dtype input, canopy_dtype pool, canopy_state_layout layout)
      : q(input, {B, T, H, K}, 1),
        k(input, {B, T, H, K}, 2),
        v(input, {B, T, HV, V}, 3),
        g(CANOPY_F32, {B, T, HV}, 4),
        beta(CANOPY_F32, {B, T, HV}, 5),
        a(input, {B, T, HV}, 6),
        b(input, {B, T, HV}, 7),
        a_log(CANOPY_F32, {HV}, 8),
        dt_bias(CANOPY_F32, {HV}, 9),
        state(pool,
              layout == CANOPY_STATE_VK ? std::vector<std::int64_t>{kSlots, HV, V, K}
                                        : std::vector<std::int64_t>{kSlots, HV, K, V},
              10) {
    Problem& p = params.problem;
    p.device = CANOPY_CPU;
    p.batch = B, p.nodes = T, p.heads_k = H, p.heads_v = HV, p.dim_k = K, p.dim_v = V;
    p.q = q.view, p.k = k.view, p.v = v.view, p.g = g.view, p.beta = beta.view, p.state = state.view;
    p.state_layout = layout, p.slots = kSlots;
  }
};

const Tree& tree() {
  static const Tree tree = test::tree_of({-1, 0, 0});
  return tree;
}

TEST(ReferenceLoad, EveryDtypeLayoutAndSlotType) {
  for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    for (const canopy_dtype pool : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
        for (const bool wide : {false, true}) {
          Fixture f(input, pool, layout);
          f.params.problem.slot_index_dtype = wide ? CANOPY_I64 : CANOPY_I32;
          f.params.problem.slot_index = wide ? static_cast<const void*>(f.slots64.data()) : f.slots32.data();
          const int b = wide ? 0 : 1, slot = wide ? 3 : 2, hv = 3, h = 1;
          const Head<double> head = load_head(f.params.problem, b, hv, tree());
          for (int t = 0; t < T; ++t) {
            for (int c = 0; c < K; ++c) {
              ASSERT_EQ(head.k[t * K + c], f.k.at(b, t, h, c));
              ASSERT_DOUBLE_EQ(head.q[t * K + c], f.q.at(b, t, h, c) / std::sqrt(8.0));  // scale K^-0.5 by default
            }
            for (int c = 0; c < V; ++c) ASSERT_EQ(head.v[t * V + c], f.v.at(b, t, hv, c));
            ASSERT_EQ(head.g[t], f.g.at(b, t, hv));
            ASSERT_EQ(head.beta[t], f.beta.at(b, t, hv));
          }
          for (int r = 0; r < K; ++r) {
            for (int c = 0; c < V; ++c) {
              const double expected =
                  layout == CANOPY_STATE_VK ? f.state.at(slot, hv, c, r) : f.state.at(slot, hv, r, c);
              ASSERT_EQ(head.state[r * V + c], expected);
            }
          }
        }
      }
    }
  }
}

TEST(ReferenceLoad, WithoutSlotIndexSequenceBUsesSlotB) {
  Fixture f(CANOPY_F32, CANOPY_F32, CANOPY_STATE_VK);
  EXPECT_EQ(load_head(f.params.problem, 1, 0, tree()).state[0], f.state.at(1, 0, 0, 0));
}

TEST(ReferenceLoad, RawGates) {
  Fixture f(CANOPY_BF16, CANOPY_F32, CANOPY_STATE_VK);
  Problem& p = f.params.problem;
  p.g.data = p.beta.data = nullptr;
  p.a = f.a.view, p.b = f.b.view, p.a_log = f.a_log.view, p.dt_bias = f.dt_bias.view;
  for (const int doubled : {0, 1}) {
    p.beta_doubled = doubled;
    const Head<double> head = load_head(p, 1, 2, tree());
    for (int t = 0; t < T; ++t) {
      const double x = f.a.at(1, t, 2) + f.dt_bias.at(2);
      EXPECT_NEAR(head.g[t], -std::exp(f.a_log.at(2)) * std::log(1 + std::exp(x)), 1e-14);
      EXPECT_NEAR(head.beta[t], (doubled ? 2 : 1) / (1 + std::exp(-f.b.at(1, t, 2))), 1e-15);
    }
  }
}

TEST(ReferenceLoad, NormThenScale) {
  Fixture f(CANOPY_F16, CANOPY_F32, CANOPY_STATE_VK);
  Problem& p = f.params.problem;
  p.l2norm = 1, p.l2norm_eps = 0.25f, p.scale = 3.0f;
  const Head<double> head = load_head(p, 0, 1, tree());
  for (int t = 0; t < T; ++t) {
    double q_sum = 0, k_sum = 0;
    for (int c = 0; c < K; ++c) q_sum += std::pow(f.q.at(0, t, 0, c), 2), k_sum += std::pow(f.k.at(0, t, 0, c), 2);
    for (int c = 0; c < K; ++c) {
      EXPECT_NEAR(head.q[t * K + c], 3 * f.q.at(0, t, 0, c) / std::sqrt(q_sum + 0.25), 1e-14);
      EXPECT_NEAR(head.k[t * K + c], f.k.at(0, t, 0, c) / std::sqrt(k_sum + 0.25), 1e-14);
    }
  }
}

TEST(ReferenceLoad, MinusInfinityIsClampedAndNanIsKept) {
  Fixture f(CANOPY_F32, CANOPY_F32, CANOPY_STATE_VK);
  store_element(CANOPY_F32, f.g.view.data, 0, -std::numeric_limits<float>::infinity());
  store_element(CANOPY_F32, f.g.view.data, f.g.view.stride[2], std::numeric_limits<float>::quiet_NaN());
  const Head<double> head = load_head(f.params.problem, 0, 0, tree());
  EXPECT_EQ(std::exp(head.g[0]), 0.0);
  EXPECT_TRUE(std::isfinite(head.g[0]));
  EXPECT_TRUE(std::isnan(head.g[1]));
}

TEST(ReferenceLoad, CommitComesWithoutQueries) {
  Fixture f(CANOPY_F32, CANOPY_F32, CANOPY_STATE_VK);
  f.params.problem.q.data = nullptr;
  const Head<double> head = load_head(f.params.problem, 0, 0, tree());
  EXPECT_EQ(head.q, std::vector<double>(T * K, 0.0));
  EXPECT_EQ(commit_resolve(head, 2).size(), std::size_t(K) * V);
}

TEST(ReferenceLoad, ConvertRounds) {
  Fixture f(CANOPY_F32, CANOPY_F32, CANOPY_STATE_VK);
  const Head<double> head = load_head(f.params.problem, 0, 0, tree());
  const Head<float> single = convert<float>(head);
  EXPECT_EQ(single.tree, head.tree);
  EXPECT_EQ(single.q[5], float(head.q[5]));
  EXPECT_EQ(single.state.back(), float(head.state.back()));
  EXPECT_EQ(single.v.size(), head.v.size());
}

}  // namespace
}  // namespace canopy
