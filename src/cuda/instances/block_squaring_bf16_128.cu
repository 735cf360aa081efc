#include "cuda/block_apply.cuh"

namespace canopy::cuda {
using Shape = BlockShape<__nv_bfloat16, 128, 2>;
template __global__ void block_factor_kernel<Shape, Method::kSquaring>(const __grid_constant__ BlockArguments);
template __global__ void block_apply_kernel<Shape, Method::kSquaring>(const __grid_constant__ BlockArguments);
BlockInstance block_squaring_bf16_128() { return block_instance<Shape, Method::kSquaring>(); }
}  // namespace canopy::cuda
