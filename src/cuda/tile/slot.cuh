// One slot of the ring between prep and solver warps: what a step needs, 16 block rows against 16 path rows.
#pragma once

#include <cstdint>

#include "cuda/plan.cuh"
#include "cuda/tile/ops.cuh"

namespace canopy::cuda {

// Bytes of a row of K 16-bit elements, padded so that eight rows' same chunk meets every bank once and the address of
// every chunk is a constant away from the first.
template <int K>
inline constexpr int kPitch = 2 * K + 16;

inline constexpr int kScratchStride = 20;  // floats a row of the substitution's scratch: 16, padded
inline constexpr int kScratchBytes = 2 * 16 * 4 * kScratchStride;

// What a step is for one value head. Coefficients are 16-bit operands, kParts of them adding up to each.
template <int kParts>
struct alignas(16) Coefficients {
  std::uint8_t w[kParts][512];  // last step of a block: rows j of W^T, W = (I + G_bb)^-1
  std::uint8_t g[kParts]
                [512];  // last step: rows p of (-W G_path)^T; other steps: -G_path as B fragments, 16 bytes a lane
  std::uint8_t c[kParts][512];       // last step: C of the block as B fragments
  std::uint8_t c_path[kParts][512];  // C against the path rows, likewise
  // By row: what S0^T k, S0^T q and v are multiplied by: -beta exp(l), exp(l) and beta, with all other factors of the
  // row. A step that folds: what u of path rows 0 .. 15 and 16 .. 31 is multiplied by, and the state's decay.
  float of_key[16], of_query[16], of_value[16];
};

// `keys`, `queries` and `path` hold the inputs' 16-bit elements until the prep warp has formed its products; then keys
// and queries hold what the solver's products take, and `path` is the scratch. A step that folds has path rows in keys
// and queries.
template <int K_, int kParts_, int kHeads_ = 1>
struct alignas(16) Slot {
  static constexpr int K = K_, kParts = kParts_, kHeads = kHeads_;
  std::uint8_t keys[16 * kPitch<K>], queries[16 * kPitch<K>];
  std::uint8_t path[16 * kPitch<K> > kScratchBytes ? 16 * kPitch<K> : kScratchBytes];
  Coefficients<kParts> of[kHeads];  // value heads of the key head
  float input_factor[3][16];        // f32 inputs: what keys, queries and path rows were divided by when they were read
};

// The lane's ldmatrix row for elements 0 .. 15 of a 16 x K tile; elements 16 s .. + 15 are 32 s bytes on. As A
// fragment, and with ldmatrix.trans as the B fragments of keys 0 .. 7 (registers 0, 1) and 8 .. 15 (registers 2, 3) of
// a product over the rows:
template <int K>
__device__ __forceinline__ std::uint32_t tile_as_a(int lane) {
  return ((lane / 8) % 2 * 8 + lane % 8) * kPitch<K> + lane / 16 * 16;
}
// As the B fragments of rows 0 .. 7 (registers 0, 1) and 8 .. 15 (registers 2, 3) of a product over the elements:
template <int K>
__device__ __forceinline__ std::uint32_t tile_as_b(int lane) {
  return (lane / 16 * 8 + lane % 8) * kPitch<K> + (lane / 8) % 2 * 16;
}
// Byte of 8-element half `half` in row `row` of a tile of 16-element rows, for ldmatrix and stmatrix.
__device__ __forceinline__ int narrow_byte(int row, int half) { return row * 32 + ((half ^ ((row >> 2) & 1)) << 4); }

}  // namespace canopy::cuda
