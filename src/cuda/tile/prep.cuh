// A prep warp's step: raw products, decay and mask (E3, E4, E7), and for the last step of a block the fp32 substitution
// that gives W = (I + G_bb)^-1 and -W G_path (E6).
#pragma once

#include "cuda/tile/products.cuh"
#include "cuda/tile/tables.cuh"

namespace canopy::cuda {

// The factor from a key or query row as it was multiplied (scaled into fp16's range, not normalised) to the row as the
// model means it.
__device__ __forceinline__ float row_norm(float sum_of_squares, float input_factor, bool l2norm, float eps) {
  return l2norm ? rsqrtf(fmaf(sum_of_squares * input_factor, input_factor, eps)) * input_factor : input_factor;
}

// Stores a column of W or of -W G_path as a row of its transpose: 16 operands at `row` of `to`, in kParts parts.
template <class Op, int kParts>
__device__ __forceinline__ void store_column(std::uint8_t (&to)[kParts][512], const float (&x)[16], int row) {
  std::uint32_t parts[8][kParts];
#pragma unroll
  for (int i = 0; i < 8; ++i) split<Op>(parts[i], x[2 * i], x[2 * i + 1]);
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    store_shared(to[p] + narrow_byte(row, 0), {parts[0][p], parts[1][p], parts[2][p], parts[3][p]});
    store_shared(to[p] + narrow_byte(row, 1), {parts[4][p], parts[5][p], parts[6][p], parts[7][p]});
  }
}

// Column `lane` of [I | -G_path] as the substitution starts.
__device__ __forceinline__ void start_column(float (&x)[16], const float* scratch, int lane) {
#pragma unroll
  for (int r = 0; r < 16; r += 4) {
    const float4 given = *reinterpret_cast<const float4*>(scratch + (16 + lane % 16) * kScratchStride + r);
    x[r] = lane < 16 ? (r == lane ? 1.f : 0.f) : given.x;
    x[r + 1] = lane < 16 ? (r + 1 == lane ? 1.f : 0.f) : given.y;
    x[r + 2] = lane < 16 ? (r + 2 == lane ? 1.f : 0.f) : given.z;
    x[r + 3] = lane < 16 ? (r + 3 == lane ? 1.f : 0.f) : given.w;
  }
}

// Substitution on the lane's column; the scratch holds G transposed. Whether some lane's column came out not finite.
__device__ __forceinline__ bool substitute(float (&x)[16], const float* scratch) {
  // As soon as x[j] is known its share goes to all later rows, which do not wait for one another.
#pragma unroll
  for (int j = 0; j < 15; ++j) {
#pragma unroll
    for (int r = (j + 1) / 4 * 4; r < 16; r += 4) {
      const float4 g = *reinterpret_cast<const float4*>(scratch + j * kScratchStride + r);
      if (r > j) x[r] = fmaf(-g.x, x[j], x[r]);
      if (r + 1 > j) x[r + 1] = fmaf(-g.y, x[j], x[r + 1]);
      if (r + 2 > j) x[r + 2] = fmaf(-g.z, x[j], x[r + 2]);
      if (r + 3 > j) x[r + 3] = fmaf(-g.w, x[j], x[r + 3]);
    }
  }
  float spoilt = 0;
#pragma unroll
  for (int r = 0; r < 16; ++r) spoilt = fmaf(x[r], 0.f, spoilt);
  return __any_sync(~0u, spoilt != 0.f);  // NaN != 0 too
}
// The same with ancestors only: for coefficients that are not finite, which would spoil others through zeros.
__device__ __forceinline__ void substitute_carefully(float (&x)[16], const float* scratch,
                                                     const std::uint16_t* in_block) {
#pragma unroll
  for (int r = 1; r < 16; ++r) {
    const unsigned ancestors = in_block[r];
#pragma unroll
    for (int j = 0; j < r; ++j)
      if (ancestors >> j & 1) x[r] = fmaf(-scratch[j * kScratchStride + r], x[j], x[r]);
  }
}

// [W | -W G_path], a column a lane. The scratch holds G transposed, and behind it -G_path transposed.
template <class Op, int kParts>
__device__ __noinline__ void solve_block_carefully(Coefficients<kParts>& to, const float* scratch,
                                                   const std::uint16_t* in_block, int lane) {
  float x[16];
  start_column(x, scratch, lane);
  substitute_carefully(x, scratch, in_block);
  store_column<Op>(lane < 16 ? to.w : to.g, x, lane % 16);
}
template <class Op, int kParts>
__device__ __forceinline__ void solve_block(Coefficients<kParts>& to, const float* scratch,
                                            const std::uint16_t* in_block, int lane) {
  float x[16];
  start_column(x, scratch, lane);
  const bool spoilt = substitute(x, scratch);
  store_column<Op>(lane < 16 ? to.w : to.g, x, lane % 16);
  if (__builtin_expect(spoilt, 0)) solve_block_carefully<Op>(to, scratch, in_block, lane);
}

