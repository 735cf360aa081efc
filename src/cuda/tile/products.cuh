// Raw products of a step's rows, and on the way K and Q turned into what the solver's products take.
#pragma once

#include "cuda/tile/load.cuh"

namespace canopy::cuda {

// Products of the 16 block rows in accumulator layout: [n-tile][c], row lane / 4 (+ 8 for c >= 2), column 8 n-tile +
// 2 (lane % 4) (+ 1 for odd c).
struct RawProducts {
  float keys[2][4], queries[2][4], keys_path[2][4], queries_path[2][4];
};

__device__ __forceinline__ void clear(float (&d)[2][4]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) d[i / 4][i % 4] = 0;
}

// 16-bit elements x of a row, summed up as x^2 in bf16: good enough to see whether fp16 can hold them.
__device__ __forceinline__ void add_squares(std::uint32_t& sum, std::uint32_t x) {
  const __nv_bfloat162 y = *reinterpret_cast<const __nv_bfloat162*>(&x);
  __nv_bfloat162& z = *reinterpret_cast<__nv_bfloat162*>(&sum);
  z = __hfma2(y, y, z);
}

__device__ __forceinline__ void to_half(std::uint32_t (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 y = unpack<__nv_bfloat16>(x[i]);
    x[i] = pack_half(y.x, y.y);
  }
}

// k.k and q.k of the block, and of the block against the first 8 kPathHalves path rows. kConvert: K and Q leave as
// fp16. `squares`: of the lane's elements of query rows lane / 4 and lane / 4 + 8, in bf16, if kConvert.
template <class Op, bool kConvert, int kPathHalves, class Slot>
__device__ __forceinline__ void raw_products(RawProducts& raw, std::uint32_t (&squares)[2], Slot& slot, int lane) {
  constexpr int K = Slot::K;
  clear(raw.keys), clear(raw.queries), clear(raw.keys_path), clear(raw.queries_path);
  std::uint8_t *const keys = slot.keys + tile_as_a<K>(lane), *const queries = slot.queries + tile_as_a<K>(lane);
  const std::uint8_t* const path_b = slot.path + tile_as_b<K>(lane);
  squares[0] = squares[1] = 0;
  struct Fragments {  // k serves as A and as B: registers n and n + 2 are the B fragment of keys 8 n .. 8 n + 7
    std::uint32_t k[4], q[4], x[4];
  };
  const auto load = [&](Fragments& f, int s) {
    load_matrices(f.k, keys + 32 * s);
    load_matrices(f.q, queries + 32 * s);
    if constexpr (kPathHalves > 0) load_matrices(f.x, path_b + 32 * s);
  };
  Fragments now, coming;
  load(now, 0);
  // Few copies of the loop: at batch 1 instructions are fetched slower than they run.
#pragma unroll 2
  for (int s = 0; s < K / 16; ++s) {
    if (s + 1 < K / 16) load(coming, s + 1);
    auto& [k, q, x] = now;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mma<Op>(raw.keys[n], k, k[n], k[n + 2]);
      mma<Op>(raw.queries[n], q, k[n], k[n + 2]);
    }
#pragma unroll
    for (int n = 0; n < kPathHalves; ++n) {
      mma<Op>(raw.keys_path[n], k, x[2 * n], x[2 * n + 1]);
      mma<Op>(raw.queries_path[n], q, x[2 * n], x[2 * n + 1]);
    }
    if constexpr (kConvert) {
#pragma unroll
      for (int i = 0; i < 4; ++i) add_squares(squares[i % 2], q[i]);
      to_half(k), to_half(q);
      __syncwarp();  // all lanes have read these columns
      store_matrices(keys + 32 * s, k);
      store_matrices(queries + 32 * s, q);
    }
    now = coming;
  }
}

// Whether a row, or a part of it, is one that fp16 holds badly: one that it holds well has its sum of squares in these
// bounds.
__device__ __forceinline__ bool fp16_holds_badly(float squares) {
  return !(squares == 0.f || (squares >= 2.4e-7f && squares < 6.7e7f));
}

// x.x of 16 rows, as the diagonal of their products. `rows`: the lane's ldmatrix row (tile_as_a()).
template <class Op, int K>
__device__ __forceinline__ void row_squares(float (&d)[2][4], const std::uint8_t* rows) {
  clear(d);
#pragma unroll 2
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4];
    load_matrices(x, rows + 32 * s);
    mma<Op>(d[0], x, x[0], x[2]);
    mma<Op>(d[1], x, x[1], x[3]);
  }
}

// The same of two tiles at once.
template <class Op, int K>
__device__ __forceinline__ void row_squares(float (&d)[2][4], const std::uint8_t* rows, float (&e)[2][4],
                                            const std::uint8_t* others) {
  clear(d), clear(e);
#pragma unroll 2
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4], y[4];
    load_matrices(x, rows + 32 * s);
    load_matrices(y, others + 32 * s);
    mma<Op>(d[0], x, x[0], x[2]);
    mma<Op>(e[0], y, y[0], y[2]);
    mma<Op>(d[1], x, x[1], x[3]);
    mma<Op>(e[1], y, y[1], y[3]);
  }
}

// Diagonal elements of a 16 x 16 product, for the lane's rows and columns.
struct Diagonal {
  float low, high;  // on lane 4 i + i / 2: elements i and 8 + i
  __device__ __forceinline__ explicit Diagonal(const float (&d)[2][4], int lane)
      : low(lane & 4 ? d[0][1] : d[0][0]), high(lane & 4 ? d[1][3] : d[1][2]) {}
  __device__ __forceinline__ float at(int i) const {  // element i of 16, another one on each lane if need be
    const int from = 4 * (i % 8) + i % 8 / 2;
    const float a = __shfl_sync(~0u, low, from), b = __shfl_sync(~0u, high, from);
    return i < 8 ? a : b;
  }
  // Whether this lane holds the two elements.
  static __device__ __forceinline__ bool here(int lane) { return lane % 4 == lane / 8; }
};

}  // namespace canopy::cuda
