// Tile choices, in one table: what a CTA of the fused kernel is made of and when it is used, by architecture. Measured
// on an H200 (NOTES.md); the other rows are chosen to fit and have not been measured.
#pragma once

namespace canopy::cuda {

// A narrow CTA takes 32 value columns of a head (many CTAs: small batches), a wide one all 128 (each key row is loaded
// and prepared once a head: large batches).
struct FusedTuning {
  int architecture;                 // 10 * major + minor, from this on
  int wide_from_heads;              // B * HV from which wide CTAs are used
  bool dependent_launch;            // start while the kernel before it ends (programmatic dependent launch, sm_90 on)
  int narrow_prep_warps;            // each with one slot of the ring
  int precise_prep_warps;           // likewise
  int wide_prep_warps, wide_depth;  // depth: slots of the ring that each has
  int wide_ctas;                    // that are to fit an SM by registers
};
inline constexpr FusedTuning kFusedTuning[] = {
    {80, 128, false, 3, 2, 2, 2, 1},
    {90, 128, true, 8, 8, 2, 2, 2},
    {120, 128, true, 3, 2, 2, 2, 1},  // 99 KB of shared memory
};

constexpr const FusedTuning& fused_tuning(int architecture) {
  const FusedTuning* row = kFusedTuning;
  for (const FusedTuning& next : kFusedTuning)
    if (next.architecture <= architecture) row = &next;
  return *row;
}

}  // namespace canopy::cuda