// l of the node that the path of a step starts below; 0 where that is the state.
__device__ __forceinline__ TwoFloat<float> base_of(const NodeTables& tables, const StepRows& rows) {
  return rows.base_rank == kNone ? TwoFloat<float>{} : tables.l[rows.base_rank];
}

struct PrepOptions {
  bool l2norm;
  float eps, scale;
};

// The whole step once the rows are in the slot. `tables` [kHeads]; `tables_ready` is passed once they are there;
// `converted` and `published` are arrived on when K, Q and their factors, and the coefficients, can be read.
// `bring_next` is called in between, to have the next rows on their way.
template <class Shape, class BringNext>
__device__ __forceinline__ void prepare_step(typename Shape::RingSlot& slot, const NodeTables* tables,
                                             const StepRows& rows, const KeySource& source, const PrepOptions& options,
                                             std::uint64_t* tables_ready, std::uint64_t* converted,
                                             std::uint64_t* published, BringNext&& bring_next, int lane) {
  using Input = typename Shape::Input;
  using Raw = typename Shape::RawOperand;
  using Op = typename Shape::Operand;
  constexpr int K = Shape::K, kParts = Shape::kParts, kHeads = Shape::kHeads;
  constexpr bool kConvert = Shape::kConvert;
  const int tile = rows.tile, first = 16 * rows.block;
  const int row = lane / 4, col = 2 * (lane % 4);  // rows row, row + 8; columns col, col + 1, col + 8, col + 9

  const int on_path = rows.folds ? 0 : path_rows(rows);
  float query_squares[2][4] = {}, path_squares[2][4] = {};
  if (__builtin_expect(options.l2norm, 0)) {
    row_squares<Raw, K>(query_squares, slot.queries + tile_as_a<K>(lane), path_squares, slot.path + tile_as_a<K>(lane));
  }
  RawProducts raw;
  std::uint32_t rough[2];
  if (__builtin_expect(tile > 0, 0)) {  // K and Q are needed once
    raw_products<Raw, false, 2>(raw, rough, slot, lane);
  } else if (on_path == 0) {
    raw_products<Raw, kConvert, 0>(raw, rough, slot, lane);
  } else if (on_path <= 8) {
    raw_products<Raw, kConvert, 1>(raw, rough, slot, lane);
  } else {
    raw_products<Raw, kConvert, 2>(raw, rough, slot, lane);
  }

  // What fp16 did to the rows.
  const Diagonal key(raw.keys, lane), query(query_squares, lane), path(path_squares, lane);
  float key_range = 1, query_range = 1;  // of row lane % 16
  if constexpr (kConvert) {
    unsigned out = Diagonal::here(lane) ? fp16_holds_badly(key.low) | fp16_holds_badly(key.high) << 1 : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 sums = unpack<__nv_bfloat16>(rough[half]);
      out |= static_cast<unsigned>(fp16_holds_badly(sums.x + sums.y)) << (2 + half);
    }
    if (__builtin_expect(tile == 0 && __any_sync(~0u, out != 0), 0)) {
      bring_in_range<K>(slot, source, rows.node, rows.folds, out, lane);
      key_range = slot.of[0].of_key[lane % 16], query_range = slot.of[0].of_query[lane % 16];
    }
  }
  float key_input = 1, query_input = 1;
  if constexpr (!kAsync<Input>)
    key_input = slot.input_factor[0][lane % 16], query_input = slot.input_factor[1][lane % 16];
  const bool plain = kAsync<Input> && !options.l2norm;
  float key_norm = 1, query_norm = 1;  // of row lane % 16: what the products lack of the true rows
  if (!plain) {
    key_norm = row_norm(key.at(lane % 16), key_input, options.l2norm, options.eps);
    query_norm = row_norm(query.at(lane % 16), query_input, options.l2norm, options.eps);
  }

  barrier_wait(tables_ready, 0);
  if (__builtin_expect(rows.folds, 0)) {
    // S <- exp(l_F - l_base) S + sum_j exp(l_F - l_j) k_j u_j^T, F the deepest of the 32 rows (E8).
#pragma unroll 1
    for (int head = 0; head < kHeads; ++head) {
      const TwoFloat<float> l_base = base_of(tables[head], rows), own = tables[head].l[rows.rank];
      const TwoFloat<float> deepest{__shfl_sync(~0u, own.hi, 31), __shfl_sync(~0u, own.lo, 31)};
      const float gamma = exp2_fast(difference(deepest, own));
      Coefficients<kParts>& to = slot.of[head];
      if (lane < 16)
        to.of_key[lane] = gamma * (key_norm * key_range);
      else
        to.of_query[lane - 16] = gamma * (query_norm * query_range);
      if (lane == 0) to.of_value[0] = exp2_fast(difference(deepest, l_base));
    }
    warp_arrive(published, lane);  // in this order: who waits for `converted` alone must find both
    if (lane < kWarpArrivals) barrier_arrive(converted);
    bring_next();
    return;
  }
  if (tile == 0 && lane < 16) {  // E5, E7
    const bool live = rows.node >= 0;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      const float exp_l = exp2_fast(difference(tables[head].l[first + lane], base_of(tables[head], rows))),
                  beta = tables[head].beta[first + lane];
      Coefficients<kParts>& to = slot.of[head];
      to.of_key[lane] = live ? -beta * exp_l * (key_norm * key_range) : 0.f;
      to.of_value[lane] = live ? beta : 0.f;
      to.of_query[lane] = live ? exp_l * (query_norm * query_range * options.scale) : 0.f;
    }
  }
  warp_arrive(converted, lane);
  bring_next();

  // Decay (E3) between the lane's rows and columns. Where the column is no ancestor the exponent may be anything; such
  // entries are selected away.
  float key_col[4] = {1, 1, 1, 1}, path_col[4] = {1, 1, 1, 1};
  if (__builtin_expect(!plain, 0)) {
    const float path_input = kAsync<Input> ? 1.f : slot.input_factor[2][lane % 16];
    const float path_norm = row_norm(path.at(lane % 16), path_input, options.l2norm, options.eps);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      key_col[c] = __shfl_sync(~0u, key_norm, col + 8 * (c / 2) + c % 2);
      path_col[c] = __shfl_sync(~0u, path_norm, col + 8 * (c / 2) + c % 2);
    }
  }
  float* const scratch = reinterpret_cast<float*>(slot.path);
