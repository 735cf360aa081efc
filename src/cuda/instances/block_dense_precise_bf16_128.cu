#include "cuda/block_apply.cuh"

namespace canopy::cuda {
using Shape = BlockShape<__nv_bfloat16, 128, 2>;
template __global__ void block_factor_kernel<Shape, Method::kDense>(const __grid_constant__ BlockArguments);
template __global__ void block_apply_kernel<Shape, Method::kDense>(const __grid_constant__ BlockArguments);
BlockInstance block_dense_precise_bf16_128() { return block_instance<Shape, Method::kDense>(); }
}  // namespace canopy::cuda
