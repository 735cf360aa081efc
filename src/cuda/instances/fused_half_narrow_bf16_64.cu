#include "cuda/families.cuh"

namespace canopy::cuda {
using Family_half_narrow_bf16_64 = Narrow<__nv_bfloat16, 64, Form::kHalf>;
template __global__ void fused_kernel<Family_half_narrow_bf16_64>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_narrow_bf16_64(int architecture) { return instance<Family_half_narrow_bf16_64>(architecture); }
}  // namespace canopy::cuda
