#include "cuda/block_apply.cuh"

namespace canopy::cuda {
using Blocks_dense_precise_bf16_128 = BlockShape<__nv_bfloat16, 128, 2>;
template __global__ void block_factor_kernel<Blocks_dense_precise_bf16_128, Method::kDense>(
    const __grid_constant__ BlockArguments);
template __global__ void block_apply_kernel<Blocks_dense_precise_bf16_128, Method::kDense>(
    const __grid_constant__ BlockArguments);
BlockInstance block_dense_precise_bf16_128() { return block_instance<Blocks_dense_precise_bf16_128, Method::kDense>(); }
}  // namespace canopy::cuda
