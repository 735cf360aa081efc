// A solver warp: kTiles x 16 value columns of one head, S0 in registers, the whole tree block by block (E5, E6, E7).
// It never talks to another solver warp.
#pragma once

#include "cuda/tile/path_stack.cuh"
#include "cuda/tile/poison.cuh"
#include "cuda/tile/state.cuh"
#include "cuda/tile/values.cuh"

namespace canopy::cuda {

inline constexpr int kValueStages = 4;  // V tiles in flight a warp and column group

// Shared memory of one column group.
template <class Input>
struct alignas(128) ValueGroup {
  std::uint8_t values[kValueStages][16 * 16 * sizeof(Input)];
  PathStack stack;
};

// Products S0^T k or S0^T q of the 16 rows of a slot tile, in transposed accumulator layout.
template <int K, int kTiles>
__device__ __forceinline__ void state_products(float (&d)[kTiles][2][4], const StateTile<K> (&state)[kTiles],
                                               const std::uint8_t* rows, int lane) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int i = 0; i < 8; ++i) d[m][i / 4][i % 4] = 0;
  const std::uint32_t as_b = tile_as_b<K>(lane);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4];
    load_matrices(x, at_elements(rows, as_b, s));
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      mma<__half>(d[m][0], state[m].a[s], x[0], x[1]);
      mma<__half>(d[m][1], state[m].a[s], x[2], x[3]);
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void accumulate(float (&d)[kTiles][2][4], const std::uint32_t (&a)[kTiles][4],
                                           const std::uint32_t (&b)[4]) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    mma<__half>(d[m][0], a[m], b[0], b[1]);
    mma<__half>(d[m][1], a[m], b[2], b[3]);
  }
}

// Coefficients stored in fragment order.
__device__ __forceinline__ void read_fragment(std::uint32_t (&b)[4], const std::uint8_t* from, int lane) {
  const uint4 x = load_shared(from + 16 * lane);
  b[0] = x.x, b[1] = x.y, b[2] = x.z, b[3] = x.w;
}

// A transposed accumulator tile as the A fragment of the next product.
__device__ __forceinline__ void to_operand(std::uint32_t (&a)[4], const float (&d)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack_half(d[i / 2][2 * (i % 2)], d[i / 2][2 * (i % 2) + 1]);
}

}  // namespace canopy::cuda
