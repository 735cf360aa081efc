// The path stack of one warp's 16 value columns: row d holds u of the depth-d node of the current root path, fp16. In
// depth-first order it is a stack: a block needs rows 0 .. n_ext - 1 and then pushes its own (docs/math.md).
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

// Rows in shared memory; deeper ones lie in the workspace, so that shared memory does not grow with T.
inline constexpr int kStackRows = 32;
inline constexpr int kSpillRows = kNodes - kStackRows;

struct alignas(128) PathStack {
  std::uint8_t rows[kStackRows * 32];
  std::uint8_t passing[512];  // rows on their way to and from the workspace; rows that need not be kept end here too
};

__device__ __forceinline__ void clear(PathStack& stack, int lane) {
  for (int i = lane; i < static_cast<int>(sizeof(PathStack) / 16); i += 32)
    store_shared(reinterpret_cast<std::uint8_t*>(&stack) + 16 * i, {0, 0, 0, 0});
}

// Rows 16 tile .. + 15 as an A fragment. Stale rows past `ancestors` are finite and meet zero coefficients; in the
// workspace they may be anything, so they are replaced.
__device__ __forceinline__ void read_path(std::uint32_t (&u)[4], PathStack& stack, const __half* spill, int tile,
                                          int ancestors, int lane) {
  const int at = narrow_byte((lane / 16) * 8 + lane % 8, (lane / 8) % 2);
  if (16 * tile < kStackRows) {
    load_transposed(u, stack.rows + 512 * tile + at);
    return;
  }
  const int depth = 16 * tile + lane / 2;
  uint4 row{};
  if (depth < ancestors) row = *reinterpret_cast<const uint4*>(spill + (depth - kStackRows) * 16 + 8 * (lane % 2));
  __syncwarp();
  store_shared(stack.passing + narrow_byte(lane / 2, lane % 2), row);
  __syncwarp();
  load_transposed(u, stack.passing + at);
}

// `push` points at the block's 16 push rows.
__device__ __forceinline__ void push_path(PathStack& stack, __half* spill, const std::uint32_t (&u)[4],
                                          const std::uint8_t* push, int lane) {
  const int row = (lane / 16) * 8 + lane % 8, half = (lane / 8) % 2, depth = push[row];
  __syncwarp();  // everybody has read the rows that are replaced
  store_transposed(depth < kStackRows ? stack.rows + narrow_byte(depth, half) : stack.passing + narrow_byte(row, half),
                   u);
  __syncwarp();
  const int mine = push[lane / 2];
  if (mine >= kStackRows && mine != kNone)
    *reinterpret_cast<uint4*>(spill + (mine - kStackRows) * 16 + 8 * (lane % 2)) =
        load_shared(stack.passing + narrow_byte(lane / 2, lane % 2));
  __syncwarp();
}

}  // namespace canopy::cuda
