// Kernel 2 of the solve strategies that are not path-compressed: R (E5), the solve of (I + G) U = R (E6) in one of
// three ways, and O (E7), for 32 value columns of all nodes, from the blocks that kernel 1 left in the workspace.
//
// dense      64 nodes after another: U = W (R - G U of all blocks before), W = (I + G)^-1 of the 64 rows.
// neumann    Z = R, U = R; depth times Z <- -G Z, U <- U + Z. After m rounds Z is exactly 0 above depth m: such blocks
//            are passed over.
// squaring   U = R; U <- U + P U with P = -G, G^2, G^4, ... while 2^p <= depth (block_powers.cuh).
//
// Grid       x: 32 value columns, y: value head, z: sequence.
// Warps      8: two groups of 16 columns, and of each group four warps; warp `part` has the row blocks part, part + 4,
//            ..., whose U it keeps in registers (4 x 8 floats), S0 of its columns beside it. What others read, Z or U
//            as operands, lies in shared memory; rounds are separated by barriers of the CTA.
// Not finite Nodes whose R, Z or U, or whose row of -G or of a power, is not finite are taken out of the operands and
//            marked; at the end their subtrees become NaN. Powers that overflow fp16 end there too.
// Keeps      a row's bits do not depend on the batch.
#pragma once

#include "cuda/blocks.cuh"
#include "cuda/instances/blocks.hpp"
#include "cuda/tile/solve.cuh"

namespace canopy::cuda {

inline constexpr int kApplyColumns = 32, kApplyGroups = kApplyColumns / 16, kApplyWarps = kApplyGroups * kWideBlocks;
inline constexpr int kApplyThreads = 32 * kApplyWarps, kRowBlocks = kBlocks / kWideBlocks;  // row blocks of a warp

template <int kParts>
struct BlockApplyShared {
  std::uint8_t z[kApplyGroups][kBlocks][kParts][512];  // Z or U of a block as A fragments
  alignas(16) std::uint8_t values[kApplyWarps][16 * 48];
  alignas(16) float stage[kApplyWarps][16 * kStageStride];
  std::uint64_t values_loaded[kApplyWarps];
  unsigned spoilt[kApplyGroups][kBlocks];  // bit r: node of rank 16 block + r
  unsigned touched[kBlocks];               // touched_blocks()
  int deepest[kBlocks];                    // largest depth of a node in the block
  std::uint8_t order[kNodes], below[kNodes];
};

template <class Op, int K, int kParts>
__device__ __forceinline__ void state_products(float (&d)[1][2][4], const StateTile<K, kParts>& state,
                                               const std::uint8_t* fragments, int lane) {
  clear(d[0]);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
    const uint4 x = load_shared(fragments + 512 * s + 16 * lane);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      mma<Op>(d[0][0], state.a[s][p], x.x, x.y);
      mma<Op>(d[0][1], state.a[s][p], x.z, x.w);
    }
  }
}

// d += Z of block j times the block's fragments, a 16 x 16 block of coefficients.
template <int kParts>
__device__ __forceinline__ void add_block(float (&d)[1][2][4], const std::uint8_t (&z)[kParts][512],
                                          const std::uint8_t* coefficients, int lane) {
  std::uint32_t a[1][kParts][4], b[kParts][4];
  read_fragment(a[0], z, lane);
  read_fragment(b, *reinterpret_cast<const std::uint8_t(*)[kParts][512]>(coefficients), lane);
  accumulate<__half>(d, a, b);
}

// A tile as operand for the other warps; nodes that are not finite are taken out of it and marked in `spoilt`.
template <int kParts>
__device__ __forceinline__ void hand_over(std::uint8_t (&z)[kParts][512], unsigned& spoilt, const float (&x)[1][2][4],
                                          int lane) {
  std::uint32_t a[kParts][4];
  to_operand<__half>(a, x[0]);
  if (__builtin_expect(any_spoilt(spoilt_by<__half>(a[0])), 0)) {
    const unsigned nodes = spoilt_nodes<__half>(a[0], lane);
    clear_nodes(a, nodes, lane);
    if (lane == 0) spoilt |= nodes;
  }
#pragma unroll
  for (int p = 0; p < kParts; ++p) store_shared(z[p] + 16 * lane, {a[p][0], a[p][1], a[p][2], a[p][3]});
}

