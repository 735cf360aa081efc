// Value-side tiles of one warp's 16 columns: V rows in, O and U rows out. Tiles hold 16 nodes by 16 values.
#pragma once

#include "canopy/problem.hpp"
#include "cuda/tile/ops.cuh"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

// Starts the copy of a tile: lane i brings values 8 * (i % 2) .. + 7 of row i / 2, whose node it has. `from` points at
// the head and column.
template <class Input>
__device__ __forceinline__ void start_values(std::uint8_t* tile, const char* from, std::uint32_t step, int node,
                                             int lane) {
  from += std::uint64_t{static_cast<std::uint32_t>(max(node, 0))} * step + 8 * sizeof(Input) * (lane % 2);
  if constexpr (sizeof(Input) == 2) {
    copy_async(tile + narrow_byte(lane / 2, lane % 2), from, node >= 0);
  } else {
    // Rows of 64 bytes; the pairs of chunks are turned by the row's pair number against bank conflicts.
    std::uint8_t* row = tile + 64 * (lane / 2);
    const int turn = (lane / 4) & 3;
    copy_async(row + 16 * ((2 * (lane % 2)) ^ turn), from, node >= 0);
    copy_async(row + 16 * ((2 * (lane % 2) + 1) ^ turn), from + 16, node >= 0);
  }
}

// Nodes 8 n .. + 7 of the tile in transposed accumulator layout: value lane / 4 (+ 8 for c >= 2), node 2 * (lane % 4)
// (+ 1 for odd c).
template <class Input>
__device__ __forceinline__ void read_values(float (&v)[4], const std::uint8_t* tile, int n, int lane) {
  if constexpr (sizeof(Input) == 2) {
    std::uint32_t x[2];
    load_transposed(x, tile + narrow_byte(8 * n + lane % 8, (lane / 8) % 2));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 y = unpack<Input>(x[i]);
      v[2 * i] = y.x, v[2 * i + 1] = y.y;
    }
  } else {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int node = 8 * n + 2 * (lane % 4) + c % 2, value = lane / 4 + 8 * (c / 2);
      const int chunk = (value / 4) ^ ((node / 2) & 3);
      v[c] = *reinterpret_cast<const float*>(tile + 64 * node + 16 * chunk + 4 * (value % 4));
    }
  }
}

// A tile in that layout to the rows of a tensor, through `stage` (16 * kStageStride floats of this warp).
inline constexpr int kStageStride = 20;
__device__ __forceinline__ void write_tile(float* stage, const float (&x)[2][4], char* out, std::uint32_t step,
                                           int dtype, int node, int lane) {
  out += std::uint64_t{static_cast<std::uint32_t>(max(node, 0))} * step + (dtype == CANOPY_F32 ? 32 : 16) * (lane % 2);
  __syncwarp();  // the stage's last readers are done
  if (dtype == CANOPY_F32) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      stage[(8 * (i / 4) + 2 * (lane % 4) + i % 2) * kStageStride + lane / 4 + 8 * ((i / 2) % 2)] = x[i / 4][i % 4];
    __syncwarp();
    const float4* row = reinterpret_cast<const float4*>(stage + (lane / 2) * kStageStride + 8 * (lane % 2));
    if (node >= 0) {
      float4* to = reinterpret_cast<float4*>(out);
      to[0] = row[0], to[1] = row[1];
    }
    return;
  }
  std::uint32_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = x[i / 2][2 * (i % 2)], high = x[i / 2][2 * (i % 2) + 1];
    packed[i] = dtype == CANOPY_BF16 ? pack_bf16(low, high) : pack_half(low, high);
  }
  std::uint8_t* tile = reinterpret_cast<std::uint8_t*>(stage);
  store_transposed(tile + narrow_byte((lane / 16) * 8 + lane % 8, (lane / 8) % 2), packed);
  __syncwarp();
  const uint4 row = load_shared(tile + narrow_byte(lane / 2, lane % 2));
  if (node >= 0) *reinterpret_cast<uint4*>(out) = row;
}

}  // namespace canopy::cuda
