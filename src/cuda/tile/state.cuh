// S0 as the A operand of the transposed products S0^T k: 16 value columns by K in fp16 fragments of one warp, scaled by
// a power of two so that neither large nor small states leave fp16's range.
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/rows.hpp"

namespace canopy::cuda {

template <int K>
struct StateTile {
  std::uint32_t a[K / 16][4];  // one m16n8k16 A fragment for every 16 keys
  // U, V and O of these columns are carried times a power of two; a holds S0 * value_scale / product_scale.
  float value_scale, value_unscale, product_scale;
};

// The lane's elements: of 16 s .. + 15, keys 2 (lane % 4) + {0, 1, 8, 9} of value columns lane / 4 and lane / 4 + 8.
template <int K>
using StateElements = float[K / 16][2][4];

// One loop for each form, so that all loads are under way before the first is waited for.
template <int K>
__device__ __forceinline__ void load_state(StateElements<K>& x, const Rows& state, bool vk, std::int64_t slot, int head,
                                           int column, int lane) {
  const char* base = state.of(0, head) + slot * state.sequence;
  const std::int64_t step = state.node;
  const int dtype = state.dtype, k = 2 * (lane % 4);
  if (vk && dtype == CANOPY_F32) {
    const char* from = base + (column + lane / 4) * step + 4 * k;
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = *reinterpret_cast<const float2*>(from + i / 2 * 8 * step + 4 * (16 * s + i % 2 * 8));
        x[s][i / 2][i % 2 * 2] = y.x, x[s][i / 2][i % 2 * 2 + 1] = y.y;
      }
  } else if (vk) {
    const char* from = base + (column + lane / 4) * step + 2 * k;
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t pair =
            *reinterpret_cast<const std::uint32_t*>(from + i / 2 * 8 * step + 2 * (16 * s + i % 2 * 8));
        const float2 y = dtype == CANOPY_BF16 ? unpack<__nv_bfloat16>(pair) : unpack<__half>(pair);
        x[s][i / 2][i % 2 * 2] = y.x, x[s][i / 2][i % 2 * 2 + 1] = y.y;
      }
  } else {
    const int bytes = dtype == CANOPY_F32 ? 4 : 2;
    const char* at = base + (column + lane / 4) * bytes;
    auto element = [&](int s, int i) { return at + (16 * s + k + i % 4 / 2 * 8 + i % 2) * step + i / 4 * 8 * bytes; };
    if (dtype == CANOPY_F32) {
#pragma unroll
      for (int s = 0; s < K / 16; ++s)
#pragma unroll
        for (int i = 0; i < 8; ++i) x[s][i / 4][i % 4] = *reinterpret_cast<const float*>(element(s, i));
    } else {
#pragma unroll
      for (int s = 0; s < K / 16; ++s)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const std::uint16_t bits = *reinterpret_cast<const std::uint16_t*>(element(s, i));
          x[s][i / 4][i % 4] =
              dtype == CANOPY_BF16 ? __uint_as_float(std::uint32_t{bits} << 16) : __half2float(__ushort_as_half(bits));
        }
    }
  }
}

// All lanes of the warp; the scale is the same for the 16 columns and does not depend on the tile they are part of.
template <int K>
__device__ __forceinline__ void convert_state(StateTile<K>& tile, const StateElements<K>& x) {
  float largest = 0;  // fmaxf passes over NaN, which then shows in the outputs
#pragma unroll
  for (int s = 0; s < K / 16; ++s)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(x[s][half][i]));
  // Of positive floats the larger has the larger bits.
  const std::uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
  int exponent = static_cast<int>(bits >> 23) - 127;  // largest is in [2^exponent, 2^(exponent + 1))
  if (bits == 0 || bits >= 0x7f800000u) exponent = 0;
  exponent = max(-100, min(100, exponent));
  // U grows with S0 and V: it comes down with a large state and goes up a little with a small one, whose V may still be
  // of any size below 4,094 (fp16's 65,504 / 16).
  const int value_exponent = exponent > 6 ? exponent - 6 : max(-4, min(0, exponent - 2));
  tile.value_scale = __uint_as_float((127 - value_exponent) << 23);
  tile.value_unscale = __uint_as_float((127 + value_exponent) << 23);
  exponent -= 4;  // the scaled largest is in [16, 32)
  const float scale = __uint_as_float((127 - exponent) << 23);
  tile.product_scale = __uint_as_float((127 + exponent - value_exponent) << 23);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      tile.a[s][half] = pack_half(x[s][half][0] * scale, x[s][half][1] * scale);
      tile.a[s][2 + half] = pack_half(x[s][half][2] * scale, x[s][half][3] * scale);
    }
  }
}

}  // namespace canopy::cuda