// Nodes of block i that are spoilt or have a spoilt ancestor.
__device__ __forceinline__ unsigned spoilt_subtrees(const unsigned (&spoilt)[kBlocks], const std::uint8_t* below, int i,
                                                    int lane) {
  const unsigned words = lane <= i ? spoilt[lane] : 0;
  if (__builtin_expect(!__any_sync(~0u, words != 0), 1)) return 0;
  const int r = 16 * i + lane % 16;
  bool bad = false;
  for (int j = 0; j <= i; ++j)
    for (unsigned left = __shfl_sync(~0u, words, j); left; left &= left - 1) {
      const int x = 16 * j + __ffs(left) - 1;
      bad |= x <= r && r <= x + below[x];
    }
  return __ballot_sync(~0u, bad) & 0xffff;
}

// What a warp of the solve has at hand besides its U: u[n] is of row block part + kWideBlocks n.
template <int kParts>
struct SolveWarp {
  std::uint8_t (&z)[kBlocks][kParts][512];  // of its 16 columns, as the other warps read it
  unsigned (&spoilt)[kBlocks];
  const unsigned (&touched)[kBlocks];
  const int (&deepest)[kBlocks];
  const std::uint8_t* g;
  int blocks, depth, part, lane;

  __device__ __forceinline__ int row_block(int n) const { return part + kWideBlocks * n; }
  __device__ __forceinline__ void give(int i, const float (&x)[1][2][4]) const { hand_over(z[i], spoilt[i], x, lane); }
};
using RowBlocks = float[kRowBlocks][1][2][4];

// 64 rows after another.
template <int kParts>
__device__ __forceinline__ void solve_dense(RowBlocks& u, const SolveWarp<kParts>& own) {
#pragma unroll
  for (int n = 0; n < kRowBlocks; ++n) {
    const int i = own.row_block(n), first = kWideBlocks * n;
    if (first >= own.blocks) continue;
    const bool live = i < own.blocks;
    const auto add = [&](int j) { add_block(u[n], own.z[j], own.g + block_index(i, j) * (512 * kParts), own.lane); };
    if (live) {
      for (int j = 0; j < first; ++j) add(j);
      own.give(i, u[n]);
    }
    __syncthreads();
    if (live) {
      clear(u[n][0]);
      for (int j = first; j <= i; ++j) add(j);
    }
    __syncthreads();
    if (live) own.give(i, u[n]);
    __syncthreads();
  }
}

// `power`: blocks from one power of -G to the next.
template <Method kMethod, int kParts>
__device__ __forceinline__ void solve_series(RowBlocks& u, const SolveWarp<kParts>& own, std::int64_t power) {
  constexpr int kBytes = 512 * kParts;
  constexpr bool kNeumann = kMethod == Method::kNeumann;
  for (int round = 0;; ++round) {
    // Nodes less deep than `reach` get nothing in this round, and those less deep than `from` have nothing to give.
    const int reach = kNeumann ? round + 1 : 1 << round, from = kNeumann ? round : 0;
    if (reach > own.depth) break;
    const unsigned gives = __ballot_sync(~0u, own.lane < own.blocks && own.deepest[own.lane % kBlocks] >= from);
    const std::uint8_t* const coefficients = kNeumann ? own.g : own.g + round * power * kBytes;
    RowBlocks next;
#pragma unroll
    for (int n = 0; n < kRowBlocks; ++n) {
      const int i = own.row_block(n);
      clear(next[n][0]);
      if (i >= own.blocks || own.deepest[i] < reach) continue;
      for (unsigned left = own.touched[i] & gives; left; left &= left - 1) {
        const int j = __ffs(left) - 1;
        add_block(next[n], own.z[j], coefficients + block_index(i, j) * kBytes, own.lane);
      }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < kRowBlocks; ++n) {
      const int i = own.row_block(n);
      if (i >= own.blocks || own.deepest[i] < reach) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) u[n][0][e / 4][e % 4] += next[n][0][e / 4][e % 4];
      own.give(i, kNeumann ? next[n] : u[n]);
    }
    __syncthreads();
  }
  if constexpr (kNeumann) {  // what the others have is Z
#pragma unroll
    for (int n = 0; n < kRowBlocks; ++n)
      if (own.row_block(n) < own.blocks) own.give(own.row_block(n), u[n]);
    __syncthreads();
  }
}

