// S0 as the A operand of the transposed products S0^T k: 16 value columns by K in fp16 fragments of one warp, scaled by
// a power of two so that neither large nor small states leave fp16's range.
#pragma once

#include "cuda/row.cuh"
#include "cuda/tile/ops.cuh"

namespace canopy::cuda {

// A lane holds value columns lane / 4 and lane / 4 + 8, and of each group of 32 keys the 8 from 8 * (lane % 4): the
// products' sum over keys runs in that order for states, keys and queries alike.
template <int K>
struct StateTile {
  std::uint32_t a[K / 16][4];  // one m16n8k16 A fragment for every 16 keys
  float unscale;               // a holds S0 / unscale
  float value_scale;           // U, V and O of these columns are carried times this power of two
};

// The lane's 2 x K / 4 elements as they lie in memory order of its fragments.
template <int K>
__device__ __forceinline__ void load_state(float (&x)[K / 32][2][8], const Problem& p, std::int64_t slot, int head,
                                           int column, int lane) {
  const bool vk = p.state_layout == CANOPY_STATE_VK;
  const std::int64_t base = slot * p.state.stride[1] + head * p.state.stride[2], step = p.state.stride[3];
  const int dtype = p.state.dtype;
#pragma unroll
  for (int s = 0; s < K / 32; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int v = column + lane / 4 + 8 * half, k = 32 * s + 8 * (lane % 4);
      float(&to)[8] = x[s][half];
      if (vk && dtype == CANOPY_F32) {
        const float4* from =
            reinterpret_cast<const float4*>(static_cast<const float*>(p.state.data) + base + v * step + k);
        const float4 low = from[0], high = from[1];
        to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
        to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
      } else if (vk) {
        const uint4 from =
            *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(p.state.data) + base + v * step + k);
        const std::uint32_t pair[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 y = dtype == CANOPY_BF16 ? unpack<__nv_bfloat16>(pair[i]) : unpack<__half>(pair[i]);
          to[2 * i] = y.x, to[2 * i + 1] = y.y;
        }
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) to[i] = load_float(p.state.data, dtype, base + (k + i) * step + v);
      }
    }
  }
}

// All lanes of the warp; the scale is the same for the 16 columns and does not depend on the tile they are part of.
template <int K>
__device__ __forceinline__ void convert_state(StateTile<K>& tile, const float (&x)[K / 32][2][8]) {
  float largest = 0;  // fmaxf passes over NaN, which then shows in the outputs
#pragma unroll
  for (int s = 0; s < K / 32; ++s)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[s][half][i]));
  // Of positive floats the larger has the larger bits.
  const std::uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
  int exponent = static_cast<int>(bits >> 23) - 127;  // largest is in [2^exponent, 2^(exponent + 1))
  if (bits == 0 || bits >= 0x7f800000u) exponent = 0;
  exponent = max(-100, min(100, exponent));
  // U grows with S0 and V: it comes down with a large state and goes up a little with a small one, whose V may still be
  // of any size below 4,094 (fp16's 65,504 / 16).
  const int value_exponent = exponent > 6 ? exponent - 6 : max(-4, min(0, exponent - 2));
  tile.value_scale = __uint_as_float((127 - value_exponent) << 23);
  exponent -= 4;  // the scaled largest is in [16, 32)
  const float scale = __uint_as_float((127 - exponent) << 23);
  tile.unscale = __uint_as_float((127 + exponent) << 23);
#pragma unroll
  for (int s = 0; s < K / 32; ++s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float(&y)[8] = x[s][half];
      tile.a[2 * s][half] = pack_half(y[0] * scale, y[1] * scale);
      tile.a[2 * s][2 + half] = pack_half(y[2] * scale, y[3] * scale);
      tile.a[2 * s + 1][half] = pack_half(y[4] * scale, y[5] * scale);
      tile.a[2 * s + 1][2 + half] = pack_half(y[6] * scale, y[7] * scale);
    }
  }
}

}  // namespace canopy::cuda
