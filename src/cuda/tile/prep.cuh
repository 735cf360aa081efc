// A prep warp's step: raw products, decay and mask (E3, E4, E7), and for the last step of a block the fp32 substitution
// that gives W = (I + G_bb)^-1 and -W G_path (E6).
#pragma once

#include "cuda/tile/load.cuh"

namespace canopy::cuda {

// Products of the 16 block rows (and path rows) of a step in accumulator layout: [n-tile][c], row lane / 4 (+ 8 for
// c >= 2), column 8 n-tile + 2 (lane % 4) (+ 1 for odd c).
struct RawProducts {
  float keys[2][4], keys_path[2][4], queries[2][4], queries_path[2][4];
  float query_squares[2][4], path_squares[2][4];  // only their diagonals are used
};

template <class Op, int K>
__device__ __forceinline__ void raw_products(RawProducts& raw, const Slot<K>& slot, bool l2norm, int lane) {
  float(*all)[2][4] = &raw.keys;
#pragma unroll
  for (int i = 0; i < 6; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) all[i][j / 4][j % 4] = 0;
#pragma unroll
  for (int s = 0; s < K / 32; ++s) {
    const int low = tile_byte<K>(lane / 4, 4 * s + lane % 4), high = low + 8 * 2 * K;
    const uint4 k0 = load_shared(slot.keys + low), k1 = load_shared(slot.keys + high);
    const uint4 q0 = load_shared(slot.queries + low), q1 = load_shared(slot.queries + high);
    const uint4 x0 = load_shared(slot.path + low), x1 = load_shared(slot.path + high);
    // The fragment of a tile as A is also its fragment as B.
    mma<Op>(raw.keys[0], k0.x, k1.x, k0.y, k1.y, k0.x, k0.y);
    mma<Op>(raw.keys[1], k0.x, k1.x, k0.y, k1.y, k1.x, k1.y);
    mma<Op>(raw.keys_path[0], k0.x, k1.x, k0.y, k1.y, x0.x, x0.y);
    mma<Op>(raw.keys_path[1], k0.x, k1.x, k0.y, k1.y, x1.x, x1.y);
    mma<Op>(raw.queries[0], q0.x, q1.x, q0.y, q1.y, k0.x, k0.y);
    mma<Op>(raw.queries[1], q0.x, q1.x, q0.y, q1.y, k1.x, k1.y);
    mma<Op>(raw.queries_path[0], q0.x, q1.x, q0.y, q1.y, x0.x, x0.y);
    mma<Op>(raw.queries_path[1], q0.x, q1.x, q0.y, q1.y, x1.x, x1.y);
    mma<Op>(raw.query_squares[0], q0.x, q1.x, q0.y, q1.y, q0.x, q0.y);
    mma<Op>(raw.query_squares[1], q0.x, q1.x, q0.y, q1.y, q1.x, q1.y);
    mma<Op>(raw.keys[0], k0.z, k1.z, k0.w, k1.w, k0.z, k0.w);
    mma<Op>(raw.keys[1], k0.z, k1.z, k0.w, k1.w, k1.z, k1.w);
    mma<Op>(raw.keys_path[0], k0.z, k1.z, k0.w, k1.w, x0.z, x0.w);
    mma<Op>(raw.keys_path[1], k0.z, k1.z, k0.w, k1.w, x1.z, x1.w);
    mma<Op>(raw.queries[0], q0.z, q1.z, q0.w, q1.w, k0.z, k0.w);
    mma<Op>(raw.queries[1], q0.z, q1.z, q0.w, q1.w, k1.z, k1.w);
    mma<Op>(raw.queries_path[0], q0.z, q1.z, q0.w, q1.w, x0.z, x0.w);
    mma<Op>(raw.queries_path[1], q0.z, q1.z, q0.w, q1.w, x1.z, x1.w);
    mma<Op>(raw.query_squares[0], q0.z, q1.z, q0.w, q1.w, q0.z, q0.w);
    mma<Op>(raw.query_squares[1], q0.z, q1.z, q0.w, q1.w, q1.z, q1.w);
    if (l2norm) {
      mma<Op>(raw.path_squares[0], x0.x, x1.x, x0.y, x1.y, x0.x, x0.y);
      mma<Op>(raw.path_squares[1], x0.x, x1.x, x0.y, x1.y, x1.x, x1.y);
      mma<Op>(raw.path_squares[0], x0.z, x1.z, x0.w, x1.w, x0.z, x0.w);
      mma<Op>(raw.path_squares[1], x0.z, x1.z, x0.w, x1.w, x1.z, x1.w);
    }
  }
}

// Diagonal elements of a 16 x 16 product, for the lane's rows and columns.
struct Diagonal {
  float low, high;  // on lane 4 i + i / 2: elements i and 8 + i
  __device__ __forceinline__ explicit Diagonal(const float (&d)[2][4], int lane)
      : low(lane & 4 ? d[0][1] : d[0][0]), high(lane & 4 ? d[1][3] : d[1][2]) {}
  __device__ __forceinline__ float at(int half, int i) const {
    return __shfl_sync(~0u, half ? high : low, 4 * i + i / 2);
  }
};

// What a true key or query row is times the row in the slot, without the fp16 scale.
__device__ __forceinline__ float row_norm(float sum_of_squares, float input_factor, bool l2norm, float eps) {
  return l2norm ? rsqrtf(fmaf(sum_of_squares * input_factor, input_factor, eps)) * input_factor : input_factor;
}

// Rows lane / 4 and lane / 4 + 8 of a tile to fp16, times `scale`. Each lane rewrites just what it reads, here and in
// raw_products.
template <class Input, int K>
__device__ __forceinline__ void to_half_rows(std::uint8_t* tile, float scale_low, float scale_high, int lane) {
  const bool scaled = __any_sync(~0u, scale_low != 1.f || scale_high != 1.f);
  if (std::is_same_v<Input, __half> && !scaled) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = half ? scale_high : scale_low;
#pragma unroll
    for (int s = 0; s < K / 32; ++s) {
      std::uint8_t* at = tile + tile_byte<K>(lane / 4 + 8 * half, 4 * s + lane % 4);
      uint4 x = load_shared(at);
      std::uint32_t* word = &x.x;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = unpack<Input>(word[i]);
        word[i] = pack_half(y.x * scale, y.y * scale);
      }
      store_shared(at, x);
    }
  }
}

