// What small_tree.cuh keeps in shared memory, and its prep warps.
#pragma once

#include "cuda/tile/prep.cuh"
#include "cuda/tile/work.cuh"

namespace canopy::cuda {

struct SmallShape {
  static constexpr int K = 128, kBlocks = 4, kTreeNodes = 16 * kBlocks, kColumns = 32;
  static constexpr int kGroups = kColumns / 16, kSolverWarps = 2 * kGroups, kPrepWarps = 2 * kBlocks;
  static constexpr int kSolverThreads = 32 * kSolverWarps, kPrepThreads = 32 * kPrepWarps;
  static constexpr int kThreads = kSolverThreads + kPrepThreads;
  static constexpr int kFirstTableThread = kSolverThreads - kTreeNodes;  // from here on a solver thread has a rank
  static constexpr int kFarTiles = (kBlocks - 1) * (kBlocks - 2) / 2;    // of path rows above the last 16, at most
};

struct SmallShared {
  static constexpr int K = SmallShape::K, kBlocks = SmallShape::kBlocks, kTreeNodes = SmallShape::kTreeNodes,
                       kGroups = SmallShape::kGroups;
  union {
    std::uint8_t rows[2][kTreeNodes * kPitch<K>];  // K and Q by node, as they came
    struct {                                       // once all of them have been multiplied:
      Coefficients<1> of[kBlocks];
      alignas(16) float scratch[kBlocks][2 * 16 * kScratchStride];  // of the substitution; later O on its way out
      alignas(16) std::uint8_t r[kGroups][kBlocks][1][512];         // R as fragments
      alignas(16) float o[kGroups][kBlocks][2][32][4];              // exp(l) S0^T q, by lane
    } then;
  };
  std::uint8_t operands[2][kTreeNodes * kPitch<K>];  // by rank, in fp16
  union {
    StateStage<K> state;
    alignas(16) std::uint8_t u[32 * (kTreeNodes + 8)];  // later: U by rank, then a row of zeros
  } of_columns[kGroups];
  alignas(16) std::uint8_t values[kGroups][32 * kTreeNodes];       // V by node
  alignas(16) std::uint8_t far[2][SmallShape::kFarTiles][1][512];  // -G and C against path rows above the last 16
  // By rank.
  std::int64_t gate[kTreeNodes + 1];  // and none
  TwoFloat<float> l[kTreeNodes];
  alignas(16) std::uint8_t up[kTreeNodes][kUp];
  alignas(16) float of_key[kTreeNodes], of_query[kTreeNodes], of_value[kTreeNodes];  // factors of S0^T k, S0^T q and v
  alignas(16) float norm[2][kTreeNodes];                                             // of K and Q, under l2norm
  alignas(16) float in_range[2][kTreeNodes];  // where `rescaled`: undoes the power of two an operand was divided by
  std::uint16_t in_block[kTreeNodes];
  alignas(16) std::uint8_t order[kTreeNodes], path[kBlocks][kTreeNodes], ancestors[kNodes / kRows], prefix[kTreeNodes];
  bool rescaled[2][kBlocks];
  unsigned nan_nodes[kGroups][kBlocks];
  std::uint64_t solved[kGroups][kBlocks];  // U of a block is there
};

namespace small {

inline constexpr int K = SmallShape::K;

// Named barriers: K and Q are there (prep warps); they have been multiplied; tables; norms; coefficients.
enum : int { kRowsThere = 2, kMultiplied = 3, kTables = 4, kNorms = 5, kPublished = 6 };

// The lane's row of ldmatrix as B, or transposed.
__device__ __forceinline__ int lane_row(int lane) { return lane / 16 * 8 + lane % 8; }
__device__ __forceinline__ int tiles_of_path(int ancestors) { return max(1, (ancestors + 15) / 16); }
__device__ __forceinline__ int first_far_tile(int block) { return (block - 1) * (block - 2) / 2; }

// Ranks past the end are nodes of their own, which are zero.
__device__ __forceinline__ int node_of(const SmallShared& shared, int rank, int count) {
  return rank < count ? shared.order[rank] : rank;
}

// Byte of the lane's ldmatrix row in a tile whose row r is that of the node that lane r gives, 16 elements wide as A;
// and of its first 8 rows, 32 elements wide.
__device__ __forceinline__ std::uint32_t row_as_a(int node, int lane) {
  return __shfl_sync(~0u, node, (lane / 8) % 2 * 8 + lane % 8) * kPitch<K> + lane / 16 * 16;
}
__device__ __forceinline__ std::uint32_t row_as_b(int node, int lane, int from = 0) {
  return __shfl_sync(~0u, node, from + lane % 8) * kPitch<K> + lane / 8 * 16;
}

// d = x y^T over K, of 16 rows each: the lane's ldmatrix rows as A.
__device__ __forceinline__ void multiply_rows(float (&d)[2][4], const std::uint8_t* x_rows,
                                              const std::uint8_t* y_rows) {
  clear(d);
#pragma unroll 4
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4], y[4];
    load_matrices(x, x_rows + 32 * s);
    load_matrices(y, y_rows + 32 * s);
    mma<__nv_bfloat16>(d[0], x, y[0], y[2]);
    mma<__nv_bfloat16>(d[1], x, y[1], y[3]);
  }
}

