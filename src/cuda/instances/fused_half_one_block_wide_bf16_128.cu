#include "cuda/one_block.cuh"

namespace canopy::cuda {
using OneBlock_wide_bf16_128 = OneBlockShape<128, 2>;
template __global__ void one_block_kernel<OneBlock_wide_bf16_128, false>(const __grid_constant__ FusedArguments);
template __global__ void one_block_kernel<OneBlock_wide_bf16_128, true>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_one_block_wide_bf16_128() { return one_block_instance<OneBlock_wide_bf16_128>(); }
}  // namespace canopy::cuda
