// What is put to the test: every implementation of the registry that runs on this machine's CPU, those of src/cpu once
// for each instruction set the processor has.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "canopy/canopy.hpp"
#include "cpu/kernels.hpp"
#include "registry.hpp"

namespace canopy::parity {

// CANOPY_TEST_LIGHT=1: a tenth of the cases, for builds with sanitizers.
inline bool light() {
  static const bool set = [] {
    const char* value = std::getenv("CANOPY_TEST_LIGHT");
    return value && *value && std::string(value) != "0";
  }();
  return set;
}
// Whether to leave out the case of this number: in light runs all but every `keep`-th.
inline bool skip(int number, int keep) { return light() && number % keep != 0; }

}  // namespace canopy::parity

// The runtime of OpenMP where the library was built with it; the tests are compiled without.
extern "C" void omp_set_num_threads(int) __attribute__((weak));

namespace canopy::parity {

inline bool threads_can_be_set() { return omp_set_num_threads != nullptr; }
inline void set_threads(int threads) {
  if (omp_set_num_threads) omp_set_num_threads(threads);
}

template <class Params>
struct Contender {
  const Implementation<Params>* implementation;
  const cpu::Kernels* set;  // nullptr: not written per instruction set

  std::string name() const { return std::string(implementation->name) + (set ? std::string(" ") + set->name : ""); }
};

inline std::span<const VerifyImplementation> registry(const VerifyParams*) { return verify_implementations(); }
inline std::span<const CommitImplementation> registry(const CommitParams*) { return commit_implementations(); }
inline std::span<const VerifyImplementation> per_set(const VerifyParams*) { return cpu_verify_implementations(); }
inline std::span<const CommitImplementation> per_set(const CommitParams*) { return cpu_commit_implementations(); }

template <class Params>
const std::vector<Contender<Params>>& contenders() {
  static const std::vector<Contender<Params>> all = [] {
    std::vector<Contender<Params>> list;
    const cpu::Kernels* sets[3];
    const int set_count = cpu::kernel_sets(sets);
    constexpr const Params* kind = nullptr;
    for (const auto& entry : registry(kind)) {
      if (entry.device != CANOPY_CPU || !entry.missing().empty()) continue;
      const auto same = [&](const auto& other) {
        return other.run == entry.run && !std::strcmp(other.name, entry.name);
      };
      if (std::ranges::any_of(per_set(kind), same)) {
        for (int i = 0; i < set_count; ++i) list.push_back({&entry, sets[i]});
      } else {
        list.push_back({&entry, nullptr});
      }
    }
    return list;
  }();
  return all;
}

// The kernels of one set until the end of the scope, then the widest again.
class InUse {
 public:
  explicit InUse(const cpu::Kernels* set) { cpu::use_kernels(set); }
  ~InUse() { cpu::use_kernels(nullptr); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
};

// Exactly `bytes` of 64-byte aligned memory, filled with one byte, between two fences that nobody may write.
class Fenced {
 public:
  explicit Fenced(std::size_t bytes, unsigned char fill = 0xff)
      : bytes_(bytes), memory_(static_cast<unsigned char*>(::operator new (bytes + 2 * kFence, std::align_val_t{64}))) {
    std::memset(memory_, kCanary, kFence);
    std::memset(memory_ + kFence, fill, bytes);
    std::memset(memory_ + kFence + bytes, kCanary, kFence);
  }
  ~Fenced() { ::operator delete (memory_, std::align_val_t{64}); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  void* data() { return memory_ + kFence; }
  bool intact() const {
    const auto whole = [](const unsigned char* fence) {
      return std::all_of(fence, fence + kFence, [](unsigned char byte) { return byte == kCanary; });
    };
    return whole(memory_) && whole(memory_ + kFence + bytes_);
  }

 private:
  static constexpr std::size_t kFence = 4096;
  static constexpr unsigned char kCanary = 0xc5;
  std::size_t bytes_;
  unsigned char* memory_;
};

}  // namespace canopy::parity
