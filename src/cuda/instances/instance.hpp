// One explicit instantiation of the fused kernel a file; fused.cu picks by these names.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace canopy::cuda {

struct FusedInstance {
  const void* kernel;
  int threads, columns;
  std::size_t shared_bytes;
};
FusedInstance fused_narrow_bf16_128(), fused_narrow_bf16_64(), fused_narrow_f16_128(), fused_narrow_f16_64(),
    fused_narrow_f32_128(), fused_narrow_f32_64(), fused_wide_bf16_128(), fused_wide_f16_128(), fused_fp32_64(),
    fused_fp32_128();

}  // namespace canopy::cuda
