// Kernel 1 of the solve strategies that are not path-compressed (dense, Neumann, squaring): the 16 x 16 blocks of -G
// and C (E4, E7) below and on the diagonal, once for each (sequence, value head), as tensor-core operands in the
// workspace.
//
// Purpose    blocks (i, j <= i) of depth-first ranks 16 i .. + 15 against 16 j .. + 15. Rank x is r's ancestor or r
//            itself where x <= r <= x + below[x]. Neumann and squaring leave out blocks without an ancestor; dense
//            takes all.
// Precision  raw products of the inputs as they are, summed in fp32; decay in fp32; -G and C in kParts fp16 numbers.
// Grid       x: pairs (I, J <= I) of 64-node blocks, y: value head, z: sequence. Warp w has the row block 4 I + w.
// Dense      In place of -G the 64 x 64 diagonal blocks hold their part of (I + G)^-1, by substitution in fp32.
// Not finite An element of G, or of a power, that fp16 does not hold is stored as 0 and its row marked; kernel 2
// answers
//            with NaN for the subtree of that node. So no product meets 0 * NaN.
// Workspace  BlockArguments.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/tile/factor.cuh"
#include "cuda/tile/prep.cuh"

namespace canopy::cuda {

enum class Method { kDense, kNeumann, kSquaring };

inline constexpr int kWideRows = 64, kWideBlocks = kWideRows / kRows;  // dense: rows of a diagonal block
constexpr int blocks_of(int nodes) { return (nodes + kRows - 1) / kRows; }
CANOPY_HOST_DEVICE constexpr int block_index(int i, int j) { return i * (i + 1) / 2 + j; }
// Powers of -G that squaring needs for T nodes, whose depth is at most T - 1: (-G)^(2^p), 2^p <= depth.
constexpr int most_powers(int nodes) {
  int powers = 1;
  while ((1 << powers) <= nodes - 1) ++powers;
  return powers;
}

struct BlockArguments {
  FusedArguments fused;
  std::uint8_t* operands;       // [B,H,blocks,2,K/16,512]: rows of K, then of Q, as B fragments
  float* factors;               // [B,HV,blocks,3,16]: of key, query and value rows, as in Slot
  std::uint8_t* g;              // [powers,B,HV,pairs,kParts,512]: (-G)^(2^p) as fragments; dense: also the inverses
  std::uint8_t* transposed[2];  // squaring: [B,HV,pairs,kParts,512]: the transpose, of even and of odd powers
  std::uint8_t* c;              // [B,HV,pairs,kParts,512]
  std::uint32_t* marks;         // [powers,B,HV,pairs]: bit r: row r of the block is not finite
  std::int64_t power;           // blocks in one power: B HV pairs
  std::int32_t heads_k, blocks, pairs;

  CANOPY_HOST_DEVICE std::int64_t pair(int b, int head, int i, int j) const {
    return (std::int64_t{b} * fused.heads_v + head) * pairs + block_index(i, j);
  }
};

template <class Input_, int kKeys, int kParts_>
struct BlockShape {
  using Input = Input_;
  using RawOperand = Input;
  using Operand = __half;
  static constexpr bool kConvert = !std::is_same_v<Input, __half>;
  static constexpr int K = kKeys, kParts = kParts_, kHeads = 1;
  static constexpr int kValueBytes = 32, kValuePitch = 48;  // of 16 value columns, tile/values.cuh
  static constexpr int kOperandBytes = K / 16 * 512;        // of the 16 rows of a block
  using RingSlot = Slot<K, kParts>;
};

template <class Shape>
__device__ __forceinline__ std::uint8_t* block_operands(const BlockArguments& a, int b, int key_head, int i) {
  return a.operands + ((std::int64_t{b} * a.heads_k + key_head) * a.blocks + i) * (2 * Shape::kOperandBytes);
}
__device__ __forceinline__ float* block_factors(const BlockArguments& a, int b, int head, int i) {
  return a.factors + ((std::int64_t{b} * a.fused.heads_v + head) * a.blocks + i) * 48;
}

// Bit j: some rank of block i has an ancestor in block j, or j is i. A warp's answer in all its lanes.
__device__ __forceinline__ unsigned touched_blocks(const DevicePlan& plan, int i, int lane) {
  unsigned bits = 1u << i;
  for (int d = lane; d < plan.ancestors[i]; d += 32) bits |= 1u << (plan.path[i][d] / kRows);
  return __reduce_or_sync(~0u, bits);
}

// Blocks are in accumulator layout here, x[e / 4][e % 4] the lane's element e. Its row and column:
__device__ __forceinline__ int row_of(int e, int lane) { return lane / 4 + 8 * (e % 4 / 2); }
__device__ __forceinline__ int column_of(int e, int lane) { return 8 * (e / 4) + 2 * (lane % 4) + e % 2; }

// Puts 0 for the elements that fp16 does not hold and returns their rows, a warp's answer in all its lanes.
__device__ __forceinline__ unsigned take_out_large(float (&x)[2][4], int lane) {
  unsigned rows = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float& each = x[i / 4][i % 4];
    if (fabsf(each) < 65520.f) continue;  // NaN is not
    each = 0;
    rows |= 1u << row_of(i, lane);
  }
  return __reduce_or_sync(~0u, rows);
}

