// Tile choices, in one table: what a CTA of the fused kernel works on, by batch. Measured on an H200 (NOTES.md); other
// architectures use the last row until somebody measures them.
#pragma once

namespace canopy::cuda {

// A narrow CTA takes 32 value columns of a head (many CTAs: small batches), a wide one all 128 (each key row is loaded
// and prepared once a head: large batches).
struct FusedTuning {
  int architecture;       // 10 * major + minor; 0: any other
  int wide_from_heads;    // B * HV from which wide CTAs are used
  bool dependent_launch;  // start while the kernel before it ends (programmatic dependent launch, sm_90 on)
};
inline constexpr FusedTuning kFusedTuning[] = {
    {90, 128, true},
    {80, 128, false},
    {0, 128, true},
};

inline const FusedTuning& fused_tuning(int architecture) {
  const FusedTuning* row = kFusedTuning;
  while (row->architecture != 0 && row->architecture != architecture) ++row;
  return *row;
}

}  // namespace canopy::cuda
