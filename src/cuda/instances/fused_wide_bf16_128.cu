#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"

namespace canopy::cuda {
using Shape_wide_bf16_128 = FusedShape<__nv_bfloat16, 128, 128, 2, 2, 2>;
template __global__ void fused_kernel<Shape_wide_bf16_128, 2>(const __grid_constant__ FusedArguments);
FusedInstance fused_wide_bf16_128() {
  return {reinterpret_cast<const void*>(fused_kernel<Shape_wide_bf16_128, 2>), Shape_wide_bf16_128::kThreads,
          Shape_wide_bf16_128::kColumns, sizeof(FusedShared<Shape_wide_bf16_128>)};
}
}  // namespace canopy::cuda