// A block as fragments: of its transpose as B operand, and with the middle registers exchanged of itself as A operand.
template <int kParts>
__device__ __forceinline__ void store_block(std::uint8_t* to, const float (&x)[2][4], int lane) {
  std::uint32_t parts[4][kParts];
#pragma unroll
  for (int i = 0; i < 4; ++i) split<__half>(parts[i], x[i % 2][i / 2 * 2], x[i % 2][i / 2 * 2 + 1]);
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    store_global(to + 512 * p + 16 * lane, {parts[0][p], parts[1][p], parts[2][p], parts[3][p]});
}

// The transpose of a block, through 16 rows of kScratchStride floats.
__device__ __forceinline__ void transpose_block(float (&y)[2][4], const float (&x)[2][4], float* scratch, int lane) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) scratch[row_of(i, lane) * kScratchStride + column_of(i, lane)] = x[i / 4][i % 4];
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i / 4][i % 4] = scratch[column_of(i, lane) * kScratchStride + row_of(i, lane)];
  __syncwarp();
}

inline constexpr int kTriangleStride = kWideRows + 4;  // floats a row

template <class Shape>
struct BlockFactorShared {
  typename Shape::RingSlot slots[kWideBlocks];  // of row blocks 4 I ..; dense: at the end the inverse, by rows
  union {
    std::uint8_t keys[kWideBlocks][16 * kPitch<Shape::K>];  // of column blocks 4 J .., J < I
    float triangle[kWideRows][kTriangleStride];             // dense, J = I: G by columns, [j][i]
  };
  NodeTables tables;
  std::uint8_t below[kNodes];
  FactorBarriers<kWideBlocks> barriers;
};

// What a row lane % 16 lacks of the true one, of keys and queries as they came.
template <class Shape>
__device__ __forceinline__ float raw_norm(const std::uint8_t* tile, const PrepOptions& options, int lane) {
  if (!options.l2norm) return 1;
  float squares[2][4];
  row_squares<typename Shape::RawOperand, Shape::K>(squares, tile + tile_as_a<Shape::K>(lane));
  return row_norm(Diagonal(squares, lane).at(lane % 16), 1, true, options.eps);
}

// -G and C of row block i, whose K and Q are in `slot`, against the K rows of column block j < i.
template <class Shape>
__device__ __forceinline__ void make_block(float (&g)[2][4], float (&c)[2][4], const typename Shape::RingSlot& slot,
                                           const std::uint8_t* columns, const NodeTables& tables,
                                           const std::uint8_t* below, float key_norm, float query_norm,
                                           const PrepOptions& options, int i, int j, int lane) {
  using Raw = typename Shape::RawOperand;
  constexpr int K = Shape::K;
  clear(g), clear(c);
  const std::uint8_t *const keys = slot.keys + tile_as_a<K>(lane), *const queries = slot.queries + tile_as_a<K>(lane),
                            *const columns_b = columns + tile_as_b<K>(lane);
#pragma unroll 2
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t k[4], q[4], x[4];
    load_matrices(k, keys + 32 * s), load_matrices(q, queries + 32 * s), load_matrices(x, columns_b + 32 * s);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mma<Raw>(g[n], k, x[2 * n], x[2 * n + 1]);
      mma<Raw>(c[n], q, x[2 * n], x[2 * n + 1]);
    }
  }
  const float column_norm = raw_norm<Shape>(columns, options, lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half, r = 16 * i + row;
    const TwoFloat<float> l = tables.l[r];
    const float of_g = -tables.beta[r] * __shfl_sync(~0u, key_norm, row),
                of_c = options.scale * __shfl_sync(~0u, query_norm, row);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int n = e / 2, from = 2 * half + e % 2, column = 8 * n + 2 * (lane % 4) + e % 2, x = 16 * j + column;
      const float decay = exp2_fast(difference(l, tables.l[x])) * __shfl_sync(~0u, column_norm, column);
      const std::uint32_t mask = less_mask(r - x, below[x] + 1);
      g[n][from] = keep(mask, of_g * decay * g[n][from]);
      c[n][from] = keep(mask, of_c * decay * c[n][from]);
    }
  }
}

