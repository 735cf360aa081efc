// Instances of the strategies that are not path-compressed; blocks.cu picks by these names. One explicit instantiation
// of kernels 1 and 2 a file.
#pragma once

#include "cuda/instances/instance.hpp"

namespace canopy::cuda {

struct BlockInstance {
  FusedInstance factors, apply;  // kernels 1 and 2; `columns` is 0 for kernel 1, which has none
};

BlockInstance block_dense_half_bf16_128(), block_dense_half_bf16_64(), block_dense_precise_bf16_128(),
    block_dense_precise_bf16_64();
BlockInstance block_neumann_bf16_128(), block_neumann_bf16_64(), block_squaring_bf16_128(), block_squaring_bf16_64();

}  // namespace canopy::cuda
