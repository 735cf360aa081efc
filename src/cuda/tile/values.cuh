// Value-side tiles of one warp's 16 columns: V rows in, O and U rows out. Tiles hold 16 nodes by 16 values.
#pragma once

#include "canopy/problem.hpp"
#include "cuda/tile/ops.cuh"
#include "cuda/tile/shape.cuh"

namespace canopy::cuda {

// The 16 bytes of a row of values that are the lane's.
template <class Shape>
__device__ __forceinline__ int value_chunk(int lane) {
  return lane % (Shape::kValueBytes / 16) * 16;
}

// Starts the copy of a warp's columns of a block. `order` gives the node of the block's row r, `rows` is how many there
// are; the others become zeros. `from` points at the head, column and the lane's 16 bytes (value_chunk()).
template <class Shape>
__device__ __forceinline__ void start_values(std::uint8_t* tile, std::uint64_t* loaded, const char* from,
                                             std::uint32_t step, const std::uint8_t* order, int rows, int lane) {
  constexpr int chunks = Shape::kValueBytes / 16, at_once = 32 / chunks;
  const int row0 = lane / chunks;
  tile += row0 * Shape::kValuePitch + value_chunk<Shape>(lane), order += row0, rows -= row0;
#pragma unroll
  for (int row = 0; row < 16; row += at_once) {
    const std::uint32_t node = order[row];
    copy_async(tile + row * Shape::kValuePitch, from + std::uint64_t{row < rows ? node : 0} * step, row < rows);
  }
  barrier_arrive_async(loaded);
}

// Column group m of the tile in transposed accumulator layout: [n][c], value lane / 4 (+ 8 for c >= 2), node 8 n +
// 2 (lane % 4) (+ 1 for odd c).
template <class Shape>
__device__ __forceinline__ void read_values(float (&v)[2][4], const std::uint8_t* tile, int m, int lane) {
  using Input = typename Shape::Input;
  if constexpr (sizeof(Input) == 2) {
    std::uint32_t x[4];
    load_transposed(x, tile + ((lane / 16) * 8 + lane % 8) * Shape::kValuePitch + 32 * m + lane / 8 % 2 * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 y = unpack<Input>(x[i]);
      v[i / 2][i % 2 * 2] = y.x, v[i / 2][i % 2 * 2 + 1] = y.y;
    }
  } else {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        v[n][c] = *reinterpret_cast<const float*>(tile + (8 * n + 2 * (lane % 4) + c % 2) * Shape::kValuePitch +
                                                  64 * m + (lane / 4 + 8 * (c / 2)) * 4);
  }
}

// Tiles in that layout to the rows of a tensor, kTiles column groups of 16, through `stage` (16 * kStageStride floats
// of this warp). `out` points at the row of the lane's node, lane / 2 of the block, and the columns; nothing is stored
// where it is null. Like: the type that dtype mostly is.
template <class Like, int kTiles>
__device__ __forceinline__ void write_tiles(float* stage, const float (&x)[kTiles][2][4], char* out, int dtype,
                                            int lane) {
  constexpr int like = std::is_same_v<Like, float>           ? CANOPY_F32
                       : std::is_same_v<Like, __nv_bfloat16> ? CANOPY_BF16
                                                             : CANOPY_F16;
  if (like != CANOPY_F32 && __builtin_expect(dtype == like, 1)) {
    std::uint8_t* tile = reinterpret_cast<std::uint8_t*>(stage);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack<Like>(x[m][i / 2][2 * (i % 2)], x[m][i / 2][2 * (i % 2) + 1]);
      store_transposed(tile + 512 * m + narrow_byte((lane / 16) * 8 + lane % 8, (lane / 8) % 2), packed);
    }
    __syncwarp();
    if (out) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        store_global(out + 32 * m + 16 * (lane % 2), load_shared(tile + 512 * m + narrow_byte(lane / 2, lane % 2)));
    }
    __syncwarp();
    return;
  }
#pragma unroll 1
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float y = x[0][i / 4][i % 4];
      if (kTiles == 2 && m == 1) y = x[kTiles - 1][i / 4][i % 4];
      stage[(8 * (i / 4) + 2 * (lane % 4) + i % 2) * kStageStride + lane / 4 + 8 * ((i / 2) % 2)] = y;
    }
    __syncwarp();
    const float4* row = reinterpret_cast<const float4*>(stage + (lane / 2) * kStageStride + 8 * (lane % 2));
    const float4 low = row[0], high = row[1];
    if (out && dtype == CANOPY_F32) {
      float4* to = reinterpret_cast<float4*>(out + 64 * m + 32 * (lane % 2));
      to[0] = low, to[1] = high;
    } else if (out) {
      const auto pair = [&](float a, float b) { return dtype == CANOPY_BF16 ? pack_bf16(a, b) : pack_half(a, b); };
      *reinterpret_cast<uint4*>(out + 32 * m + 16 * (lane % 2)) = {pair(low.x, low.y), pair(low.z, low.w),
                                                                   pair(high.x, high.y), pair(high.z, high.w)};
    }
    __syncwarp();
  }
}

}  // namespace canopy::cuda
