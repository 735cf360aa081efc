#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"

namespace canopy::cuda {
using Shape_narrow_f32_64 = FusedShape<float, 64, 32, 1, 5, 1>;
template __global__ void fused_kernel<Shape_narrow_f32_64, 1>(const __grid_constant__ FusedArguments);
FusedInstance fused_narrow_f32_64() {
  return {reinterpret_cast<const void*>(fused_kernel<Shape_narrow_f32_64, 1>), Shape_narrow_f32_64::kThreads,
          Shape_narrow_f32_64::kColumns, sizeof(FusedShared<Shape_narrow_f32_64>)};
}
}  // namespace canopy::cuda
