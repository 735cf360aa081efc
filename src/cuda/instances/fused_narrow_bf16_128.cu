#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"

namespace canopy::cuda {
using Shape_narrow_bf16_128 = FusedShape<__nv_bfloat16, 128, 32, 1, 5, 1>;
template __global__ void fused_kernel<Shape_narrow_bf16_128, 1>(const __grid_constant__ FusedArguments);
FusedInstance fused_narrow_bf16_128() {
  return {reinterpret_cast<const void*>(fused_kernel<Shape_narrow_bf16_128, 1>), Shape_narrow_bf16_128::kThreads,
          Shape_narrow_bf16_128::kColumns, sizeof(FusedShared<Shape_narrow_bf16_128>)};
}
}  // namespace canopy::cuda