template <class Shape, Method kMethod>
__global__ void __launch_bounds__(kApplyThreads, 1)
    block_apply_kernel(const __grid_constant__ BlockArguments arguments) {
  constexpr int K = Shape::K, kParts = Shape::kParts, kBytes = 512 * kParts;
  using Input = typename Shape::Input;
  using Op = typename Shape::Operand;
  using Shared = BlockApplyShared<kParts>;
  static_assert(sizeof(Shared) <= 101376, "more shared memory than a block may have on sm_120");
  auto& shared = *reinterpret_cast<Shared*>(dynamic_shared());
  const FusedArguments& of = arguments.fused;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp % kApplyGroups, part = warp / kApplyGroups;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  if (lane == 0) barrier_init(&shared.values_loaded[warp], 32);
  FusedWork work = work_of_cta(of, blockIdx.x * kApplyColumns);
  const DevicePlan& plan = of.plans[work.b];
  touch(fetched);
  begin_after_previous_kernel();
  const FusedRow row(of, plan, work.b);
  row.give(work);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && of.row_status) of.row_status[work.b] = row.status;
  if (row.status == CANOPY_ROW_BAD_TREE) write_nan<kApplyColumns, kApplyThreads>(of, work, threadIdx.x);
  if (!row.computes()) return;

  const int blocks = work.blocks, count = work.count, depth = plan.depth, column = work.column + 16 * group;
  StateElements<K> elements;
  load_state<K>(elements, of.state, of.state_vk, work.slot, work.head, column, lane);
  const int powers = kMethod != Method::kSquaring ? 1 : depth == 0 ? 0 : 32 - __clz(depth);
  {
    const int r = threadIdx.x;
    static_assert(kApplyThreads == kNodes);
    shared.order[r] = r < count ? plan.order[r] : 0;
    shared.below[r] = r < count ? plan.below[r] : 0;
    int deepest = r < count ? plan.depths[r] : 0;
#pragma unroll
    for (int step = 1; step < kRows; step *= 2) deepest = max(deepest, __shfl_xor_sync(~0u, deepest, step));
    if (r % kRows == 0) shared.deepest[r / kRows] = deepest;
  }
  for (int i = warp; i < blocks; i += kApplyWarps) {
    const unsigned touched = kMethod == Method::kDense ? (2u << i) - 1 : touched_blocks(plan, i, lane);
    unsigned marked = 0;
    if (lane <= i && (touched >> lane & 1)) {
      for (int p = 0; p < powers; ++p)
        marked |= arguments.marks[p * arguments.power + arguments.pair(work.b, work.head, i, lane)];
    }
    marked = __reduce_or_sync(~0u, marked);
    if (lane == 0) {
      shared.touched[i] = touched;
#pragma unroll
      for (int g = 0; g < kApplyGroups; ++g) shared.spoilt[g][i] = marked;
    }
  }
  StateTile<K, kParts> state;
  convert_state<Op>(state, elements, true);
  __syncthreads();

  const std::int64_t first_pair = arguments.pair(work.b, work.head, 0, 0);
  const SolveWarp<kParts> own{shared.z[group],
                              shared.spoilt[group],
                              shared.touched,
                              shared.deepest,
                              arguments.g + first_pair * kBytes,
                              blocks,
                              depth,
                              part,
                              lane};
  const std::uint8_t* const c = arguments.c + first_pair * kBytes;

  // R = beta (v - exp(l) S0^T k)   (E5)
  RowBlocks u;
  const char* const values =
      of.v.of(work.b, work.head) + column * static_cast<int>(sizeof(Input)) + value_chunk<Shape>(lane);
