// The fused kernel's instances; fused.cu picks by these names. One explicit instantiation a file (families.cuh).
#pragma once

#include <cstddef>

#include "cuda/dependent.cuh"

namespace canopy::cuda {

struct FusedInstance {
  // `arguments`: FusedArguments, or ExactArguments (fp32).
  cudaError_t (*launch)(const FusedInstance&, dim3 grid, cudaStream_t, bool dependently, const void* arguments);
  int threads, columns;
  std::size_t shared_bytes;
  int heads = 1;  // value heads a CTA
};

template <class Arguments, void (*kKernel)(Arguments)>
cudaError_t launch_instance(const FusedInstance& instance, dim3 grid, cudaStream_t stream, bool dependently,
                            const void* arguments) {
  return launch_kernel(kKernel, grid, instance.threads, instance.shared_bytes, stream, dependently,
                       *static_cast<const Arguments*>(arguments));
}

// By the GPU's architecture, 10 * major + minor.
FusedInstance fused_half_narrow_bf16_128(int), fused_half_narrow_bf16_64(int), fused_half_narrow_f16_128(int),
    fused_half_narrow_f16_64(int), fused_half_narrow_f32_128(int), fused_half_narrow_f32_64(int);
FusedInstance fused_half_few_bf16_128(int), fused_half_wide_bf16_128(int), fused_half_wide_f16_128(int),
    fused_half_pair_bf16_128(int);
FusedInstance fused_half_one_block_32_bf16_128(), fused_half_one_block_64_bf16_128(),
    fused_half_one_block_wide_bf16_128();
FusedInstance fused_half_small_bf16_128();
FusedInstance fused_precise_bf16_128(int), fused_precise_bf16_64(int), fused_precise_f16_128(int),
    fused_precise_f16_64(int);
FusedInstance fused_fast_narrow_bf16_128(int), fused_fast_narrow_bf16_64(int), fused_fast_wide_bf16_128(int);
FusedInstance fused_fp32_64(), fused_fp32_128();

}  // namespace canopy::cuda
