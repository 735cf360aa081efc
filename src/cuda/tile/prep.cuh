// A prep warp's step: raw products, decay and mask (E3, E4, E7), and for the last step of a block the fp32 substitution
// that gives W = (I + G_bb)^-1 and -W G_path (E6).
#pragma once

#include "cuda/tile/load.cuh"
#include "cuda/tile/tables.cuh"

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
  const std::uint32_t as_a = tile_as_a<K>(lane), as_b = tile_as_b<K>(lane);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t k[4], q[4], k_b[4], q_b[4], x_b[4];
    load_matrices(k, at_elements(slot.keys, as_a, s));
    load_matrices(q, at_elements(slot.queries, as_a, s));
    load_matrices(k_b, at_elements(slot.keys, as_b, s));
    load_matrices(q_b, at_elements(slot.queries, as_b, s));
    load_matrices(x_b, at_elements(slot.path, as_b, s));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mma<Op>(raw.keys[n], k, k_b[2 * n], k_b[2 * n + 1]);
      mma<Op>(raw.keys_path[n], k, x_b[2 * n], x_b[2 * n + 1]);
      mma<Op>(raw.queries[n], q, k_b[2 * n], k_b[2 * n + 1]);
      mma<Op>(raw.queries_path[n], q, x_b[2 * n], x_b[2 * n + 1]);
      mma<Op>(raw.query_squares[n], q, q_b[2 * n], q_b[2 * n + 1]);
    }
  }
  if (l2norm) {
#pragma unroll 1
    for (int s = 0; s < K / 16; ++s) {
      std::uint32_t x[4], x_b[4];
      load_matrices(x, at_elements(slot.path, as_a, s));
      load_matrices(x_b, at_elements(slot.path, as_b, s));
#pragma unroll
      for (int n = 0; n < 2; ++n) mma<Op>(raw.path_squares[n], x, x_b[2 * n], x_b[2 * n + 1]);
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

// The rows of a tile to fp16, divided by 2^exponent; lane 4 i has the exponents of rows i and 8 + i.
template <class Input, int K, bool kScaled>
__device__ __forceinline__ void convert_rows(std::uint8_t* tile, const int (&exponent)[2], int lane) {
  constexpr int chunks = K / 8, at_once = 32 / chunks;
#pragma unroll
  for (int i = 0; i < 16 / at_once; ++i) {
    const int row = lane / chunks + i * at_once, of_row = i * at_once < 8 ? exponent[0] : exponent[1];
    const float scale = kScaled ? power_of_two(-__shfl_sync(~0u, of_row, 4 * (row % 8))) : 1.f;
    std::uint8_t* at = tile + tile_byte<K>(row, lane % chunks);
    uint4 x = load_shared(at);
    std::uint32_t* word = &x.x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const float2 y = unpack<Input>(word[w]);
      word[w] = kScaled ? pack_half(y.x * scale, y.y * scale) : pack_half(y.x, y.y);
    }
    store_shared(at, x);
  }
}
template <class Input, int K>
__device__ __forceinline__ void to_half_rows(std::uint8_t* tile, const int (&exponent)[2], int lane) {
  if (__builtin_expect(__any_sync(~0u, (exponent[0] | exponent[1]) != 0), 0)) {
    convert_rows<Input, K, true>(tile, exponent, lane);
  } else if (!std::is_same_v<Input, __half>) {
    convert_rows<Input, K, false>(tile, exponent, lane);
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
  if (__builtin_expect(__any_sync(~0u, spoilt != 0.f), 0)) {  // NaN != 0 too
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
__device__ __forceinline__ void prepare_step(Slot<K>& slot, const NodeTables& tables, const StepRows& rows, bool l2norm,
                                             float eps, float scale, std::uint64_t* converted, std::uint64_t* published,
                                             int lane) {
  const int tile = rows.tile, first = 16 * rows.block;
  const bool last = rows.last;
  const int row = lane / 4, col = 2 * (lane % 4);  // rows row, row + 8; columns col, col + 1, col + 8, col + 9

  RawProducts raw;
  raw_products<Operand<Input>, K>(raw, slot, l2norm, lane);

  // Factors of the lane's rows for keys and queries, of its columns for keys and path rows.
  float key_row[2], query_row[2], key_col[4], path_col[4];
  const Diagonal key(raw.keys, lane), query(raw.query_squares, lane), path(raw.path_squares, lane);
  int key_exponent[2] = {}, query_exponent[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float key_squares = key.at(half, row), query_squares = query.at(half, row);
    if (kAsync<Input>)
      key_exponent[half] = row_exponent(key_squares), query_exponent[half] = row_exponent(query_squares);
    key_row[half] = row_norm(key_squares, kAsync<Input> ? 1.f : input_factors(slot, 0)[row + 8 * half], l2norm, eps);
    query_row[half] =
        row_norm(query_squares, kAsync<Input> ? 1.f : input_factors(slot, 1)[row + 8 * half], l2norm, eps) * scale;
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int half = c / 2, j = col + c % 2;
    const float key_input = kAsync<Input> ? 1.f : input_factors(slot, 0)[j + 8 * half];
    const float path_input = kAsync<Input> ? 1.f : input_factors(slot, 2)[j + 8 * half];
    key_col[c] = l2norm ? row_norm(key.at(half, j), key_input, true, eps) : key_input;
    path_col[c] = l2norm ? row_norm(path.at(half, j), path_input, true, eps) : path_input;
  }
  __syncwarp();  // all lanes have read the slot
  if (tile == 0) {
    if constexpr (kAsync<Input>) {
      to_half_rows<Input, K>(slot.keys, key_exponent, lane);
      to_half_rows<Input, K>(slot.queries, query_exponent, lane);
    }
    if (lane % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        slot.key_factor[row + 8 * half] = key_row[half] * power_of_two(key_exponent[half]);
        slot.query_factor[row + 8 * half] = query_row[half] * power_of_two(query_exponent[half]);
      }
    }
  }
  warp_arrive(converted, lane);

  // Decay (E3) between the lane's rows and columns. Where the column is no ancestor the exponent may be anything; such
  // entries are selected away.
  TwoFloat<float> l_col[4], l_path[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int j = col + 8 * (c / 2) + c % 2;
    l_col[c] = tables.l[first + j];
    l_path[c] = tables.l[__shfl_sync(~0u, rows.path_rank, j)];
  }
  float* scratch = reinterpret_cast<float*>(slot.path);
  std::uint32_t c_block[4], c_path[4], g_path[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    const TwoFloat<float> l = tables.l[first + r];
    const std::uint32_t in_block = tables.in_block[first + r];
    const std::uint32_t strict = in_block >> col, inclusive = (in_block | 1u << r) >> col;
    const int reach = static_cast<int>(tables.prefix[first + r]) - 16 * tile - col;
    const float beta_key = tables.beta[first + r] * key_row[half];
    float g[4], gp[4], c[4], cp[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int j = 8 * (i / 2) + i % 2, from = 2 * half + i % 2;  // column past col, accumulator index
      const float inner = exp_fast(difference(l, l_col[i])) * key_col[i];
      const float inner_path = exp_fast(difference(l, l_path[i])) * path_col[i];
      g[i] = keep(bit_mask(strict, j), beta_key * inner * raw.keys[i / 2][from]);
      c[i] = keep(bit_mask(inclusive, j), query_row[half] * inner * raw.queries[i / 2][from]);
      gp[i] = keep(less_mask(j, reach), -beta_key * inner_path * raw.keys_path[i / 2][from]);
      cp[i] = keep(less_mask(j, reach), query_row[half] * inner_path * raw.queries_path[i / 2][from]);
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
  warp_arrive(published, lane);
}

}  // namespace canopy::cuda