// Substitution on column `lane` of [I | -G_path], G in the scratch's first 16 columns. The quick form adds the zeros of
// nodes that are no ancestors; where one of them is not finite it spoils the column, and the careful form is run.
__device__ __forceinline__ void substitute(float (&x)[16], const float* scratch, const std::uint16_t* in_block,
                                           int lane) {
  float start[16];
#pragma unroll
  for (int r = 0; r < 16; ++r) {
    const float given = scratch[r * kScratchStride + lane];
    start[r] = x[r] = lane < 16 ? (r == lane ? 1.f : 0.f) : given;
  }
  float spoilt = x[0] * 0.f;
#pragma unroll
  for (int r = 1; r < 16; ++r) {
#pragma unroll
    for (int j = 0; j < r; j += 4) {
      const float4 g = *reinterpret_cast<const float4*>(scratch + r * kScratchStride + j);
      x[r] = fmaf(-g.x, x[j], x[r]);
      if (j + 1 < r) x[r] = fmaf(-g.y, x[j + 1], x[r]);
      if (j + 2 < r) x[r] = fmaf(-g.z, x[j + 2], x[r]);
      if (j + 3 < r) x[r] = fmaf(-g.w, x[j + 3], x[r]);
    }
    spoilt = fmaf(x[r], 0.f, spoilt);
  }
  if (__any_sync(~0u, spoilt != 0.f)) {  // NaN != 0 too
#pragma unroll
    for (int r = 0; r < 16; ++r) x[r] = start[r];
#pragma unroll
    for (int r = 1; r < 16; ++r) {
      const unsigned ancestors = in_block[r];
#pragma unroll
      for (int j = 0; j < r; ++j)
        if (ancestors >> j & 1) x[r] = fmaf(-scratch[r * kScratchStride + j], x[j], x[r]);
    }
  }
}

