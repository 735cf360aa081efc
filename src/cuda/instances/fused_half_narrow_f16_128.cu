#include "cuda/families.cuh"

namespace canopy::cuda {
using Family_half_narrow_f16_128 = Narrow<__half, 128, Form::kHalf>;
template __global__ void fused_kernel<Family_half_narrow_f16_128>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_narrow_f16_128(int architecture) { return instance<Family_half_narrow_f16_128>(architecture); }
}  // namespace canopy::cuda
