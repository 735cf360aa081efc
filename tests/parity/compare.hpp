// Closeness to the fp64 oracle at the registry's tolerances, and the largest error of the whole run.
#pragma once

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdio>
#include <string>

#include "host/host_problem.hpp"
#include "parity/contenders.hpp"

namespace canopy::parity {

// Half the distance between neighbours of x in a 16-bit type: what rounding the exact answer may cost.
inline double half_ulp(canopy_dtype dtype, double x) {
  if (dtype == CANOPY_F32) return 0;
  const int lowest = dtype == CANOPY_BF16 ? -126 : -14, digits = dtype == CANOPY_BF16 ? 8 : 11;
  return std::ldexp(1.0, std::max(x == 0 ? lowest : std::ilogb(x), lowest) - digits);
}

struct Closeness {
  double relative = 0;  // Frobenius
  double scaled = 0;    // max abs over max(1, max |reference|), beyond the rounding to a 16-bit type
  bool finite = true;
  std::int64_t worst = 0;  // element of `scaled`

  bool within(double relative_tolerance, double absolute_tolerance, canopy_dtype dtype) const {
    return finite && scaled <= absolute_tolerance && (dtype != CANOPY_F32 || relative <= relative_tolerance);
  }
};

// Adds elements one by one; the reference is finite.
class Measure {
 public:
  Measure(canopy_dtype dtype, double absolute_tolerance) : dtype_(dtype), slack_(absolute_tolerance) {}

  void add(double reference, double value) {
    ++count_;
    largest_ = std::max(largest_, std::fabs(reference));
    squares_ += reference * reference;
    // 65520 and above round to infinity in f16.
    if (dtype_ == CANOPY_F16 && std::isinf(value) && std::signbit(value) == std::signbit(reference) &&
        std::fabs(reference) * (1 + slack_) >= 65520)
      return;
    if (!std::isfinite(value) || !std::isfinite(reference)) {
      if (finite_) worst_ = count_ - 1;
      finite_ = false;
      return;
    }
    const double apart = std::fabs(value - reference);
    difference_ += apart * apart;
    // The neighbours may lie closer together below the reference than above: take the wider step.
    const double rounding = half_ulp(dtype_, std::fabs(reference) + slack_ * std::max(1.0, std::fabs(reference)));
    if (apart - rounding > beyond_) beyond_ = apart - rounding, worst_ = finite_ ? count_ - 1 : worst_;
  }

  Closeness result() const {
    // Results below FLT_MIN have an absolute accuracy only.
    const double floor = FLT_MIN * std::sqrt(double(count_)), norm = std::sqrt(squares_), off = std::sqrt(difference_);
    return {off <= floor ? 0 : off / std::max(norm, floor), beyond_ / std::max(1.0, largest_), finite_, worst_};
  }

 private:
  canopy_dtype dtype_;
  double slack_, largest_ = 0, squares_ = 0, difference_ = 0, beyond_ = 0;
  bool finite_ = true;
  std::int64_t count_ = 0, worst_ = 0;
};

// The largest errors of fp32 results, printed once at the end.
class LargestError : public ::testing::Environment {
 public:
  void note(const Closeness& closeness, const std::string& where) {
    if (closeness.relative > relative_) relative_ = closeness.relative, relative_at_ = where;
    if (closeness.scaled > scaled_) scaled_ = closeness.scaled, scaled_at_ = where;
  }
  // Thousands of small calls: waking a second thread for each costs more than it brings. The tests of threads set more.
  void SetUp() override { set_threads(1); }
  void TearDown() override {
    if (relative_at_.empty()) return;
    std::printf("largest fp32 error: relative %.3g (%s); max abs %.3g (%s)\n", relative_, relative_at_.c_str(), scaled_,
                scaled_at_.c_str());
  }
  static LargestError& here() {  // GoogleTest owns it
    static auto* const instance = static_cast<LargestError*>(::testing::AddGlobalTestEnvironment(new LargestError));
    return *instance;
  }

 private:
  double relative_ = 0, scaled_ = 0;
  std::string relative_at_, scaled_at_;
};
// Made before main, while GoogleTest still takes environments.
inline LargestError& largest_error = LargestError::here();

}  // namespace canopy::parity
