// The gate formulas and the two-float sums.
#include <cmath>
#include <limits>

#include "gates.hpp"
#include "reference_support.hpp"

namespace canopy {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ReferenceGates, ForgottenIsExactlyZero) {
  EXPECT_EQ(std::exp(kForgottenLogGate), 0.0);
  EXPECT_EQ(std::exp(float(kForgottenLogGate)), 0.0f);
  EXPECT_EQ(clamp_log_gate(-kInf), kForgottenLogGate);
  EXPECT_EQ(clamp_log_gate(-1e4), -1e4);
  EXPECT_EQ(clamp_log_gate(1e-3), 1e-3);
  EXPECT_TRUE(std::isnan(clamp_log_gate(kNan)));
}

template <class Real>
void raw_gates(double tolerance) {
  const auto relative = [](double a, double b) { return std::abs(a - b) / std::abs(b); };
  const Real ordinary = log_gate_from_raw(Real(0.5), Real(-1.25));
  EXPECT_LT(relative(ordinary, -std::exp(0.5) * std::log1p(std::exp(-1.25))), tolerance);
  EXPECT_LT(relative(log_gate_from_raw(Real(0), Real(100)), -100.0), tolerance);            // softplus(100) = 100
  EXPECT_LT(relative(log_gate_from_raw(Real(0), Real(-80)), -std::exp(-80.0)), tolerance);  // softplus(-80) = e^-80
  // exp(A_log) overflows fp32 alone; the product does not
  EXPECT_LT(relative(log_gate_from_raw(Real(95), Real(-100)), -std::exp(-5.0)), 10 * tolerance);
  EXPECT_EQ(log_gate_from_raw(Real(1000), Real(3)), Real(kForgottenLogGate));
  EXPECT_EQ(log_gate_from_raw(Real(1000), Real(-2000)), Real(0));
  EXPECT_TRUE(std::isnan(log_gate_from_raw(Real(0), Real(kNan))));
  EXPECT_LT(relative(beta_from_raw(Real(0.75), false), 1 / (1 + std::exp(-0.75))), tolerance);
  EXPECT_LT(relative(beta_from_raw(Real(0.75), true), 2 / (1 + std::exp(-0.75))), tolerance);
  EXPECT_EQ(beta_from_raw(Real(-1000), false), Real(0));
  EXPECT_EQ(beta_from_raw(Real(1000), false), Real(1));
}
TEST(ReferenceGates, RawGatesInDouble) { raw_gates<double>(1e-14); }
TEST(ReferenceGates, RawGatesInFloat) { raw_gates<float>(1e-6); }

TEST(ReferenceGates, SoftplusSwitchesAtTwenty) {
  EXPECT_EQ(softplus(20.5), 20.5);  // the identity, as in PyTorch; log1p(exp(20.5)) differs in the ninth digit
  EXPECT_NE(softplus(19.5), 19.5);
}

// Many gates after a strong one: hi and lo must keep what one float loses.
TEST(ReferenceGates, TwoFloatSumsKeepTheDifference) {
  for (const float strong : {-1e4f, float(kForgottenLogGate), -912.0f}) {
    TwoFloat<float> l = add(TwoFloat<float>{}, strong), first = l;
    float plain = strong;
    double exact = 0;
    for (int i = 0; i < 255; ++i) {
      const float g = -0.0123f - 0.0001f * float(i % 7);
      l = add(l, g), plain += g, exact += double(g);
    }
    EXPECT_NEAR(difference(l, first), exact, 2e-7 * std::abs(exact)) << strong;
    EXPECT_GT(std::abs((plain - strong) - exact), 1e-5 * std::abs(exact)) << "a plain sum should have lost digits";
  }
}

TEST(ReferenceGates, SumsStayFiniteWhenEverythingIsForgotten) {
  TwoFloat<float> l;
  for (int i = 0; i < 256; ++i) l = add(l, clamp_log_gate(-std::numeric_limits<float>::infinity()));
  EXPECT_EQ(l.hi, 256.0f * float(kForgottenLogGate));
  EXPECT_EQ(difference(l, l), 0.0f);
}

}  // namespace
}  // namespace canopy
