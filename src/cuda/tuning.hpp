// Tile choices, in one table: what a CTA of the fused kernel is made of and when it is used, by architecture. The row
// of sm_90 was measured on an H200 (NOTES.md), but for `pair`; the others are chosen to fit and have not been measured.
#pragma once

namespace canopy::cuda {

struct CtaTuning {
  int columns;               // value columns of a head
  int prep_warps, depth;     // depth: slots of the ring that each has
  int ctas = 1;              // that are to fit an SM by registers
  int prep_registers = 0;    // of a thread once the roles part ways (setmaxnreg: sm_90a, warps of a role in fours);
  int solver_registers = 0;  // 0: as it was launched
};

// A narrow CTA takes 32 value columns of a head (many CTAs: small batches), a wide one all 128 (each key row is loaded
// and prepared once a head: large batches). A pair CTA takes two value heads of a key head.
struct FusedTuning {
  int architecture;       // 10 * major + minor, from this on
  int wide_from_heads;    // B * HV from which wide CTAs are used
  bool dependent_launch;  // start while the kernel before it ends (programmatic dependent launch, sm_90 on)
  CtaTuning narrow, precise, wide, pair;
};
inline constexpr FusedTuning kFusedTuning[] = {
    {80, 128, false, {32, 3, 1}, {32, 2, 1}, {128, 2, 2}, {64, 2, 1}},  // sm_86 and sm_89 have 99 KB of shared memory
    {90, 128, true, {32, 8, 1}, {32, 8, 1}, {128, 2, 2, 2}, {128, 4, 2}},
    {120, 128, true, {32, 3, 1}, {32, 2, 1}, {128, 2, 2}, {64, 2, 1}},
};

constexpr const FusedTuning& fused_tuning(int architecture) {
  const FusedTuning* row = kFusedTuning;
  for (const FusedTuning& next : kFusedTuning)
    if (next.architecture <= architecture) row = &next;
  return *row;
}

}  // namespace canopy::cuda
