// S0 as the A operand of the transposed products S0^T k: 16 value columns by K in 16-bit fragments of one warp. States
// that fp16 holds badly, large or small ones, are scaled by a power of two.
#pragma once

#include "cuda/row.cuh"
#include "cuda/tile/ops.cuh"
#include "cuda/tile/rows.hpp"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

template <int K, int kParts>
struct StateTile {
  std::uint32_t a[K / 16][kParts][4];  // an m16n8k16 A fragment for every 16 keys
  // U, V and O of these columns are carried times a power of two; a holds S0 * value_scale / product_scale. Mostly all
  // are 1, and `scaled` is false.
  float value_scale, value_unscale, product_scale;
  bool scaled;
};

// The lane's elements, [s][n][c] in accumulator layout: value column lane / 4 (+ 8 for c >= 2), key 16 s + 8 n +
// 2 (lane % 4) (+ 1 for odd c).
template <int K>
using StateElements = float[K / 16][2][4];

// S0 of a column group as it lies in memory, VK, on its way to fragments; rows padded against bank conflicts.
template <int K>
struct alignas(16) StateStage {
  std::uint8_t rows[16][4 * K + 32];
};

// One loop for each form, so that all loads are under way before the first is waited for.
template <int K>
__device__ __forceinline__ void load_state(StateElements<K>& x, const Rows& state, bool vk, std::int64_t slot, int head,
                                           int column, int lane) {
  const char* base = state.of(0, head) + slot * state.sequence;
  const std::int64_t step = state.node;
  const int dtype = state.dtype, k = 2 * (lane % 4);
  if (__builtin_expect(vk && dtype == CANOPY_F32, 1)) {
    const char* from = base + (column + lane / 4) * step + 4 * k;
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = *reinterpret_cast<const float2*>(from + i % 2 * 8 * step + 4 * (16 * s + i / 2 * 8));
        x[s][i / 2][i % 2 * 2] = y.x, x[s][i / 2][i % 2 * 2 + 1] = y.y;
      }
  } else if (vk) {
    const char* from = base + (column + lane / 4) * step + 2 * k;
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t pair =
            *reinterpret_cast<const std::uint32_t*>(from + i % 2 * 8 * step + 2 * (16 * s + i / 2 * 8));
        const float2 y = dtype == CANOPY_BF16 ? unpack<__nv_bfloat16>(pair) : unpack<__half>(pair);
        x[s][i / 2][i % 2 * 2] = y.x, x[s][i / 2][i % 2 * 2 + 1] = y.y;
      }
  } else {
    const int bytes = dtype == CANOPY_F32 ? 4 : 2;
    const char* at = base + (column + lane / 4) * bytes;
    auto element = [&](int s, int i) { return at + (16 * s + i / 4 * 8 + k + i % 2) * step + i % 4 / 2 * 8 * bytes; };
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

// Of a VK state, whole rows: x[i / 2][i % 2] has keys 4 lane .. + 3 of value column i. A load asks for 4 lines of
// memory where one of load_state() asks for 8, and it is lines that the memory pipe has to look up one by one.
template <int K>
__device__ __forceinline__ void load_state_rows(StateElements<K>& x, const Rows& state, std::int64_t slot, int head,
                                                int column, int lane) {
  static_assert(K == 128, "a row to a warp");
  const int dtype = state.dtype;
  const char* from = state.of(0, head) + slot * state.sequence + std::int64_t{column} * state.node;
  if (__builtin_expect(dtype == CANOPY_F32, 1)) {
    from += 16 * lane;
#pragma unroll
    for (int i = 0; i < 16; ++i, from += state.node) {
      const float4 y = *reinterpret_cast<const float4*>(from);
      x[i / 2][i % 2][0] = y.x, x[i / 2][i % 2][1] = y.y, x[i / 2][i % 2][2] = y.z, x[i / 2][i % 2][3] = y.w;
    }
  } else {
    from += 8 * lane;
#pragma unroll
    for (int i = 0; i < 16; ++i, from += state.node) {
      const uint2 y = *reinterpret_cast<const uint2*>(from);
      const bool bf16 = dtype == CANOPY_BF16;
      const float2 low = bf16 ? unpack<__nv_bfloat16>(y.x) : unpack<__half>(y.x),
                   high = bf16 ? unpack<__nv_bfloat16>(y.y) : unpack<__half>(y.y);
      x[i / 2][i % 2][0] = low.x, x[i / 2][i % 2][1] = low.y, x[i / 2][i % 2][2] = high.x, x[i / 2][i % 2][3] = high.y;
    }
  }
}

// The same by way of shared memory, for a VK state: rows first .. first + rows - 1 of the 16, row by row, and then the
// lane's elements.
template <int K>
__device__ __forceinline__ void start_state(StateStage<K>& stage, const Rows& state, std::int64_t slot, int head,
                                            int column, int first, int rows, int lane) {
  const int chunks = state.dtype == CANOPY_F32 ? K / 4 : K / 8;
  const char* from = state.of(0, head) + slot * state.sequence + std::int64_t{column + first} * state.node;
  if (K == 128 && __builtin_expect(chunks == 32, 1)) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
      copy_async(stage.rows[first + i] + 16 * lane, from + std::int64_t{i} * state.node + 16 * lane, true);
  } else {
    for (int i = lane / chunks; i < rows; i += 32 / chunks)
      copy_async(stage.rows[first + i] + lane % chunks * 16, from + std::int64_t{i} * state.node + lane % chunks * 16,
                 true);
  }
}
template <int K>
__device__ __forceinline__ void read_state(StateElements<K>& x, const StateStage<K>& stage, int dtype, int lane) {
  const std::uint8_t* from = stage.rows[lane / 4];
  const int next = 8 * sizeof(stage.rows[0]), k = 2 * (lane % 4);  // eight rows on
  auto each = [&](auto&& element) {
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = element(from + i % 2 * next, 16 * s + i / 2 * 8 + k);
        x[s][i / 2][i % 2 * 2] = y.x, x[s][i / 2][i % 2 * 2 + 1] = y.y;
      }
  };
  if (__builtin_expect(dtype == CANOPY_F32, 1)) {
    each([](const std::uint8_t* row, int key) { return *reinterpret_cast<const float2*>(row + 4 * key); });
  } else {
    each([&](const std::uint8_t* row, int key) {
      const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(row + 2 * key);
      return dtype == CANOPY_BF16 ? unpack<__nv_bfloat16>(pair) : unpack<__half>(pair);
    });
  }
}

