#include "cuda/families.cuh"

namespace canopy::cuda {
using Family_precise_f16_64 = Narrow<__half, 64, Form::kPrecise>;
template __global__ void fused_kernel<Family_precise_f16_64>(const __grid_constant__ FusedArguments);
FusedInstance fused_precise_f16_64(int architecture) { return instance<Family_precise_f16_64>(architecture); }
}  // namespace canopy::cuda