// What a tile's columns are: l, and under l2norm the keys' norms.
struct TileColumns {
  TwoFloat<float> l[4];
  float norm[4];
  // `rank_at`: rank of column c of 16.
  template <class RankAt>
  __device__ __forceinline__ TileColumns(const SmallShared& shared, bool l2norm, int lane, RankAt&& rank_at) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int rank = rank_at(2 * (lane % 4) + 8 * (c / 2) + c % 2);
      l[c] = shared.l[rank];
      if (__builtin_expect(l2norm, 0)) norm[c] = shared.norm[0][rank];
    }
  }
};
// factor * decay * product (E3) of the lane's row half; where the column is no ancestor it may be anything.
__device__ __forceinline__ void decayed(float (&x)[4], const float (&product)[2][4], int half, TwoFloat<float> l_row,
                                        float factor, const TileColumns& of, bool l2norm) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float decay = exp2_fast(difference(l_row, of.l[i]));
    if (__builtin_expect(l2norm, 0)) decay *= of.norm[i];
    x[i] = factor * decay * product[i / 2][2 * half + i % 2];
  }
}

// A prep warp: side 0 for K, 1 for Q. The rows of its block's nodes are under way, and the plan's lists.
__device__ __forceinline__ void prepare(SmallShared& shared, const FusedArguments& arguments, const FusedWork& work,
                                        int block, int side, int lane) {
  const bool l2norm = arguments.l2norm;
  const int first = 16 * block, row = lane / 4, col = 2 * (lane % 4);
  wait_for_all_copies();
  if (__builtin_expect(work.count < first + 16, 0)) {  // rows past the end that T still has
    for (int r = lane / 8; r < 16; r += 4)
      if (first + r >= work.count)
        for (int i = 0; i < 2; ++i)
          store_shared(shared.rows[side] + (first + r) * kPitch<K> + 16 * (lane % 8 + 8 * i), {});
  }
  wait_at(kRowsThere, SmallShape::kPrepThreads);
  const bool works = block < work.blocks;
  float own[2][4], path[2][4];
  const int ancestors = works ? shared.ancestors[block] : 0, last = tiles_of_path(ancestors) - 1;
  const auto path_rank = [&](int tile) {  // of path row lane % 16; any rank past the path
    const int depth = 16 * tile + lane % 16;
    return depth < ancestors ? static_cast<int>(shared.path[block][depth]) : first;
  };
  const std::uint8_t* rows = shared.rows[side];
  int last_rank = 0;
  if (works) {
    const int node = node_of(shared, first + lane % 16, work.count);
    const std::uint32_t at = row_as_a(node, lane);
    last_rank = path_rank(last);
    rows += at;
    const std::uint8_t *const keys = shared.rows[0] + at,
                              *const path_keys = shared.rows[0] + row_as_b(shared.order[last_rank], lane),
                              *const more_keys = shared.rows[0] + row_as_b(shared.order[last_rank], lane, 8);
    std::uint8_t* const operands = shared.operands[side] + first * kPitch<K>;
    const bool wide = ancestors - 16 * last > 8;
    std::uint32_t squares[2] = {};
    clear(own), clear(path);
    // All loads before the first product: the compiler keeps the order in which it finds them. K's warp loads its rows
    // twice; a branch around that costs more.
    std::uint32_t x[K / 16][4], k[K / 16][4], p[K / 32][4];
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
      load_matrices(x[s], rows + 32 * s);
      load_matrices(k[s], keys + 32 * s);
      if (s % 2 == 0) load_matrices(p[s / 2], path_keys + 32 * s);
    }
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
      mma<__nv_bfloat16>(own[0], x[s], k[s][0], k[s][2]);
      mma<__nv_bfloat16>(own[1], x[s], k[s][1], k[s][3]);
      mma<__nv_bfloat16>(path[0], x[s], p[s / 2][s % 2 * 2], p[s / 2][s % 2 * 2 + 1]);
    }
    if (wide) {
#pragma unroll
      for (int pair = 0; pair < K / 32; ++pair) {
        load_matrices(p[pair], more_keys + 64 * pair);
        mma<__nv_bfloat16>(path[1], x[2 * pair], p[pair][0], p[pair][1]);
        mma<__nv_bfloat16>(path[1], x[2 * pair + 1], p[pair][2], p[pair][3]);
      }
    }
