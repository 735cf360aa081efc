#include "cuda/split.cuh"

namespace canopy::cuda {
using Split_half_narrow_bf16_64 = SplitNarrow<__nv_bfloat16, 64, Form::kHalf>;
template __global__ void split_factor_kernel<Split_half_narrow_bf16_64>(const __grid_constant__ SplitArguments);
template __global__ void split_apply_kernel<Split_half_narrow_bf16_64>(const __grid_constant__ SplitArguments);
SplitInstance split_half_narrow_bf16_64(int architecture) {
  return split_instance<Split_half_narrow_bf16_64>(architecture);
}
}  // namespace canopy::cuda