template <class Op, int K, int kParts>
__device__ __forceinline__ void pack_state(StateTile<K, kParts>& tile, const StateElements<K>& x) {
#pragma unroll
  for (int s = 0; s < K / 16; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t parts[kParts];
      split<Op>(parts, x[s][i / 2][i % 2 * 2], x[s][i / 2][i % 2 * 2 + 1]);
#pragma unroll
      for (int p = 0; p < kParts; ++p) tile.a[s][p][i] = parts[p];
    }
}

// From rows, by way of kRowsStaged bytes of the warp, 8 value columns at a time.
inline constexpr int kRowsStaged = 8 * kPitch<128>;
template <class Op, int K, int kParts>
__device__ __forceinline__ void pack_state(StateTile<K, kParts>& tile, const StateElements<K>& x, std::uint8_t* staging,
                                           int lane) {
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      __syncwarp();
#pragma unroll
      for (int row = 0; row < 8; ++row) {
        const float(&y)[4] = x[4 * high + row / 2][row % 2];
        std::uint32_t low[kParts], next[kParts];
        split<Op>(low, y[0], y[1]), split<Op>(next, y[2], y[3]);
        *reinterpret_cast<uint2*>(staging + row * kPitch<K> + 8 * lane) = {low[part], next[part]};
      }
      __syncwarp();
#pragma unroll
      for (int s = 0; s < K / 16; s += 2) {
        std::uint32_t a[4];
        load_matrices(a, staging + lane % 8 * kPitch<K> + 32 * s + lane / 8 * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) tile.a[s + i / 2][part][i % 2 * 2 + high] = a[i];
      }
    }
}

