#include "cuda/families.cuh"

namespace canopy::cuda {
using Family_precise_f16_128 = Narrow<__half, 128, Form::kPrecise>;
template __global__ void fused_kernel<Family_precise_f16_128>(const __grid_constant__ FusedArguments);
FusedInstance fused_precise_f16_128(int architecture) { return instance<Family_precise_f16_128>(architecture); }
}  // namespace canopy::cuda
