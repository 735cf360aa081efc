#include "cuda/block_apply.cuh"

namespace canopy::cuda {
using Blocks_neumann_bf16_128 = BlockShape<__nv_bfloat16, 128, 2>;
template __global__ void block_factor_kernel<Blocks_neumann_bf16_128, Method::kNeumann>(
    const __grid_constant__ BlockArguments);
template __global__ void block_apply_kernel<Blocks_neumann_bf16_128, Method::kNeumann>(
    const __grid_constant__ BlockArguments);
BlockInstance block_neumann_bf16_128() { return block_instance<Blocks_neumann_bf16_128, Method::kNeumann>(); }
}  // namespace canopy::cuda
