#include "cuda/one_block.cuh"

namespace canopy::cuda {
using OneBlock_32_bf16_128 = OneBlockShape<32, 1>;
template __global__ void one_block_kernel<OneBlock_32_bf16_128, false>(const __grid_constant__ FusedArguments);
template __global__ void one_block_kernel<OneBlock_32_bf16_128, true>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_one_block_32_bf16_128() { return one_block_instance<OneBlock_32_bf16_128>(); }
}  // namespace canopy::cuda