#pragma unroll 1
  for (int head = 0; head < kHeads; ++head) {
    const NodeTables& table = tables[head];
    Coefficients<kParts>& to = slot.of[head];
    TwoFloat<float> l_col[4], l_path[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      l_col[c] = table.l[first + col + 8 * (c / 2) + c % 2];
      l_path[c] = table.l[__shfl_sync(~0u, rows.rank, 16 + col + 8 * (c / 2) + c % 2)];
    }
    __syncwarp();  // all lanes have read the path rows, or the head before's scratch
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      const TwoFloat<float> l = table.l[first + r];
      const std::uint32_t in_block = table.in_block[first + r];
      const std::uint32_t strict = in_block >> col, inclusive = (in_block | 1u << r) >> col;
      const int reach = static_cast<int>(table.prefix[first + r]) - rows.base - 16 * tile - col;
      float beta_key = table.beta[first + r], query_row = options.scale;
      if (__builtin_expect(!plain, 0)) {
        beta_key *= __shfl_sync(~0u, key_norm, r);
        query_row *= __shfl_sync(~0u, query_norm, r);
      }
      float g[4], gp[4], c[4], cp[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 8 * (i / 2) + i % 2, from = 2 * half + i % 2;  // column past col, accumulator index
        float inner = exp2_fast(difference(l, l_col[i])), inner_path = exp2_fast(difference(l, l_path[i]));
        if (__builtin_expect(!plain, 0)) inner *= key_col[i], inner_path *= path_col[i];
        g[i] = keep(bit_mask(strict, j), beta_key * inner * raw.keys[i / 2][from]);
        gp[i] = keep(less_mask(j, reach), -beta_key * inner_path * raw.keys_path[i / 2][from]);
        c[i] = keep(bit_mask(inclusive, j), query_row * inner * raw.queries[i / 2][from]);
        cp[i] = keep(less_mask(j, reach), query_row * inner_path * raw.queries_path[i / 2][from]);
        if (rows.last) {
          scratch[(col + j) * kScratchStride + r] = g[i];
          scratch[(16 + col + j) * kScratchStride + r] = gp[i];
        }
      }
      std::uint32_t low[kParts], high[kParts];
      const auto store = [&](std::uint8_t(&parts)[kParts][512], const float(&x)[4]) {
        split<Op>(low, x[0], x[1]), split<Op>(high, x[2], x[3]);
#pragma unroll
        for (int p = 0; p < kParts; ++p) *reinterpret_cast<uint2*>(parts[p] + 16 * lane + 8 * half) = {low[p], high[p]};
      };
      store(to.c_path, cp);
      if (rows.last)
        store(to.c, c);
      else
        store(to.g, gp);
    }
    if (rows.last) {
      __syncwarp();
      solve_block<Op>(to, scratch, table.in_block + first, lane);
    }
  }
  warp_arrive(published, lane);
}

}  // namespace canopy::cuda
