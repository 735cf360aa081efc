// Folding: the first 32 nodes of the root path, which all later nodes descend from, go into the state (E8), so that a
// deep chain costs no more path rows than a shallow tree (docs/kernels.md).
#pragma once

#include "cuda/tile/path_stack.cuh"
#include "cuda/tile/state.cuh"

namespace canopy::cuda {

// S <- exp(l_F - l_base) S + sum_j k_j (exp(l_F - l_j) u_j)^T for the 32 path rows of the slot, F the deepest of them.
// `base` counts them already, `ancestors` are left above it.
template <class Op, int K, int kStateParts, int kParts, class Slot>
__device__ __forceinline__ void fold(StateTile<K, kStateParts>& state, PathStack<kParts>& stack, std::uint16_t* spill,
                                     const Slot& slot, const Coefficients<kParts>& of, int base, int ancestors,
                                     int lane) {
  StateElements<K> sum;
  const float decay = of.of_value[0] * state.product_scale;
#pragma unroll
  for (int s = 0; s < K / 16; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 x{0, 0};
#pragma unroll
      for (int p = 0; p < kStateParts; ++p) {
        const float2 part = unpack<Op>(state.a[s][p][i]);
        x.x += part.x, x.y += part.y;
      }
      sum[s][i / 2][i % 2 * 2] = decay * x.x, sum[s][i / 2][i % 2 * 2 + 1] = decay * x.y;
    }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    std::uint32_t u[kParts][4];
    read_path(u, stack, spill, base - kFoldRows, tile, kFoldRows, lane);
    const float* gamma = tile ? of.of_query : of.of_key;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 by = *reinterpret_cast<const float2*>(gamma + 8 * (i / 2) + 2 * (lane % 4));
      float2 x{0, 0};
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const float2 part = unpack<Op>(u[p][i]);
        x.x += part.x, x.y += part.y;
      }
      std::uint32_t parts[kParts];
      split<Op>(parts, x.x * by.x, x.y * by.y);
#pragma unroll
      for (int p = 0; p < kParts; ++p) u[p][i] = parts[p];
    }
    const std::uint8_t* rows = (tile ? slot.queries : slot.keys) + tile_as_a<K>(lane);
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
      std::uint32_t k[4];
      load_transposed(k, rows + 32 * s);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        mma<Op>(sum[s][0], u[p], k[0], k[1]);
        mma<Op>(sum[s][1], u[p], k[2], k[3]);
      }
    }
  }
  convert_state<Op>(state, sum, false);
  if (ancestors > 0) refill(stack, spill, base, ancestors, lane);
}

}  // namespace canopy::cuda