// Of a warp's fragments: the largest exponent, -127 if all are zero, 128 if one is not finite.
template <int K, int kParts>
__device__ __forceinline__ int largest_exponent(const StateTile<K, kParts>& tile) {
  __half2 largest = __floats2half2_rn(0.f, 0.f);  // __hmax2 passes over NaN, which then shows in the outputs
#pragma unroll
  for (int s = 0; s < K / 16; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      largest = __hmax2(largest, __habs2(*reinterpret_cast<const __half2*>(&tile.a[s][0][i])));
  const float both = fmaxf(__low2float(largest), __high2float(largest));
  return static_cast<int>(__reduce_max_sync(~0u, __float_as_uint(both)) >> 23) - 127;
}

// Whether fp16 holds a state well whose largest exponent that is.
__device__ __forceinline__ bool fp16_holds_state(int exponent) { return exponent >= -6 && exponent < 8; }

// Sets a tile's scales for S0 with the largest |element| of these bits, and returns what S0 is to be multiplied by; 0
// if S0 is zero and stays as it is. `first`: the value scale is still to be chosen; later it is fixed, since U is
// carried with it.
template <int K, int kParts>
__device__ __forceinline__ float scale_state(StateTile<K, kParts>& tile, std::uint32_t largest, bool first) {
  if (largest == 0) return 0;
  int exponent = static_cast<int>(largest >> 23) - 127;
  if (largest >= 0x7f800000u) exponent = 0;
  exponent = max(-100, min(100, exponent));
  // U grows with S0 and V: it comes down with a large state and goes up a little with a small one, whose V may still be
  // of any size below 4,094 (fp16's 65,504 / 16).
  const int value_exponent = !first ? 0 : exponent > 6 ? exponent - 6 : max(-4, min(0, exponent - 2));
  if (first) {
    tile.value_scale = __uint_as_float((127 - value_exponent) << 23);
    tile.value_unscale = __uint_as_float((127 + value_exponent) << 23);
  }
  exponent -= 4;  // the scaled largest is in [16, 32)
  tile.product_scale = __uint_as_float((127 + exponent - value_exponent) << 23);
  tile.scaled = true;
  return __uint_as_float((127 - exponent) << 23);
}

// All lanes of the warp; the scale is the same for the 16 columns and does not depend on the tile they are part of.
// x is used up. `staging`: what pack_state() takes besides where x are rows.
template <class Op, int K, int kParts, class... Staging>
__device__ __forceinline__ void convert_state(StateTile<K, kParts>& tile, StateElements<K>& x, bool first,
                                              Staging... staging) {
  pack_state<Op>(tile, x, staging...);
  if (first) {
    tile.value_scale = tile.value_unscale = 1;
    tile.scaled = false;
  }
  tile.product_scale = 1;
  if constexpr (std::is_same_v<Op, __half>) {
    if (__builtin_expect(fp16_holds_state(largest_exponent(tile)), 1)) return;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < K / 2; ++i) largest = fmaxf(largest, fabsf(x[i / 8][i / 4 % 2][i % 4]));
    const float scale = scale_state(tile, __reduce_max_sync(~0u, __float_as_uint(largest)), first);
    if (scale == 0) return;
#pragma unroll
    for (int i = 0; i < K / 2; ++i) x[i / 8][i / 4 % 2][i % 4] *= scale;
    pack_state<Op>(tile, x, staging...);
  }
}

// From a stage, without all of it in registers at once.
template <bool kScale, int K>
__device__ __forceinline__ void pack_staged(StateTile<K, 1>& tile, const StateStage<K>& stage, int dtype, float scale,
                                            int lane) {
  const std::uint8_t* from = stage.rows[lane / 4];
  const int next = 8 * sizeof(stage.rows[0]), k = 2 * (lane % 4);  // eight rows on
  auto each = [&](auto&& element) {
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float2 y = element(from + i % 2 * next, 16 * s + i / 2 * 8 + k);
        if constexpr (kScale) y.x *= scale, y.y *= scale;
        tile.a[s][0][i] = pack_half(y.x, y.y);
      }
  };
  if (__builtin_expect(dtype == CANOPY_F32, 1))
    each([](const std::uint8_t* row, int key) { return *reinterpret_cast<const float2*>(row + 4 * key); });
  else
    each([&](const std::uint8_t* row, int key) {
      const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(row + 2 * key);
      return dtype == CANOPY_BF16 ? unpack<__nv_bfloat16>(pair) : unpack<__half>(pair);
    });
}
// Bits of the largest |element|; NaN is passed over, as above.
template <int K>
__device__ __noinline__ std::uint32_t largest_staged(const StateStage<K>& stage, int dtype, int lane) {
  float largest = 0;
  for (int row = 0; row < 16; ++row)
    for (int key = lane; key < K; key += 32) largest = fmaxf(largest, fabsf(load_float(stage.rows[row], dtype, key)));
  return __reduce_max_sync(~0u, __float_as_uint(largest));
}
template <int K>
__device__ __forceinline__ void convert_staged(StateTile<K, 1>& tile, const StateStage<K>& stage, int dtype, int lane) {
  pack_staged<false>(tile, stage, dtype, 1, lane);
  tile.value_scale = tile.value_unscale = tile.product_scale = 1;
  tile.scaled = false;
  if (__builtin_expect(fp16_holds_state(largest_exponent(tile)), 1)) return;
  const float scale = scale_state(tile, largest_staged(stage, dtype, lane), true);
  if (scale != 0) pack_staged<true>(tile, stage, dtype, scale, lane);
}

}  // namespace canopy::cuda