// The whole step once the rows are in the slot. `converted` and `published` are arrived on when K and Q, and the
// coefficients, can be read.
template <class Input, int K>
__device__ __forceinline__ void prepare_step(Slot<K>& slot, const NodeTables& tables, const DevicePlan& plan,
                                             const Problem& p, float scale, int step, std::uint64_t* converted,
                                             std::uint64_t* published, int lane) {
  using Op = Operand<Input>;
  const int block = tables.step_block[step], tile = tables.step_tile[step], first = 16 * block;
  const int ancestors = tables.ancestors[block];
  const bool last = 16 * (tile + 1) >= ancestors;
  const int row = lane / 4, col = 2 * (lane % 4);  // rows row, row + 8; columns col, col + 1, col + 8, col + 9
  const bool l2norm = p.l2norm != 0;

  RawProducts raw;
  raw_products<Op, K>(raw, slot, l2norm, lane);

  // Norms: of the lane's rows for keys and queries, of its columns for keys and path rows.
  float key_row[2], query_row[2], key_col[4], path_col[4];
  {
    const Diagonal key(raw.keys, lane), query(raw.query_squares, lane), path(raw.path_squares, lane);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      const float in_key = kAsync<Input> ? 1.f : slot.input_factor[0][r];
      const float in_query = kAsync<Input> ? 1.f : slot.input_factor[1][r];
      const float key_squares = key.at(half, row), query_squares = query.at(half, row);
      key_row[half] = row_norm(key_squares, in_key, l2norm, p.l2norm_eps);
      query_row[half] = row_norm(query_squares, in_query, l2norm, p.l2norm_eps) * scale;
      if (tile == 0 && kAsync<Input>) {
        const float key_scale = row_scale(key_squares), query_scale = row_scale(query_squares);
        if (lane % 4 == 0) {
          slot.key_factor[r] = key_row[half] / key_scale;
          slot.query_factor[r] = query_row[half] / query_scale;
        }
        raw.query_squares[half][0] = query_scale;  // free now: kept for the conversion below
        raw.query_squares[half][1] = key_scale;
      } else if (lane % 4 == 0) {
        slot.key_factor[r] = key_row[half];
        slot.query_factor[r] = query_row[half];
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int c = col + 8 * half + i;
        const float in_key_col = kAsync<Input> ? 1.f : slot.input_factor[0][c];
        const float in_path_col = kAsync<Input> ? 1.f : slot.input_factor[2][c];
        key_col[2 * half + i] = row_norm(key.at(half, col + i), in_key_col, l2norm, p.l2norm_eps);
        path_col[2 * half + i] = row_norm(path.at(half, col + i), in_path_col, l2norm, p.l2norm_eps);
      }
    }
  }
  if (tile == 0 && kAsync<Input>) {
    to_half_rows<Input, K>(slot.keys, raw.query_squares[0][1], raw.query_squares[1][1], lane);
    to_half_rows<Input, K>(slot.queries, raw.query_squares[0][0], raw.query_squares[1][0], lane);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(converted);

  // Decay (E3) between the lane's rows and columns. Where the column is no ancestor the exponent may be anything; such
  // entries are selected away below.
  TwoFloat<float> l_col[4], l_path[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int j = col + 8 * (c / 2) + c % 2, at = 16 * tile + j;
    l_col[c] = tables.l[first + j];
    l_path[c] = tables.l[at < ancestors ? plan.path[block][at] : 0];
  }
  float* scratch = reinterpret_cast<float*>(slot.path);
  std::uint32_t c_block[4], c_path[4], g_path[4];
  __syncwarp();  // all lanes have read the path rows
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    const TwoFloat<float> l = tables.l[first + r];
    const float beta = tables.beta[first + r];
    const unsigned mask = tables.in_block[first + r];
    const int prefix = static_cast<int>(tables.prefix[first + r]) - 16 * tile;
    float g[4], gp[4], c[4], cp[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = col + 8 * (i / 2) + i % 2, from = 2 * half + i % 2;  // accumulator index
      const float decay = __expf(difference(l, l_col[i])), decay_path = __expf(difference(l, l_path[i]));
      const float inner = decay * key_col[i], inner_path = decay_path * path_col[i];
      g[i] = keep(mask >> j & 1, beta * inner * key_row[half] * raw.keys[i / 2][from]);
      c[i] = keep((mask | 1u << r) >> j & 1, inner * query_row[half] * raw.queries[i / 2][from]);
      gp[i] = keep(j < prefix, -beta * inner_path * key_row[half] * raw.keys_path[i / 2][from]);
      cp[i] = keep(j < prefix, inner_path * query_row[half] * raw.queries_path[i / 2][from]);
    }
    c_block[2 * half] = pack_half(c[0], c[1]), c_block[2 * half + 1] = pack_half(c[2], c[3]);
    c_path[2 * half] = pack_half(cp[0], cp[1]), c_path[2 * half + 1] = pack_half(cp[2], cp[3]);
    g_path[2 * half] = pack_half(gp[0], gp[1]), g_path[2 * half + 1] = pack_half(gp[2], gp[3]);
    if (last) {
      float* line = scratch + r * kScratchStride;
      *reinterpret_cast<float2*>(line + col) = {g[0], g[1]};
      *reinterpret_cast<float2*>(line + col + 8) = {g[2], g[3]};
      *reinterpret_cast<float2*>(line + 16 + col) = {gp[0], gp[1]};
      *reinterpret_cast<float2*>(line + 16 + col + 8) = {gp[2], gp[3]};
    }
  }
  store_shared(slot.c_path + 16 * lane, {c_path[0], c_path[1], c_path[2], c_path[3]});
  if (!last) {
    store_shared(slot.g + 16 * lane, {g_path[0], g_path[1], g_path[2], g_path[3]});
  } else {
    store_shared(slot.c + 16 * lane, {c_block[0], c_block[1], c_block[2], c_block[3]});
    __syncwarp();
    float x[16];
    substitute(x, scratch, tables.in_block + first, lane);
    // Column `lane` of [W | -W G_path] is a row of its transpose.
    std::uint8_t* rows = lane < 16 ? slot.w : slot.g;
    store_shared(rows + narrow_byte(lane % 16, 0),
                 {pack_half(x[0], x[1]), pack_half(x[2], x[3]), pack_half(x[4], x[5]), pack_half(x[6], x[7])});
    store_shared(rows + narrow_byte(lane % 16, 1),
                 {pack_half(x[8], x[9]), pack_half(x[10], x[11]), pack_half(x[12], x[13]), pack_half(x[14], x[15])});
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(published);
}

}  // namespace canopy::cuda
