// The seeded generator of the tree families. The standard library's distributions differ between implementations, so
// everything here is 64-bit integer arithmetic: one seed gives one tree on every platform.
#pragma once

#include <cstdint>

namespace canopy {

// SplitMix64 (Steele, Lea, Flood 2014): every seed is good, 0 included.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in 0 .. bound-1, bound > 0; draws past the last whole multiple of bound are thrown away.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    for (;;) {
      const std::uint64_t draw = next();
      if (draw < limit) return draw % bound;
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace canopy
