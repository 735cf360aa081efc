#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"

namespace canopy::cuda {
using Shape_narrow_f32_128 = FusedShape<float, 128, 32, 1, 5, 1>;
template __global__ void fused_kernel<Shape_narrow_f32_128, 1>(const __grid_constant__ FusedArguments);
FusedInstance fused_narrow_f32_128() {
  return {reinterpret_cast<const void*>(fused_kernel<Shape_narrow_f32_128, 1>), Shape_narrow_f32_128::kThreads,
          Shape_narrow_f32_128::kColumns, sizeof(FusedShared<Shape_narrow_f32_128>)};
}
}  // namespace canopy::cuda
