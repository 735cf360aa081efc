#include "cuda/block_apply.cuh"

namespace canopy::cuda {
using Blocks_dense_half_bf16_64 = BlockShape<__nv_bfloat16, 64, 1>;
template __global__ void block_factor_kernel<Blocks_dense_half_bf16_64, Method::kDense>(
    const __grid_constant__ BlockArguments);
template __global__ void block_apply_kernel<Blocks_dense_half_bf16_64, Method::kDense>(
    const __grid_constant__ BlockArguments);
BlockInstance block_dense_half_bf16_64() { return block_instance<Blocks_dense_half_bf16_64, Method::kDense>(); }
}  // namespace canopy::cuda
