#include "cuda/families.cuh"

namespace canopy::cuda {
using Family_half_few_bf16_128 = Wide<__nv_bfloat16, 128, Form::kHalf, &Tuning::few>;
template __global__ void fused_kernel<Family_half_few_bf16_128>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_few_bf16_128(int architecture) { return instance<Family_half_few_bf16_128>(architecture); }
}  // namespace canopy::cuda