#pragma unroll
    for (int s = 0; s < K / 16; ++s) {
#pragma unroll
      for (int j = 0; j < 4; ++j) add_squares(squares[j % 2], x[s][j]);
      to_half(x[s]);
      store_matrices(operands + tile_as_a<K>(lane) + 32 * s, x[s]);
    }
    unsigned bad = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 sums = unpack<__nv_bfloat16>(squares[half]);
      bad |= static_cast<unsigned>(fp16_holds_badly(sums.x + sums.y)) << half;
    }
    const bool rescales = __any_sync(~0u, bad != 0);
    if (lane == 0) shared.rescaled[side][block] = rescales;
    if (__builtin_expect(rescales, 0)) {
      const Rows& source = side == 0 ? arguments.k : arguments.q;
      bring_in_range<K>(operands, shared.in_range[side] + first, source.of(work.b, work.key_head), source.node,
                        lane < 16 && first + lane < work.count ? node : -1, 0, bad, lane);
    }
  }
  float row_factors[2];  // of rows row and row + 8
  const auto find_row_factors = [&] {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first + row + 8 * half;
      row_factors[half] = side == 0 ? shared.of_value[r] : arguments.scale;
      if (__builtin_expect(l2norm, 0)) row_factors[half] *= shared.norm[side][r];
    }
  };
  if (__builtin_expect(l2norm, 0)) {
    if (works) {
      float squares[2][4];
      if (side == 0) {
#pragma unroll
        for (int i = 0; i < 8; ++i) squares[i / 4][i % 4] = own[i / 4][i % 4];
      } else {
        row_squares<__nv_bfloat16, K>(squares, rows);
      }
      const float norm = row_norm(Diagonal(squares, lane).at(lane % 16), 1, true, arguments.l2norm_eps);
      if (lane < 16) shared.norm[side][first + lane] = norm;
    }
    wait_at(kNorms, SmallShape::kThreads);
  }
  // Path rows above the last 16, while K and Q are still as they came. All warps know whether some block has such.
  const bool deep = __any_sync(~0u, lane < work.blocks && shared.ancestors[lane % (kNodes / kRows)] > 16);
  if (__builtin_expect(deep, 0)) {
    wait_at(kTables, SmallShape::kThreads);
    find_row_factors();
#pragma unroll 1
    for (int tile = 0; tile < last; ++tile) {
      const int rank = path_rank(tile);
      float product[2][4];
      multiply_rows(product, rows, shared.rows[0] + row_as_a(shared.order[rank], lane));
      const TileColumns columns(shared, l2norm, lane, [&](int c) { return __shfl_sync(~0u, rank, c); });
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = first + row + 8 * half, reach = static_cast<int>(shared.prefix[r]) - 16 * tile - col;
        float x[4];
        decayed(x, product, half, shared.l[r], side == 0 ? -row_factors[half] : row_factors[half], columns, l2norm);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = keep(less_mask(8 * (i / 2) + i % 2, reach), x[i]);
        *reinterpret_cast<uint2*>(shared.far[side][first_far_tile(block) + tile][0] + 16 * lane + 8 * half) = {
            pack_half(x[0], x[1]), pack_half(x[2], x[3])};
      }
    }
  }
  wait_at(kMultiplied, SmallShape::kThreads);
  if (!deep) {
    wait_at(kTables, SmallShape::kThreads);
    find_row_factors();
  }
  if (works) {
    const TileColumns inner(shared, l2norm, lane, [&](int c) { return first + c; });
    const TileColumns outer(shared, l2norm, lane, [&](int c) { return __shfl_sync(~0u, last_rank, c); });
    float* const scratch = shared.then.scratch[block];
    Coefficients<1>& to = shared.then.of[block];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      const TwoFloat<float> l_row = shared.l[first + r];
      const std::uint32_t in_block = shared.in_block[first + r];
      const std::uint32_t mask = (side == 0 ? in_block : in_block | 1u << r) >> col;
      const int reach = static_cast<int>(shared.prefix[first + r]) - 16 * last - col;
      float x[4], y[4];
      decayed(x, own, half, l_row, row_factors[half], inner, l2norm);
      decayed(y, path, half, l_row, side == 0 ? -row_factors[half] : row_factors[half], outer, l2norm);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 8 * (i / 2) + i % 2;
        x[i] = keep(bit_mask(mask, j), x[i]);
        y[i] = keep(less_mask(j, reach), y[i]);
        if (side == 0) {
          scratch[(col + j) * kScratchStride + r] = x[i];
          scratch[(16 + col + j) * kScratchStride + r] = y[i];
        }
      }
      if (side == 1) {
        *reinterpret_cast<uint2*>(to.c[0] + 16 * lane + 8 * half) = {pack_half(x[0], x[1]), pack_half(x[2], x[3])};
        *reinterpret_cast<uint2*>(to.c_path[0] + 16 * lane + 8 * half) = {pack_half(y[0], y[1]), pack_half(y[2], y[3])};
      }
    }
    if (side == 0) {
      __syncwarp();
      solve_block<__half>(to, scratch, shared.in_block + first, lane);
    }
  }
  __syncwarp();
  arrive_at(kPublished, SmallShape::kThreads);
}

}  // namespace small
}  // namespace canopy::cuda