#pragma unroll
  for (int n = 0; n < kRowBlocks; ++n) {
    const int i = own.row_block(n);
    if (i >= blocks) continue;
    __syncwarp();
    start_values<Shape>(shared.values[warp], &shared.values_loaded[warp], values, of.v.node, shared.order + 16 * i,
                        count - 16 * i, lane);
    state_products<Op>(u[n], state, block_operands<Shape>(arguments, work.b, work.key_head, i), lane);
    const float* const factors = block_factors(arguments, work.b, work.head, i);
    float of_key[2][2], of_value[2][2], v[2][4];
    read_factors(of_key, factors, lane);
    read_factors(of_value, factors + 32, lane);
    barrier_wait(&shared.values_loaded[warp], n & 1);
    __syncwarp();
    read_values<Shape>(v, shared.values[warp], 0, lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float& x = u[n][0][e / 4][e % 4];
      x = fmaf(x * state.product_scale, of_key[e / 4][e % 2],
               v[e / 4][e % 4] * of_value[e / 4][e % 2] * state.value_scale);
    }
    if constexpr (kMethod != Method::kDense) own.give(i, u[n]);
  }
  __syncthreads();

  if constexpr (kMethod == Method::kDense)
    solve_dense(u, own);
  else
    solve_series<kMethod>(u, own, arguments.power);

  // O = exp(l) S0^T q + C U   (E7)
  char* const out = of.o.of(work.b, work.head) + column * (of.o.dtype == CANOPY_F32 ? 4 : 2);
#pragma unroll
  for (int n = 0; n < kRowBlocks; ++n) {
    const int i = own.row_block(n);
    if (i >= blocks) continue;
    float o[1][2][4], of_query[2][2];
    state_products<Op>(o, state, block_operands<Shape>(arguments, work.b, work.key_head, i) + Shape::kOperandBytes,
                       lane);
    read_factors(of_query, block_factors(arguments, work.b, work.head, i) + 16, lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) o[0][e / 4][e % 4] *= state.product_scale * of_query[e / 4][e % 2];
    for (unsigned left = shared.touched[i]; left; left &= left - 1) {
      const int j = __ffs(left) - 1;
      add_block(o, own.z[j], c + block_index(i, j) * kBytes, lane);
    }
    const unsigned nan_nodes = spoilt_subtrees(shared.spoilt[group], shared.below, i, lane);
    fill_nan(o[0], nan_nodes, lane);
#pragma unroll
    for (int e = 0; e < 8; ++e) o[0][e / 4][e % 4] *= state.value_unscale;
    const int rank = 16 * i + lane / 2;
    const std::uint64_t node = shared.order[rank];
    write_tiles<Input>(shared.stage[warp], o, rank < count ? out + node * of.o.node : nullptr, of.o.dtype, lane);
    if (of.u.data) {
      fill_nan(u[n][0], nan_nodes, lane);
#pragma unroll
      for (int e = 0; e < 8; ++e) u[n][0][e / 4][e % 4] *= state.value_unscale;
      char* const u_out = of.u.of(work.b, work.head) + column * 4 + node * of.u.node;
      write_tiles<float>(shared.stage[warp], u[n], rank < count ? u_out : nullptr, CANOPY_F32, lane);
    }
  }
}

template <class Shape, Method kMethod>
BlockInstance block_instance() {
  return {{launch_instance<BlockArguments, block_factor_kernel<Shape, kMethod>>, 32 * kWideBlocks, 0,
           sizeof(BlockFactorShared<Shape>)},
          {launch_instance<BlockArguments, block_apply_kernel<Shape, kMethod>>, kApplyThreads, kApplyColumns,
           sizeof(BlockApplyShared<Shape::kParts>)}};
}

}  // namespace canopy::cuda
