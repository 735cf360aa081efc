// What one instruction set offers: the kernels of src/cpu/kernels.cpp behind function pointers. Each call does one
// piece of work on one thread, in scratch memory of its own; src/cpu/backend.cpp spreads the pieces over threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "canopy/plan.hpp"
#include "canopy/problem.hpp"
#include "conv_rows.hpp"

namespace canopy::cpu {

// One row of a commit for one value head of one layer: the accepted path (node numbers, root first) and where the
// state comes from and goes to. A negative slot is not written.
struct CommitRow {
  int layer, b, hv;
  std::int64_t src_slot, dst_slot, track_slot;
  const std::int32_t* path;  // [length]
  int length;
  const std::int32_t* track_path;  // [track_length]
  int track_length;
};

// A piece of a tree convolution: `channels` channels from `first` on, of one sequence.
inline constexpr int kConvChannels = 256;  // the most: their columns of every node stay in the second-level cache
struct ConvRow {
  int b, first, channels, nodes;
  std::int64_t slot;
  const std::int16_t (*sources)[kConvTaps];  // [nodes][W], input_before() of each tap, oldest first
};

struct Kernels {
  const char* name;
  int lanes;  // fp32 lanes of a vector

  // Closed form (E2 to E7) of value heads hv_first .. hv_first + hv_count - 1, which share one key head.
  std::size_t (*closed_form_scratch)(const Problem&);
  void (*closed_form)(const VerifyParams&, const Plan&, int b, int hv_first, int hv_count, void* scratch);

  // E1 with the state in cache while the parent is the previous node; a parent with more children keeps its state.
  std::size_t (*serial_resident_scratch)(const Problem&);
  void (*serial_resident)(const VerifyParams&, const Plan&, int b, int hv, void* scratch);

  // E1 with a state written per node and the parent's state read back. `snapshots` holds this head's states.
  std::size_t (*snapshot_bytes)(const Problem&);  // of one (sequence, value head)
  std::size_t (*serial_snapshot_scratch)(const Problem&);
  void (*serial_snapshot)(const VerifyParams&, const Plan&, int b, int hv, void* snapshots, void* scratch);

  // The state after the accepted node (E8), by params.method.
  std::size_t (*commit_scratch)(const Problem&);
  void (*commit)(const CommitParams&, const CommitRow&, void* scratch);

  // The convolution of a piece (E9).
  void (*conv)(const ConvVerifyParams&, const ConvRow&);

  // Writes NaN to the live rows of one sequence's outputs.
  void (*poison)(const VerifyParams&, int b, int count);

  // fp32 multiply-adds in a register-only loop: returns flops done; the benchmark's measure of this core's peak.
  double (*fma_burst)(std::int64_t rounds, float* sink);
};

extern const Kernels kernels_baseline;
#if defined(__x86_64__) || defined(_M_X64)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

// Every set this processor runs, narrowest first; how many.
int kernel_sets(const Kernels* (&sets)[3]);
// The set in use: the widest, or the one given to use_kernels (nullptr: the widest again). For tests and benchmarks;
// call it while nothing runs, since workspace sizes depend on it.
const Kernels& kernels();
void use_kernels(const Kernels* set);

}  // namespace canopy::cpu