// Dense: the inverse of I + G of 64 rows, G by columns in `triangle`, by substitution; thread t makes column t. A row
// takes what is its ancestor's alone.
template <class Shape>
__device__ __forceinline__ void invert_rows(float (*inverse)[kTriangleStride], BlockFactorShared<Shape>& shared,
                                            int first) {
  const int column = threadIdx.x;
  for (int top = 0; top < kWideRows; top += 16) {
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) x[r] = top + r == column ? 1.f : 0.f;
    const auto subtract = [&](int j, float at_j) {
      const int last = min(j + shared.below[first + j], top + 15);  // rows j + 1 .. last descend from j
#pragma unroll
      for (int r = 0; r < 16; r += 4) {
        const float4 g = *reinterpret_cast<const float4*>(&shared.triangle[j][top + r]);
        const float each[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (top + r + e > j && top + r + e <= last) x[r + e] = fmaf(-each[e], at_j, x[r + e]);
      }
    };
    for (int j = 0; j < top; ++j) subtract(j, inverse[j][column]);
#pragma unroll
    for (int j = 0; j < 15; ++j) subtract(top + j, x[j]);
#pragma unroll
    for (int r = 0; r < 16; ++r) inverse[top + r][column] = x[r];
  }
}

// What prepare_step() left of row block i: K and Q as operands, factors, C of the diagonal block.
template <class Shape>
__device__ __forceinline__ void store_prepared(const BlockArguments& arguments, const FusedWork& work,
                                               const typename Shape::RingSlot& slot, int i, int lane) {
  if (writes_operands(arguments.fused, work)) {
    std::uint8_t* const to = block_operands<Shape>(arguments, work.b, work.key_head, i) + 16 * lane;
    for (int s = 0; s < Shape::K / 16; ++s) {
      std::uint32_t x[4];
      load_matrices(x, slot.keys + tile_as_b<Shape::K>(lane) + 32 * s);
      store_global(to + 512 * s, {x[0], x[1], x[2], x[3]});
      load_matrices(x, slot.queries + tile_as_b<Shape::K>(lane) + 32 * s);
      store_global(to + Shape::kOperandBytes + 512 * s, {x[0], x[1], x[2], x[3]});
    }
  }
  const auto& own = slot.of[0];
  float* const factors = block_factors(arguments, work.b, work.head, i);
  if (lane < 16)
    factors[lane] = own.of_key[lane], factors[16 + lane] = own.of_query[lane], factors[32 + lane] = own.of_value[lane];
  std::uint8_t* const c = arguments.c + arguments.pair(work.b, work.head, i, i) * (512 * Shape::kParts);
#pragma unroll
  for (int p = 0; p < Shape::kParts; ++p) store_global(c + 512 * p + 16 * lane, load_shared(own.c[p] + 16 * lane));
}

