// One family of CTAs with one row of the table, and nothing else: bf16 inputs, K = V = 128, half. Who includes it says
// CANOPY_TUNING_ROW, the row, and CANOPY_TILE_FAMILY: narrow, few, wide or pair (scripts/tune_tiles.py).
#include "cta.hpp"
#include "cuda/families.cuh"

namespace canopy::cuda {
namespace tiles {
using narrow = Narrow<__nv_bfloat16, 128, Form::kHalf>;
using few = Wide<__nv_bfloat16, 128, Form::kHalf, &Tuning::few>;
using wide = Wide<__nv_bfloat16, 128, Form::kHalf>;
using pair = Pair<__nv_bfloat16, 128, Form::kHalf>;
using Cta = CANOPY_TILE_FAMILY::On<CANOPY_THIS_ARCHITECTURE>;
}  // namespace tiles

template __global__ void fused_kernel<tiles::CANOPY_TILE_FAMILY>(const __grid_constant__ FusedArguments);

extern "C" __constant__ const canopy::tiles::CtaRecord canopy_cta = {
    .architecture = CANOPY_THIS_ARCHITECTURE,
    .threads = tiles::Cta::Shape::kThreads,
    .columns = tiles::Cta::Shape::kColumns,
    .heads = tiles::Cta::Shape::kHeads,
    .ctas = tiles::Cta::cta.ctas,
    .shared_bytes = sizeof(FusedShared<tiles::Cta::Shape>),
};

}  // namespace canopy::cuda
