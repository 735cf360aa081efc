#include "cuda/split.cuh"

namespace canopy::cuda {
using Split_half_wide_bf16_128 = SplitWide<__nv_bfloat16, 128, Form::kHalf>;
template __global__ void split_apply_kernel<Split_half_wide_bf16_128>(const __grid_constant__ SplitArguments);
FusedInstance split_half_wide_bf16_128(int architecture) {
  return split_apply_instance<Split_half_wide_bf16_128>(architecture);
}
}  // namespace canopy::cuda
