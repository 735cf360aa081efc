// Numbers in and out of memory, through the implementations themselves: every 16-bit pattern, rounding to nearest even,
// and exp over the whole range of log gates.
#include <cmath>
#include <limits>

#include "element.hpp"
#include "parity/layers.hpp"

namespace canopy::parity {
namespace {

// K = 8, V = 256: one node, one head, 2048 state elements.
ProblemSpec plain(int batch) {
  ProblemSpec spec;
  spec.family.name = "chain", spec.family.nodes = 1, spec.batch = batch, spec.heads_k = spec.heads_v = 1;
  spec.dim_k = 8, spec.dim_v = 256, spec.input = CANOPY_F32;
  spec.gates = host::Gates::zero, spec.betas = host::Betas::zero;
  return spec;
}
bool is_nan(canopy_dtype dtype, std::uint16_t bits) {
  return dtype == CANOPY_BF16 ? (bits & 0x7fff) > 0x7f80 : (bits & 0x7fff) > 0x7c00;
}

// alpha = 1, beta = 0: the state after the node is the state, to the last bit; but -0 + k u is +0.
TEST(CpuStorage, EveryPatternOfA16BitStateSurvivesACommit) {
  for (const canopy_dtype dtype : {CANOPY_BF16, CANOPY_F16}) {
    for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
      ProblemSpec spec = plain(32);
      spec.state = dtype, spec.layout = layout;
      Case c(spec);
      HostTensor& state = c.tensor("state");
      auto* patterns = reinterpret_cast<std::uint16_t*>(state.bytes.data());
      ASSERT_EQ(state.elements(), 65536);
      for (int i = 0; i < 65536; ++i) patterns[i] = std::uint16_t(i);
      // A NaN or an infinity would spread over its column through S^T k.
      for (int i = 0; i < 65536; ++i)
        if (!std::isfinite(state.get(i))) patterns[i] = 0;
      const HostTensor u = HostTensor::make(CANOPY_F32, {32, 1, 1, 256}), l = HostTensor::make(CANOPY_F32, {32, 1, 1});
      HostTensor stash_u = u, stash_l = l;
      const std::vector<std::int32_t> leaf(32, 0);
      for (const CommitContender& contender : contenders<CommitParams>()) {
        CommitParams params = commit_params();
        params.problem = c.params.problem, params.leaf = leaf.data();
        params.stash_u = stash_u.view(), params.stash_l = stash_l.view();
        set_method(contender, params);
        const HostTensor after = run_commit(contender, params, state);
        const auto* got = reinterpret_cast<const std::uint16_t*>(after.bytes.data());
        for (int i = 0; i < 65536; ++i) {
          if (patterns[i] == 0x8000) continue;  // -0
          ASSERT_EQ(got[i], patterns[i]) << contender.name();
        }
      }
    }
  }
}

// q = e_0, so o is the first row of the state: fp32 rounded to the type of o.
TEST(CpuStorage, OutputsRoundToNearestEven) {
  ProblemSpec spec = plain(48);
  spec.layout = CANOPY_STATE_KV;
  Case c(spec);
  c.params.problem.scale = 1.0f;
  HostTensor &q = c.tensor("q"), &state = c.tensor("state");
  for (std::int64_t i = 0; i < q.elements(); ++i) q.set(i, i % 8 == 0 ? 1.0f : 0.0f);
  // Ties, their neighbours and the ends of both types' ranges, with every exponent of f16 and some beyond.
  std::vector<float> values;
  for (int exponent = -30; exponent <= 17; ++exponent) {
    for (const double mantissa : {1.0, 1.0 + 0x1p-8, 1.0 + 0x1p-7, 1.0 + 0x1.8p-7, 1.0 + 0x1p-11, 1.0 + 0x1.8p-10,
                                  2.0 - 0x1p-8, 2.0 - 0x1p-11, 2.0 - 0x1p-12, 1.337}) {
      const float x = float(std::ldexp(mantissa, exponent));
      for (const float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, 1e9f)}) values.insert(values.end(), {y, -y});
    }
  }
  values.insert(values.end(), {65504.0f, 65519.996f, 65520.0f, -65520.0f, 65536.0f, 3.3e38f, -3.3e38f, 0.0f});
  ASSERT_LE(values.size(), std::size_t{48} * 256);
  for (std::int64_t i = 0; i < state.elements(); ++i) state.set(i, 0.0f);
  for (std::size_t i = 0; i < values.size(); ++i) state.set(std::int64_t(i / 256 * 8 * 256 + i % 256), values[i]);
  for (const canopy_dtype output : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs out = run(contender, c.params, {.output = output});
      for (std::size_t i = 0; i < values.size(); ++i) {
        HostTensor expected = HostTensor::make(output, {1});
        expected.set(0, values[i]);
        ASSERT_EQ(out.o.get(std::int64_t(i)), expected.get(0)) << contender.name() << ", " << values[i];
      }
    }
  }
}

