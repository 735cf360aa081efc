// Tile choices, in one table: what a CTA of the fused kernel is made of and when it is used, by architecture. The row
// of sm_90 was measured on an H200 (NOTES.md); the others are chosen to fit and have not been measured.
#pragma once

// The architecture that device code is compiled for; in the host's pass any will do.
#ifdef __CUDA_ARCH__
#define CANOPY_THIS_ARCHITECTURE (__CUDA_ARCH__ / 10)
#else
#define CANOPY_THIS_ARCHITECTURE 90
#endif

namespace canopy::cuda {

struct CtaTuning {
  int columns;               // value columns of a head
  int prep_warps, depth;     // depth: slots of the ring that each has
  int ctas = 1;              // that are to fit an SM by registers
  int prep_registers = 0;    // of a thread once the roles part ways (setmaxnreg: sm_90a, warps of a role in fours);
  int solver_registers = 0;  // 0: as it was launched
};

// A narrow CTA takes 32 value columns of a head (many CTAs: one sequence), a wide one all 128 (each key row is loaded
// and prepared once a head). `few` are wide CTAs that have an SM each. A pair CTA takes two value heads of a key head.
struct FusedTuning {
  int architecture;       // 10 * major + minor, from this on
  int few_from_heads;     // B * HV from which such CTAs are used, as long as every CTA has an SM;
  int few_to_nodes;       // below that many heads, for trees of at most this many nodes (KV states, else one_block.cuh)
  int wide_from_heads;    // B * HV from which wide CTAs are used
  int pair_from_nodes;    // and pairs in their place, for trees of that many nodes on
  bool dependent_launch;  // start while the kernel before it ends (programmatic dependent launch, sm_90 on)
  CtaTuning narrow, precise, few, wide, pair;
};
inline constexpr int kNever = 1 << 30;
inline constexpr FusedTuning kFusedTuning[] = {
    // sm_86 and sm_89 have 99 KB of shared memory
    {80, 64, 0, 128, kNever, false, {32, 3, 1}, {32, 2, 1}, {128, 4, 1}, {128, 4, 1}, {64, 2, 1}},
    {90, 34, 16, 128, 129, true, {32, 8, 1}, {32, 8, 1}, {128, 4, 1}, {128, 2, 2, 2}, {128, 4, 2}},
    {120, 64, 0, 128, kNever, true, {32, 3, 1}, {32, 2, 1}, {128, 4, 1}, {128, 4, 1}, {64, 2, 1}},
};

constexpr const FusedTuning& fused_tuning(int architecture) {
  const FusedTuning* row = kFusedTuning;
  for (const FusedTuning& next : kFusedTuning)
    if (next.architecture <= architecture) row = &next;
  return *row;
}

// CTAs an SM for which there shall be registers: of trees of one block whose S0 streams by (as many as shared memory
// holds), and of the convolution at its most threads.
constexpr int one_block_ctas(int architecture) { return architecture >= 120 ? 1 : architecture >= 90 ? 4 : 2; }
constexpr int conv_ctas(int architecture) { return architecture >= 120 ? 2 : 3; }

}  // namespace canopy::cuda
