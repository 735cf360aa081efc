// Counter-based random numbers: value i of a stream is a hash of (stream, i), so tensors fill in any order and an
// integer seed gives the same numbers on every platform.
#pragma once

#include <cstdint>

namespace canopy::host {

// splitmix64's finaliser (Steele, Lea, Flood 2014).
inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Stream {
 public:
  Stream(std::uint64_t seed, std::uint64_t tensor) : key_(mix(seed + 0x9e3779b97f4a7c15u * (tensor + 1))) {}

  std::uint64_t bits(std::uint64_t i) const { return mix(key_ + 0x9e3779b97f4a7c15u * (i + 1)); }
  // [0, 1), multiples of 2^-24.
  float uniform(std::uint64_t i) const { return static_cast<float>(bits(i) >> 40) * 0x1p-24f; }
  // Standard normal but for its tails (|x| < 3.5): four 16-bit uniforms added, exact integers until the last product.
  float normal(std::uint64_t i) const {
    const std::uint64_t word = bits(i);
    const std::int32_t sum =
        static_cast<std::int32_t>((word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48));
    return static_cast<float>(sum - 2 * 65535) * 2.6428998e-05f;  // sqrt(12 / (4 * 2^32))
  }
  // 0 .. bound - 1.
  std::uint64_t below(std::uint64_t i, std::uint64_t bound) const { return (bits(i) >> 32) * bound >> 32; }

 private:
  std::uint64_t key_;
};

}  // namespace canopy::host
