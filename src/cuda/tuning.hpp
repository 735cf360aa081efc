// Tile choices, in one table: what the CTAs of the kernels are made of and when they are used, by architecture. The row
// of sm_90 was measured on an H200 (NOTES.md); the others are chosen to fit and have not been measured. On a GPU of
// another kind `make tune-tiles` measures what is worth trying for narrow, few, wide and pair.
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

// What has a value here has been changed for no architecture.
struct Tuning {
  int architecture;  // 10 * major + minor, from this on

  // The fused kernel. A narrow CTA takes 32 value columns of a head (many CTAs: one sequence), a wide one all 128 (each
  // key row is loaded and prepared once a head). `few` are wide CTAs that have an SM each. A pair CTA takes two value
  // heads of a key head.
  int few_from_heads;     // B * HV from which such CTAs are used, as long as every CTA has an SM;
  int few_to_nodes;       // below that many heads, for trees of at most so many nodes (KV states, else one_block.cuh)
  int wide_from_heads;    // B * HV from which wide CTAs are used
  int pair_from_nodes;    // and pairs in their place, for trees of that many nodes on
  bool dependent_launch;  // start while the kernel before it ends (programmatic dependent launch, sm_90 on)
  CtaTuning narrow, precise, few, wide, pair;

  // From here on `ctas` is how many are to fit an SM by registers. Trees of one block whose S0 streams by: as many as
  // shared memory holds.
  int one_block_ctas;

  // Split's second kernel, its one prep warp the carrier; as many slots as 99 KB hold.
  CtaTuning split_wide;
  CtaTuning split_narrow = {32, 1, 3}, split_precise = {32, 1, 2};

  // Serial: CTAs of 64 columns where there are so many of them at least, else of 32 with an SM to themselves.
  int serial_wide_from_ctas = 128, serial_wide_ctas = 3;
  // Hybrid: warps that take chains in turn.
  int hybrid_warps = 6, hybrid_ctas = 2;
  // Commit, of 64 columns: as many as shared memory holds.
  int commit_ctas;
  // The convolution at its most threads, and in CTAs of a warp; its threads where CTAs are many, for trees to 64 nodes and
  // for larger ones.
  int conv_ctas, conv_warp_ctas = 16;
  int conv_threads = 64, conv_large_threads = 128;
};
inline constexpr int kNever = 1 << 30;
// clang-format off
inline constexpr Tuning kTuning[] = {
#ifdef CANOPY_TUNING_ROW  // one to try, whatever the architecture (scripts/tune_tiles.py)
    CANOPY_TUNING_ROW
#else
    // sm_86 and sm_89 have 99 KB of shared memory
    {.architecture = 80,
     .few_from_heads = 64, .few_to_nodes = 0, .wide_from_heads = 128, .pair_from_nodes = kNever,
     .dependent_launch = false,
     .narrow = {32, 3, 1}, .precise = {32, 2, 1}, .few = {128, 4, 1}, .wide = {128, 4, 1}, .pair = {64, 2, 1},
     .one_block_ctas = 2, .split_wide = {128, 1, 4}, .commit_ctas = 2, .conv_ctas = 3},
    {.architecture = 90,
     .few_from_heads = 34, .few_to_nodes = 16, .wide_from_heads = 128, .pair_from_nodes = 129,
     .dependent_launch = true,
     .narrow = {32, 8, 1}, .precise = {32, 8, 1}, .few = {128, 4, 1}, .wide = {128, 2, 2, 2}, .pair = {128, 4, 2},
     .one_block_ctas = 4, .split_wide = {128, 1, 4, 2}, .commit_ctas = 3, .conv_ctas = 3},
    {.architecture = 120,
     .few_from_heads = 64, .few_to_nodes = 0, .wide_from_heads = 128, .pair_from_nodes = kNever,
     .dependent_launch = true,
     .narrow = {32, 3, 1}, .precise = {32, 2, 1}, .few = {128, 4, 1}, .wide = {128, 4, 1}, .pair = {64, 2, 1},
     .one_block_ctas = 1, .split_wide = {128, 1, 4}, .commit_ctas = 2, .conv_ctas = 2},
#endif
};
// clang-format on

constexpr const Tuning& tuning_of(int architecture) {
  const Tuning* row = kTuning;
  for (const Tuning& next : kTuning)
    if (next.architecture <= architecture) row = &next;
  return *row;
}

}  // namespace canopy::cuda