// A NaN stays a NaN in every type: rounding must not turn it into an infinity.
TEST(CpuStorage, NaNStaysNaN) {
  Case c(plain(1));
  HostTensor& state = c.tensor("state");
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    for (std::int64_t i = 0; i < state.elements(); ++i) state.set(i, std::bit_cast<float>(bits));
    for (const canopy_dtype output : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
      for (const VerifyContender& contender : contenders<VerifyParams>()) {
        const Outputs out = run(contender, c.params, {.output = output});
        for (std::int64_t i = 0; i < out.o.elements(); ++i) ASSERT_TRUE(std::isnan(out.o.get(i))) << contender.name();
      }
    }
  }
}

// v = every finite 16-bit pattern, beta = 1, S0 = 0, k = q = e_0: U and o are v, exactly.
TEST(CpuStorage, EveryPatternOfA16BitInputIsReadExactly) {
  for (const canopy_dtype dtype : {CANOPY_BF16, CANOPY_F16}) {
    ProblemSpec spec = plain(256);
    spec.input = dtype, spec.betas = host::Betas::one, spec.state_scale = 0;
    Case c(spec);
    c.params.problem.scale = 1.0f;
    for (const char* name : {"q", "k"})
      for (std::int64_t i = 0; i < c.tensor(name).elements(); ++i) c.tensor(name).set(i, i % 8 == 0 ? 1.0f : 0.0f);
    auto* patterns = reinterpret_cast<std::uint16_t*>(c.tensor("v").bytes.data());
    for (int i = 0; i < 65536; ++i) patterns[i] = is_nan(dtype, std::uint16_t(i)) ? 0 : std::uint16_t(i);
    const auto value = [&](int i) { return c.tensor("v").get(i); };
    for (const VerifyContender& contender : contenders<VerifyParams>()) {
      const Outputs out = run(contender, c.params);
      for (int i = 0; i < 65536; ++i) {
        ASSERT_EQ(out.u.get(i), value(i)) << contender.name();
        if (!std::isfinite(value(i))) continue;  // o = 0 * inf
        ASSERT_EQ(out.o.get(i), value(i)) << contender.name();
      }
    }
  }
}

// beta = 0, S0 = 1, q = e_0: o = exp(g), within 2 units in the last place over the range where that is a normal number.
TEST(CpuStorage, ExpOfEveryLogGate) {
  constexpr int kGates = 4000;
  ProblemSpec spec = plain(kGates);
  spec.dim_v = 8;
  Case c(spec);
  c.params.problem.scale = 1.0f;
  HostTensor &q = c.tensor("q"), &state = c.tensor("state"), &g = c.tensor("g");
  for (std::int64_t i = 0; i < q.elements(); ++i) q.set(i, i % 8 == 0 ? 1.0f : 0.0f);
  for (std::int64_t i = 0; i < state.elements(); ++i) state.set(i, 1.0f);
  for (int i = 0; i < kGates; ++i) {
    const double at = double(i) / kGates;  // all of [-110, 88], and densely about 0
    g.set(i, float(i % 2 ? -110 + 198 * at : (at - 0.7) * std::exp2(-40 * at)));
  }
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const Outputs out = run(contender, c.params);
    double worst = 0;
    for (int i = 0; i < kGates; ++i) {
      const double exact = std::exp(double(g.get(i))), got = out.o.get(std::int64_t{i} * 8);
      if (exact < std::numeric_limits<float>::min()) {
        ASSERT_NEAR(got, exact, 2 * double(std::numeric_limits<float>::denorm_min()))
            << contender.name() << ", " << g.get(i);
      } else {
        worst = std::max(worst, std::fabs(got - exact) / exact);
      }
    }
    EXPECT_LE(worst, 2 * 0x1p-23) << contender.name();
  }
}

}  // namespace
}  // namespace canopy::parity
