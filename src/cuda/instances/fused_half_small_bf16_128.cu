#include "cuda/small_tree.cuh"

namespace canopy::cuda {
template __global__ void small_tree_kernel<false>(const __grid_constant__ FusedArguments);
template __global__ void small_tree_kernel<true>(const __grid_constant__ FusedArguments);
FusedInstance fused_half_small_bf16_128() { return small_tree_instance(); }
}  // namespace canopy::cuda
