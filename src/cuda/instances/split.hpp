// The split design's instances; split.cu picks by these names. One explicit instantiation of its two kernels a file.
#pragma once

#include "cuda/instances/instance.hpp"

namespace canopy::cuda {

struct SplitInstance {
  FusedInstance factors, apply;  // kernels 1 and 2; `columns` is 0 for kernel 1, which has none
};

// By the GPU's architecture, 10 * major + minor.
SplitInstance split_half_narrow_bf16_128(int), split_half_narrow_bf16_64(int),
    split_precise_narrow_bf16_128(int), split_precise_narrow_bf16_64(int);
FusedInstance split_half_wide_bf16_128(int);  // kernel 2 alone: kernel 1 is the narrow one's

}  // namespace canopy::cuda
