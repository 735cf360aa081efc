// The path stack of one warp's 16 value columns: row d holds u of the depth-d node of the current root path, as 16-bit
// operands. In depth-first order it is a stack: a block needs rows base .. n_ext - 1 and then pushes its own
// (docs/math.md).
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

// Rows base .. base + 31 are in shared memory (path_row()); deeper ones lie in the workspace, row d at d, so that
// shared memory does not grow with T. Rows on their way there, and rows not kept, are at passing_row().
template <int kParts>
struct alignas(16) PathStack {
  std::uint8_t rows[kParts][kPathBytes];
};
// The workspace of 16 columns: [kNodes, kParts, 16].
template <int kParts>
inline constexpr int kSpillElements = kNodes* kParts * 16;

template <int kParts>
__device__ __forceinline__ void clear(PathStack<kParts>& stack, int lane) {
  for (int i = lane; i < static_cast<int>(sizeof(stack) / 16); i += 32)
    store_shared(&stack.rows[0][16 * i], {0, 0, 0, 0});
}

template <int kParts>
__device__ __forceinline__ std::uint16_t* spilt(std::uint16_t* spill, int depth, int part, int half) {
  return spill + (depth * kParts + part) * 16 + 8 * half;
}

// Rows base + 16 tile .. + 15, tile 0 or 1, as an A fragment. Rows past the path are finite and meet zero coefficients.
template <int kParts>
__device__ __forceinline__ void read_near_path(std::uint32_t (&u)[kParts][4], const PathStack<kParts>& stack, int tile,
                                               int lane) {
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    load_transposed(u[p], stack.rows[p] + 512 * tile + narrow_byte((lane / 16) * 8 + lane % 8, (lane / 8) % 2));
}
// The same for any tile; `ancestors` rows are on the path, counted from base. The workspace may hold anything past
// them.
template <int kParts>
__device__ __forceinline__ void read_path(std::uint32_t (&u)[kParts][4], PathStack<kParts>& stack, std::uint16_t* spill,
                                          int base, int tile, int ancestors, int lane) {
  if (16 * tile < kPathRows) return read_near_path(u, stack, tile, lane);
  const int from_base = 16 * tile + lane / 2;
  __syncwarp();
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    uint4 row{};
    if (from_base < ancestors) row = *reinterpret_cast<const uint4*>(spilt<kParts>(spill, base + from_base, p, lane % 2));
    store_shared(stack.rows[p] + (passing_row(lane / 2) ^ (lane % 2 << 4)), row);
  }
  __syncwarp();
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    load_transposed(u[p], stack.rows[p] + passing_row(0) + narrow_byte((lane / 16) * 8 + lane % 8, (lane / 8) % 2));
}

// `at`: byte of the lane's row (of the 16 of the block, (lane / 16) * 8 + lane % 8) and half in the stack.
template <int kParts>
__device__ __forceinline__ void push_path(PathStack<kParts>& stack, const std::uint32_t (&u)[kParts][4],
                                          std::uint32_t at) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) store_transposed(stack.rows[p] + at, u[p]);
}
// After a push, the rows that belong in the workspace; `push` points at the block's 16 depths.
template <int kParts>
__device__ __forceinline__ void spill_path(const PathStack<kParts>& stack, std::uint16_t* spill,
                                           const std::uint8_t* push, int base, int lane) {
  __syncwarp();
  const int depth = push[lane / 2];
  if (depth != kNone && depth - base >= kPathRows) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      *reinterpret_cast<uint4*>(spilt<kParts>(spill, depth, p, lane % 2)) =
          load_shared(stack.rows[p] + (passing_row(lane / 2) ^ (lane % 2 << 4)));
  }
}

// After a fold up to `base`: the rows base .. base + 31 come from the workspace, `ancestors` of them.
template <int kParts>
__device__ __forceinline__ void refill(PathStack<kParts>& stack, std::uint16_t* spill, int base, int ancestors,
                                       int lane) {
  __syncwarp();
  if (lane < ancestors) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_shared(stack.rows[p] + (turned_row(lane) ^ (half << 4)),
                     *reinterpret_cast<const uint4*>(spilt<kParts>(spill, base + lane, p, half)));
  }
  __syncwarp();
}

}  // namespace canopy::cuda
