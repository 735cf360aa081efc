// One slot of the ring between prep and solver warps: what a step needs, 16 block rows against 16 path rows.
#pragma once

#include <cstdint>

#include "cuda/plan.cuh"
#include "cuda/tile/ops.cuh"

namespace canopy::cuda {

inline constexpr int kScratchStride = 36;  // floats a row of the substitution's scratch: 32 columns, padded

// `W` and `G` rows and `C`, `X` fragments are fp16. K, Q and X hold the inputs' 16-bit elements until the prep warp has
// formed its products; then K and Q are fp16 with each row scaled by a power of two, and X is the scratch.
template <int K>
struct alignas(256) Slot {
  std::uint8_t keys[16 * 2 * K], queries[16 * 2 * K];
  alignas(256) std::uint8_t path[16 * 2 * K > 16 * 4 * kScratchStride ? 16 * 2 * K : 16 * 4 * kScratchStride];
  std::uint8_t w[512];  // last step of a block: rows j of W^T, W = (I + G_bb)^-1
  std::uint8_t g[512];  // last step: rows p of (-W G_path)^T; other steps: -G_path as B fragments, a lane's 16 bytes
  std::uint8_t c[512];  // last step: C of the block as B fragments
  std::uint8_t c_path[512];                // C against the path rows, likewise
  float key_factor[16], query_factor[16];  // true row = factor * row in this slot; the query's has the scale in it
};

// f32 inputs: what keys, queries and path rows were divided by when they were read, in the place of W until W is there.
template <int K>
__device__ __forceinline__ float* input_factors(Slot<K>& slot, int of) {
  return reinterpret_cast<float*>(slot.w) + 16 * of;
}

// Byte of 16-byte chunk `chunk` in row `row` of a 16 x K tile, turned so that eight rows' same chunk meets every bank
// once.
template <int K>
__device__ __forceinline__ int tile_byte(int row, int chunk) {
  return row * 2 * K + ((chunk ^ (row & 7)) << 4);
}
// The lane's ldmatrix row for elements 0 .. 15 of a 16 x K tile: as A fragment, and as the B fragments of its rows 0 ..
// 7 (registers 0, 1) and 8 .. 15 (registers 2, 3).
template <int K>
__device__ __forceinline__ std::uint32_t tile_as_a(int lane) {
  return tile_byte<K>((lane / 8) % 2 * 8 + lane % 8, lane / 16);
}
template <int K>
__device__ __forceinline__ std::uint32_t tile_as_b(int lane) {
  return tile_byte<K>(lane / 16 * 8 + lane % 8, (lane / 8) % 2);
}
// The same for elements 16 s .. + 15. Tiles start on 256 bytes, so the turned chunk is one exclusive or away.
__device__ __forceinline__ const void* at_elements(const std::uint8_t* tile, std::uint32_t first, int s) {
  return __cvta_shared_to_generic((shared_address(tile) + first) ^ (static_cast<std::uint32_t>(s) << 5));
}
// Byte of 8-element half `half` in row `row` of a tile of 16-element rows, for ldmatrix and stmatrix.
__device__ __forceinline__ int narrow_byte(int row, int half) { return row * 32 + ((half ^ ((row >> 2) & 1)) << 4); }

}  // namespace canopy::cuda