template <class Shape, Method kMethod>
__global__ void __launch_bounds__(32 * kWideBlocks, 1)
    block_factor_kernel(const __grid_constant__ BlockArguments arguments) {
  constexpr int K = Shape::K, kParts = Shape::kParts, kThreads = 32 * kWideBlocks;
  using Op = typename Shape::Operand;
  static_assert(sizeof(BlockFactorShared<Shape>) <= 101376, "more shared memory than a block may have on sm_120");
  auto& shared = *reinterpret_cast<BlockFactorShared<Shape>*>(dynamic_shared());
  const FusedArguments& of = arguments.fused;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  FactorBarriers<kWideBlocks>& barriers = shared.barriers;
  barriers.start();
  FusedWork work = work_of_cta(of, 0);
  int wide_i = 0, wide_j = blockIdx.x;
  while (wide_j > wide_i) wide_j -= ++wide_i;
  const DevicePlan& plan = of.plans[work.b];
  touch(fetched);
  __syncthreads();
  begin_after_previous_kernel();

  TableLoads<kThreads> loads;
  loads.start(plan, of.nodes, threadIdx.x, [&](int node) { return fused_gate(of, work.b, node, work.head); });
  const FusedRow row(of, plan, work.b);
  row.give(work);
  if (!row.computes() || kWideRows * wide_i >= row.count) return;

  // Rows: K and Q of the warp's row block, and K of one of the column blocks.
  const KeySource source{of.k.of(work.b, work.key_head), of.q.of(work.b, work.key_head), of.k.node, of.q.node};
  const PrepOptions options{of.l2norm, of.l2norm_eps, of.scale};
  typename Shape::RingSlot& slot = shared.slots[warp];
  const int i = kWideBlocks * wide_i + warp, rank = 16 * i + lane % 16;
  StepRows rows{};
  rows.rank = lane < 16 && rank < work.count ? rank : 0;
  rows.node = lane < 16 && rank < work.count ? plan.order[rank] : -1;
  rows.block = i, rows.base_rank = kNone, rows.last = true;
  const bool live = i < work.blocks;
  if (wide_j < wide_i) {
    constexpr int chunks = K / 8, at_once = 32 / chunks;
    const int first = 16 * (kWideBlocks * wide_j + warp), row0 = lane / chunks, chunk = 16 * (lane % chunks);
#pragma unroll 2
    for (int row = row0; row < 16; row += at_once)
      copy_async(shared.keys[warp] + row * kPitch<K> + chunk,
                 source.keys + std::uint64_t{plan.order[first + row]} * source.key_step + chunk, true);
  }
  start_rows(slot, source, rows, &barriers.loaded[warp], lane);
  loads.store(shared.tables, work.count, threadIdx.x);
  for (int r = threadIdx.x; r < kNodes; r += kThreads) shared.below[r] = r < work.count ? plan.below[r] : 0;
  __syncthreads();
  accumulate_gates<kThreads>(shared.tables, work.count, threadIdx.x);
  warp_arrive(&barriers.tables_ready, lane);
  barrier_wait(&barriers.loaded[warp], 0);
  __syncthreads();

  const unsigned touched = !live ? 0u : kMethod == Method::kDense ? ~0u : touched_blocks(plan, i, lane);
  const float key_norm = raw_norm<Shape>(slot.keys, options, lane),
              query_norm = raw_norm<Shape>(slot.queries, options, lane);
  const auto write = [&](int j, float(&g)[2][4]) {
    const std::int64_t pair = arguments.pair(work.b, work.head, i, j);
    const unsigned bad = take_out_large(g, lane);
    if (lane == 0) arguments.marks[pair] = bad;
    if (kMethod == Method::kDense && wide_j == wide_i) {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        shared.triangle[16 * (j % kWideBlocks) + column_of(e, lane)][16 * warp + row_of(e, lane)] = -g[e / 4][e % 4];
      return;
    }
    store_block<kParts>(arguments.g + pair * (512 * kParts), g, lane);
    if constexpr (kMethod == Method::kSquaring) {
      float turned[2][4];
      transpose_block(turned, g, reinterpret_cast<float*>(slot.path), lane);
      store_block<kParts>(arguments.transposed[0] + pair * (512 * kParts), turned, lane);
    }
  };
  for (int e = 0; e < kWideBlocks; ++e) {
    const int j = kWideBlocks * wide_j + e;
    if (j >= i || !(touched >> j & 1)) continue;
    float g[2][4], c[2][4];
    make_block<Shape>(g, c, slot, wide_j < wide_i ? shared.keys[e] : shared.slots[e].keys, shared.tables, shared.below,
                      key_norm, query_norm, options, i, j, lane);
    write(j, g);
    // What fp16 does not hold of C makes outputs of its own row infinite or NaN, no other's.
    store_block<kParts>(arguments.c + arguments.pair(work.b, work.head, i, j) * (512 * kParts), c, lane);
  }
  if (wide_j == wide_i) {
    __syncthreads();  // other warps have read the rows
    if (live) {
      prepare_step<Shape>(
          slot, &shared.tables, rows, source, options, &barriers.tables_ready, &barriers.converted[warp],
          &barriers.published[warp], [] {}, lane);
      __syncwarp();
      store_prepared<Shape>(arguments, work, slot, i, lane);
      float g[2][4];
      const float* scratch = reinterpret_cast<const float*>(slot.path);  // G by columns
#pragma unroll
      for (int e = 0; e < 8; ++e) g[e / 4][e % 4] = -scratch[column_of(e, lane) * kScratchStride + row_of(e, lane)];
      write(i, g);
    }
  }
  if constexpr (kMethod == Method::kDense) {
    if (wide_j == wide_i) {
      auto* const inverse = reinterpret_cast<float(*)[kTriangleStride]>(&shared.slots[0]);
      static_assert(sizeof(shared.slots) >= sizeof(shared.triangle));
      __syncthreads();
      if (threadIdx.x < kWideRows) invert_rows(inverse, shared, kWideRows * wide_i);
      __syncthreads();
      for (int e = 0; live && e <= warp; ++e) {
        float w[2][4];
#pragma unroll
        for (int x = 0; x < 8; ++x) w[x / 4][x % 4] = inverse[16 * warp + row_of(x, lane)][16 * e + column_of(x, lane)];
        const std::int64_t pair = arguments.pair(work.b, work.head, i, kWideBlocks * wide_i + e);
        const unsigned bad = take_out_large(w, lane);
        store_block<kParts>(arguments.g + pair * (512 * kParts), w, lane);
        if (lane == 0) arguments.marks[pair] |= bad;
      }
    }
  }
  if (blockIdx.x == 0 && of.l.data) {
    for (int r = threadIdx.x; r < work.count; r += kThreads)
      *reinterpret_cast<float*>(of.l.of(work.b, work.head) + std::int64_t{shared.tables.order[r]} * of.l.node) =
          natural(shared.tables.l[r]);
  }
}

}  // namespace canopy::cuda
