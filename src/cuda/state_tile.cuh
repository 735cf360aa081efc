// A tile of a head's state in registers: all K rows of 32 value columns. Eight lanes share a column, so sums over k
// take three shuffles; a thread holds R columns x K/8 keys. Both layouts and all types of the pool.
#pragma once

#include "cuda/access.cuh"

namespace canopy::cuda {

inline constexpr int kTileColumns = 32;

template <int K, int R>
struct StateTile {
  static constexpr int kThreads = 256 / R;
  static constexpr int kFours = K / 32;  // float4 a column that a thread holds
  // A transposing buffer for the layout [K,V]: rows of the tile's columns, shifted by one bank group each.
  static constexpr int kStageRow = K + 4, kStageBytes = kTileColumns * kStageRow * 4;

  float4 s[R][kFours];

  // Column within the tile, and key, of the thread's s[r][m].x.
  __device__ static int column(int r) { return (threadIdx.x / 32) * 4 * R + r * 4 + (threadIdx.x % 32) / 8; }
  __device__ static int key(int m) { return m * 32 + (threadIdx.x % 8) * 4; }
};

// Offset of the head's state in the pool.
__device__ inline std::int64_t state_offset(const Problem& p, int layer, std::int64_t slot, int hv) {
  return layer * p.state.stride[0] + slot * p.state.stride[1] + hv * p.state.stride[2];
}

// `stage`: kStageBytes of shared memory, used by [K,V] only; all threads take part, and the caller synchronises before
// the stage is used again.
template <int K, int R>
__device__ void load_tile(const Problem& p, std::int64_t head, int column0, bool wide, float* stage,
                          StateTile<K, R>& tile) {
  using Tile = StateTile<K, R>;
  const std::int64_t row = p.state.stride[3];
  if (p.state_layout == CANOPY_STATE_VK) {
    Four raw[R][Tile::kFours];
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int m = 0; m < Tile::kFours; ++m)
        raw[r][m] =
            load_four(p.state.dtype, p.state.data, head + (column0 + Tile::column(r)) * row + Tile::key(m), wide);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int m = 0; m < Tile::kFours; ++m) tile.s[r][m] = to_float4(p.state.dtype, raw[r][m]);
    return;
  }
  const int four = threadIdx.x % 8 * 4;
#pragma unroll 4
  for (int k = threadIdx.x / 8; k < K; k += Tile::kThreads / 8) {
    const float4 x = load_float4(p.state.dtype, p.state.data, head + k * row + column0 + four, wide);
    stage[(four + 0) * Tile::kStageRow + k] = x.x;
    stage[(four + 1) * Tile::kStageRow + k] = x.y;
    stage[(four + 2) * Tile::kStageRow + k] = x.z;
    stage[(four + 3) * Tile::kStageRow + k] = x.w;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < Tile::kFours; ++m)
      tile.s[r][m] = *reinterpret_cast<const float4*>(&stage[Tile::column(r) * Tile::kStageRow + Tile::key(m)]);
}

template <int K, int R>
__device__ void store_tile(const Problem& p, std::int64_t head, int column0, bool wide, float* stage,
                           const StateTile<K, R>& tile) {
  using Tile = StateTile<K, R>;
  const std::int64_t row = p.state.stride[3];
  if (p.state_layout == CANOPY_STATE_VK) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int m = 0; m < Tile::kFours; ++m)
        store_float4(p.state.dtype, p.state.data, head + (column0 + Tile::column(r)) * row + Tile::key(m), wide,
                     tile.s[r][m]);
    return;
  }
  __syncthreads();  // the stage may still be read from a load
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < Tile::kFours; ++m)
      *reinterpret_cast<float4*>(&stage[Tile::column(r) * Tile::kStageRow + Tile::key(m)]) = tile.s[r][m];
  __syncthreads();
  const int four = threadIdx.x % 8 * 4;
  for (int k = threadIdx.x / 8; k < K; k += Tile::kThreads / 8) {
    const float4 x{stage[(four + 0) * Tile::kStageRow + k], stage[(four + 1) * Tile::kStageRow + k],
                   stage[(four + 2) * Tile::kStageRow + k], stage[(four + 3) * Tile::kStageRow + k]};
    store_float4(p.state.dtype, p.state.data, head + k * row + column0 + four, wide, x);
  }
}

// Partial sums of the thread's keys: x . s for each of its columns.
template <int K, int R>
__device__ inline float dot(const StateTile<K, R>& tile, int r, const float4* x) {
  float a = 0, b = 0;  // two chains: the latency of one would bound a node's step
#pragma unroll
  for (int m = 0; m < StateTile<K, R>::kFours; ++m) {
    const float4 s = tile.s[r][m];
    a = fmaf(s.x, x[m].x, a), b = fmaf(s.y, x[m].y, b);
    a = fmaf(s.z, x[m].z, a), b = fmaf(s.w, x[m].w, b);
  }
  return a + b;
}

// S = alpha S + k u^T on the thread's part of column r.
template <int K, int R>
__device__ inline void decay_and_add(StateTile<K, R>& tile, int r, float alpha, const float4* k, float u) {
#pragma unroll
  for (int m = 0; m < StateTile<K, R>::kFours; ++m) {
    float4& s = tile.s[r][m];
    s.x = fmaf(k[m].x, u, alpha * s.x), s.y = fmaf(k[m].y, u, alpha * s.y);
    s.z = fmaf(k[m].z, u, alpha * s.z), s.w = fmaf(k[m].w, u, alpha * s.w);
  }
}

}  // namespace canopy::cuda
