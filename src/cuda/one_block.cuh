// The fused kernel (fused.cuh) for trees of one block, T <= 16: no root path, so no ring, no stack and no folds, and as
// few instructions as that leaves, since such a launch is as long as its chain of latencies.
//
// Purpose    o = diag(exp l) Q S0 + C U with (I + G) U = R for a tree whose nodes are all in one block (E5 to E7).
// Precision  half, as in fused.cuh and to the bit, but that a key which fp16 holds badly is told by parts of its row.
// Grid       x: tile of kColumns value columns; y: value head; z: sequence.
// Reads      q, k [B,T,H,128], v [B,T,HV,128] in bf16, gates [B,T,HV], VK state pool, slot index, plan.
// Writes     o [B,T,HV,V] of live nodes; l when asked; row_status.
//
// Flow: memory is asked twice, one answer after the other: first for everything that needs no answer (K, Q and V by
// node, the plan, gates, the slot), then for S0 of that slot. Ranks come in where rows are read from shared memory.
//   1. Two prep warps, one for K, one for Q, do the same on other data: l of every rank, the rows' products with K,
//      factors, decay and mask; then K's warp the substitution, Q's warp C (`published`).
//   2. Meanwhile solver warps turn K and Q into fp16 operands by rank. Then, 16 value columns at a time: S0 to fp16, S0
//      of the next columns on its way, S0^T k, S0^T q, R, U = W R, O.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/tile/poison.cuh"
#include "cuda/tile/prep.cuh"
#include "cuda/tile/solve.cuh"
#include "cuda/tile/work.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

// kColumns value columns, a warp to 16 of them at a time, in kPasses.
template <int kColumns_, int kPasses_>
struct OneBlockShape {
  static constexpr int K = 128, kColumns = kColumns_, kPasses = kPasses_, kPassColumns = kColumns / kPasses;
  static constexpr int kSolverWarps = kPassColumns / 16, kPrepWarps = 2;
  static constexpr int kThreads = 32 * (kSolverWarps + kPrepWarps);
  // An SM. One pass is for launches that do not fill the SMs.
  static constexpr int kCtas = kPasses == 1 ? 2 : tuning_of(CANOPY_THIS_ARCHITECTURE).one_block_ctas;
};

template <class Shape>
struct OneBlockShared {
  static constexpr int K = Shape::K, kWarps = Shape::kSolverWarps;
  std::uint8_t rows[2][16 * kPitch<K>];            // K and Q by node, as they came; once published, O on its way out
  std::uint8_t operands[2][16 * kPitch<K>];        // by rank, in fp16
  StateStage<K> state[kWarps];                     // of a pass
  alignas(16) std::uint8_t values[kWarps][512];    // V by node
  alignas(16) float scratch[16 * kScratchStride];  // G transposed
  alignas(16) std::uint8_t w[1][512], c[1][512];   // as in Coefficients
  float of_key[16], of_query[16], of_value[16];
  float in_range[2][16];  // where `rescaled`: what undoes the power of two that an operand row was divided by
  bool rescaled[2];
  std::uint16_t in_block[16];
};

// Named barriers: K and Q are there; what prep makes of them is.
inline constexpr int kRowsThere = 2, kPublished = 3;

// What every lane knows of rank lane % 16. A rank past the end is a node of its own, which is zero.
struct RankOfLane {
  int node;
  unsigned ancestors;  // bit j: rank j is a strict ancestor
  __device__ __forceinline__ RankOfLane(const DevicePlan& plan, int lane)
      : node(plan.order[lane % 16]), ancestors(plan.in_block[lane % 16]) {}
  __device__ __forceinline__ void end_at(int count, int lane) {
    if (lane % 16 >= count) node = lane % 16, ancestors = 0;
  }
};

// l of the lane's rank, log2: gates of the root path, which add up without rounding, summed by doubling its reach.
__device__ __forceinline__ TwoFloat<float> log_gate_of_path(std::int64_t gate, unsigned ancestors) {
  std::int64_t sum = gate;
  int lowest = high_half(gate);  // only kNanGate's is as low as that
  int above = ancestors ? 31 - __clz(ancestors) : -1;
#pragma unroll 1
  for (int round = 0; round < 4; ++round) {
    const int from = max(above, 0);
    const std::int64_t other = __shfl_sync(~0u, sum, from);
    const int other_lowest = __shfl_sync(~0u, lowest, from), further = __shfl_sync(~0u, above, from);
    if (above >= 0) sum += other, lowest = min(lowest, other_lowest), above = further;
  }
  const float nan = __int_as_float(0x7fffffff);
  return lowest == high_half(kNanGate) ? TwoFloat<float>{nan, nan} : log2_of_units(sum);
}

// Byte of the lane's ldmatrix row in a tile of rows by node, as tile_as_a() for ranks.
template <int K>
__device__ __forceinline__ std::uint32_t row_of_operand(RankOfLane mine, int lane) {
  return __shfl_sync(~0u, mine.node, (lane / 8) % 2 * 8 + lane % 8) * kPitch<K> + lane / 16 * 16;
}

__device__ __forceinline__ TwoFloat<float> of_rank(TwoFloat<float> l, int rank) {
  return {__shfl_sync(~0u, l.hi, rank), __shfl_sync(~0u, l.lo, rank)};
}

// (I + G)^-1 where not all of G is finite.
inline __device__ __noinline__ void invert_carefully(std::uint8_t (&w)[1][512], const float* scratch,
                                                     const std::uint16_t* in_block, int lane) {
  float x[16];
#pragma unroll
  for (int r = 0; r < 16; ++r) x[r] = r == lane % 16;
  substitute_carefully(x, scratch, in_block);
  if (lane < 16) store_column<__half>(w, x, lane);
}

// Rows of K or Q as fp16 operands by rank. `at`: the lane's ldmatrix row, of a rank's node.
template <class Shape>
__device__ __forceinline__ void one_block_operands(OneBlockShared<Shape>& shared, const char* from, std::uint32_t step,
                                                   int nodes, std::uint32_t at, int side, int lane) {
  constexpr int K = Shape::K;
  const std::uint8_t* const rows = shared.rows[side] + at;
  std::uint8_t* const operands = shared.operands[side] + tile_as_a<K>(lane);
  std::uint32_t squares[2] = {};
#pragma unroll 2
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4];
    load_matrices(x, rows + 32 * s);
#pragma unroll
    for (int i = 0; i < 4; ++i) add_squares(squares[i % 2], x[i]);
    to_half(x);
    store_matrices(operands + 32 * s, x);
  }
  unsigned bad = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 sums = unpack<__nv_bfloat16>(squares[half]);
    bad |= static_cast<unsigned>(fp16_holds_badly(sums.x + sums.y)) << half;
  }
  const bool rescales = __any_sync(~0u, bad != 0);
  if (lane == 0) shared.rescaled[side] = rescales;
  if (__builtin_expect(rescales, 0))
    bring_in_range<K>(shared.operands[side], shared.in_range[side], from, step, nodes, 0, bad, lane);
}

// A prep warp: side 0 for K, 1 for Q. Its rows are under way.
template <class Shape>
__device__ __forceinline__ void one_block_prep(OneBlockShared<Shape>& shared, const FusedArguments& arguments,
                                               const FusedWork& work, RankOfLane mine, Gate gate_of_node, int side,
                                               int lane) {
  constexpr int K = Shape::K;
  const bool l2norm = arguments.l2norm;
  const int row = lane / 4, col = 2 * (lane % 4);
  const bool live = lane % 16 < work.count;

  if (side == 0 && lane < 16) shared.in_block[lane] = static_cast<std::uint16_t>(mine.ancestors);
  std::int64_t gate = gate_units(gate_of_node.log_gate);
  gate = __shfl_sync(~0u, gate, mine.node);
  float beta = __shfl_sync(~0u, gate_of_node.beta, mine.node);
  if (!live) gate = 0, beta = 0;
  const TwoFloat<float> l = log_gate_of_path(gate, mine.ancestors);
  if (side == 0 && work.column == 0 && arguments.l.data && live && lane < 16)
    *reinterpret_cast<float*>(arguments.l.of(work.b, work.head) + std::int64_t{mine.node} * arguments.l.node) =
        natural(l);
  wait_for_all_copies();
  if (__builtin_expect(work.count < 16, 0)) {  // rows past the end that T still has
    for (int r = lane / 8; r < 16; r += 4)
      if (r >= work.count)
        for (int i = 0; i < 2; ++i) store_shared(shared.rows[side] + r * kPitch<K> + 16 * (lane % 8 + 8 * i), {});
  }
  wait_at(kRowsThere, Shape::kThreads);

  const std::uint32_t at = row_of_operand<K>(mine, lane);
  const std::uint8_t *const rows = shared.rows[side] + at, *const keys = shared.rows[0] + at;
  float product[2][4];
  clear(product);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4], k[4];
    load_matrices(x, rows + 32 * s);
    load_matrices(k, keys + 32 * s);
    mma<__nv_bfloat16>(product[0], x, k[0], k[2]);
    mma<__nv_bfloat16>(product[1], x, k[1], k[3]);
  }

  float row_factor = side == 0 ? beta : arguments.scale;  // of rank lane % 16
  if (lane < 16) {                                        // E5, E7
    const float factor = live ? exp2_fast(l.hi + l.lo) * row_factor : 0.f;
    if (side == 0)
      shared.of_key[lane] = -factor, shared.of_value[lane] = beta;
    else
      shared.of_query[lane] = factor;
  }
  float key_norm = 1;  // of rank lane % 16: what the products lack of the true key
  if (__builtin_expect(l2norm, 0)) {
    float of_rows[2][4], of_keys[2][4];
    if (side == 0) {  // the products of K have them already
#pragma unroll
      for (int i = 0; i < 8; ++i) of_keys[i / 4][i % 4] = of_rows[i / 4][i % 4] = product[i / 4][i % 4];
    } else {
      row_squares<__nv_bfloat16, K>(of_rows, rows, of_keys, keys);
    }
    key_norm = row_norm(Diagonal(of_keys, lane).at(lane % 16), 1, true, arguments.l2norm_eps);
    const float norm = row_norm(Diagonal(of_rows, lane).at(lane % 16), 1, true, arguments.l2norm_eps);
    row_factor *= norm;  // in the order of prepare_step(), to the bit
    if (lane < 16 && live) {
      if (side == 0)
        shared.of_key[lane] *= norm;
      else
        shared.of_query[lane] = exp2_fast(l.hi + l.lo) * row_factor;
    }
  }

  // Decay (E3) between the lane's rows and columns. Where the column is no ancestor the exponent may be anything; such
  // entries are selected away.
  TwoFloat<float> l_col[4];
  float key_col[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    l_col[c] = of_rank(l, col + 8 * (c / 2) + c % 2);
    if (__builtin_expect(l2norm, 0)) key_col[c] = __shfl_sync(~0u, key_norm, col + 8 * (c / 2) + c % 2);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    const TwoFloat<float> l_row = of_rank(l, r);
    const float factor = __shfl_sync(~0u, row_factor, r);
    const unsigned ancestors = __shfl_sync(~0u, mine.ancestors, r);
    const unsigned mask = (side == 0 ? ancestors : ancestors | 1u << r) >> col;
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float decay = exp2_fast(difference(l_row, l_col[i]));
      if (__builtin_expect(l2norm, 0)) decay *= key_col[i];
      x[i] = keep(bit_mask(mask, 8 * (i / 2) + i % 2), factor * decay * product[i / 2][2 * half + i % 2]);
    }
    if (side == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) shared.scratch[(col + 8 * (i / 2) + i % 2) * kScratchStride + r] = x[i];
    } else {
      *reinterpret_cast<uint2*>(shared.c[0] + 16 * lane + 8 * half) = {pack_half(x[0], x[1]), pack_half(x[2], x[3])};
    }
  }
  if (side == 0) {  // W = (I + G)^-1, a column of it to a lane (E6)
    __syncwarp();
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) x[r] = r == lane % 16;
    const bool spoilt = substitute(x, shared.scratch);
    if (lane < 16) store_column<__half>(shared.w, x, lane);
    if (__builtin_expect(spoilt, 0)) invert_carefully(shared.w, shared.scratch, shared.in_block, lane);
  }
  arrive_at(kPublished, Shape::kThreads);
}

// Where a solver lane's half row of V lies, for the warp's value columns from `column` on; and its copy.
__device__ __forceinline__ const char* one_block_value(const FusedArguments& arguments, const FusedWork& work,
                                                       int column, int lane) {
  return arguments.v.of(work.b, work.head) + 2 * column + 16 * (lane % 2) +
         std::uint64_t{lane / 2 < arguments.nodes ? lane / 2 : 0u} * arguments.v.node;
}
template <class Shape>
__device__ __forceinline__ void start_value(OneBlockShared<Shape>& shared, const FusedArguments& arguments,
                                            const char* from, int warp, int lane) {
  copy_async(shared.values[warp] + narrow_byte(lane / 2, lane % 2), from, lane / 2 < arguments.nodes);
}

// The lane's factors, with what undoes the rescaling of operand rows.
template <class Shape>
__device__ __forceinline__ void scale_factors(float (&of_key)[2][2], float (&of_query)[2][2],
                                              const OneBlockShared<Shape>& shared, int lane) {
  float by[2][2];
  if (shared.rescaled[0]) {
    read_factors(by, shared.in_range[0], lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) of_key[i / 2][i % 2] *= by[i / 2][i % 2];
  }
  if (shared.rescaled[1]) {
    read_factors(by, shared.in_range[1], lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) of_query[i / 2][i % 2] *= by[i / 2][i % 2];
  }
}

// A tile of rows as the operands of all its products, held while S0 is on its way.
template <int K>
struct OperandTile {
  std::uint32_t x[K / 16][4];
  __device__ __forceinline__ void load(const std::uint8_t* rows, int lane) {
#pragma unroll
    for (int s = 0; s < K / 16; ++s) load_matrices(x[s], rows + tile_as_b<K>(lane) + 32 * s);
  }
};
// S0^T k and S0^T q side by side; each is to the bit what state_products() gives.
template <int K>
__device__ __forceinline__ void held_products(float (&r)[2][4], float (&o)[2][4], const StateTile<K, 1>& state,
                                              const OperandTile<K>& keys, const OperandTile<K>& queries) {
  clear(r), clear(o);
#pragma unroll
  for (int s = 0; s < K / 16; ++s)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mma<__half>(r[half], state.a[s][0], keys.x[s][2 * half], keys.x[s][2 * half + 1]);
      mma<__half>(o[half], state.a[s][0], queries.x[s][2 * half], queries.x[s][2 * half + 1]);
    }
}

// A solver warp: 16 value columns a pass, the first `column` and on. Their V and S0 are under way. kHeld: operands of K
// and Q are in registers (64 of them) before S0 is there.
template <class Shape, bool kHeld>
__device__ __forceinline__ void one_block_solve(OneBlockShared<Shape>& shared, const FusedArguments& arguments,
                                                const FusedWork& work, RankOfLane mine, int column, int warp,
                                                int lane) {
  constexpr int K = Shape::K;
  const int node_of_row = __shfl_sync(~0u, mine.node, (lane / 16) * 8 + lane % 8);
  const std::uint32_t node_out = __shfl_sync(~0u, mine.node, lane / 2);
  const std::uint32_t at = row_of_operand<K>(mine, lane);
  wait_at(kRowsThere, Shape::kThreads);
  if (warp < 2) {
    const Rows& source = warp == 0 ? arguments.k : arguments.q;
    one_block_operands(shared, source.of(work.b, work.key_head), source.node,
                       lane < 16 && lane < work.count ? mine.node : -1, at, warp, lane);
  }
  meet(32 * Shape::kSolverWarps);
  const bool rescaled = shared.rescaled[0] || shared.rescaled[1];
  [[maybe_unused]] OperandTile<K> keys, queries;
  if constexpr (kHeld) keys.load(shared.operands[0], lane), queries.load(shared.operands[1], lane);
#pragma unroll 1
  for (int pass = 0; pass < Shape::kPasses; ++pass, column += Shape::kPassColumns) {
    wait_for_all_copies();
    if (lane / 2 >= work.count) store_shared(shared.values[warp] + narrow_byte(lane / 2, lane % 2), {});
    __syncwarp();
    std::uint32_t v[4];
    load_transposed(v, shared.values[warp] + narrow_byte(node_of_row, lane / 8 % 2));
    StateTile<K, 1> state[1];
    convert_staged(state[0], shared.state[warp], arguments.state.dtype, lane);
    if (pass + 1 < Shape::kPasses) {
      __syncwarp();  // all of it has been read
      start_state(shared.state[warp], arguments.state, work.slot, work.head, column + Shape::kPassColumns, 0, 16, lane);
      start_value(shared, arguments, one_block_value(arguments, work, column + Shape::kPassColumns, lane), warp, lane);
    }

    float r[1][2][4], o[1][2][4];  // transposed: [n-tile of nodes][value, node]
    if constexpr (kHeld) {
      held_products<K>(r[0], o[0], state[0], keys, queries);
    } else {
      state_products<__half, 1>(r, state, shared.operands[0], lane);
      state_products<__half, 1>(o, state, shared.operands[1], lane);
    }
    const bool scaled = state[0].scaled;
    if (__builtin_expect(scaled, 0)) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        r[0][i / 4][i % 4] *= state[0].product_scale, o[0][i / 4][i % 4] *= state[0].product_scale;
    }
    if (pass == 0) wait_at(kPublished, Shape::kThreads);
    float of_key[2][2], of_value[2][2], of_query[2][2];
    read_factors(of_key, shared.of_key, lane);
    read_factors(of_value, shared.of_value, lane);
    read_factors(of_query, shared.of_query, lane);
    if (__builtin_expect(rescaled, 0)) scale_factors(of_key, of_query, shared, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // R = beta (v - exp(l) S0^T k), O = exp(l) S0^T q   (E5, E7)
      float2 y = unpack<__nv_bfloat16>(v[i]);
      if (__builtin_expect(scaled, 0)) y.x *= state[0].value_scale, y.y *= state[0].value_scale;
      const int n = i / 2, c = i % 2 * 2;
      r[0][n][c] = fmaf(r[0][n][c], of_key[n][0], y.x * of_value[n][0]);
      r[0][n][c + 1] = fmaf(r[0][n][c + 1], of_key[n][1], y.y * of_value[n][1]);
      o[0][n][c] *= of_query[n][0], o[0][n][c + 1] *= of_query[n][1];
    }
    std::uint32_t r_operand[1][1][4], u[1][1][4], w[1][4], c[1][4];
    to_operand<__half>(r_operand[0], r[0]);
    read_rows(w, shared.w, lane);
    read_fragment(c, shared.c, lane);
    const auto solve = [&] {  // U = W R   (E6)
      clear(r[0]);
      accumulate<__half>(r, r_operand, w);
      to_operand<__half>(u[0], r[0]);
      return any_spoilt(spoilt_by<__half>(u[0][0]));
    };
    unsigned nan_nodes = 0;
    if (__builtin_expect(solve(), 0)) {
      nan_nodes = spoilt_nodes<__half>(r_operand[0][0], lane);
      clear_nodes(r_operand[0], nan_nodes, lane);
      if (nan_nodes) solve();
      nan_nodes |= spoilt_nodes<__half>(u[0][0], lane);
      nan_nodes |= __ballot_sync(~0u, lane < 16 && (mine.ancestors & nan_nodes));  // their subtrees
      clear_nodes(u[0], nan_nodes, lane);
    }
    accumulate<__half>(o, u, c);  // O += C u
    if (__builtin_expect(nan_nodes, 0)) fill_nan(o[0], nan_nodes, lane);
    if (__builtin_expect(scaled, 0)) {
#pragma unroll
      for (int i = 0; i < 8; ++i) o[0][i / 4][i % 4] *= state[0].value_unscale;
    }
    char* const out = arguments.o.of(work.b, work.head) + column * (arguments.o.dtype == CANOPY_F32 ? 4 : 2);
    write_tiles<__nv_bfloat16>(reinterpret_cast<float*>(shared.rows[0]) + warp * 16 * kStageStride, o,
                               lane / 2 < work.count ? out + std::uint64_t{node_out} * arguments.o.node : nullptr,
                               arguments.o.dtype, lane);
  }
}

// kRaw: gates are raw. A kernel of its own, since every instruction of the other counts.
template <class Shape, bool kRaw>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kCtas)
    one_block_kernel(const __grid_constant__ FusedArguments arguments) {
  constexpr int K = Shape::K;
  auto& shared = *reinterpret_cast<OneBlockShared<Shape>*>(dynamic_shared());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, side = warp - Shape::kSolverWarps;
  const int fetched = fetch_parameters(arguments, warp) ^ fetch_parameters(arguments, warp + Shape::kThreads / 32);
  FusedWork work;
  work.b = blockIdx.z, work.head = blockIdx.y, work.column = blockIdx.x * Shape::kColumns;
  work.key_head = key_head_of(work.head, arguments.key_heads_each);
  // Addresses are worked out while the kernel before ends, and held: left to the compiler they come after the wait.
  const int column = work.column + 16 * warp;  // a solver warp's
  const int node = min(lane % 16, arguments.nodes - 1);
  const DevicePlan* const plan_at = held(arguments.plans + work.b);
  const char *g_at = nullptr, *beta_at = nullptr, *copied[4];
  std::uint8_t* to = shared.rows[0];
  if (side >= 0) {
    g_at = held(arguments.g.of(work.b, work.head) + std::int64_t{node} * arguments.g.node);
    beta_at = held(arguments.beta.of(work.b, work.head) + std::int64_t{node} * arguments.beta.node);
    const char* const from = (side == 0 ? arguments.k : arguments.q).of(work.b, work.key_head) + 16 * (lane % 8);
    const std::uint32_t step = side == 0 ? arguments.k.node : arguments.q.node;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row_node = lane / 8 + 4 * i;
      copied[i] = held(from + std::uint64_t{row_node < arguments.nodes ? row_node : 0u} * step);
    }
    to = held(shared.rows[side] + lane / 8 * kPitch<K> + 16 * (lane % 8));
  } else {
    copied[0] = held(one_block_value(arguments, work, column, lane));
  }
  touch(fetched);
  begin_after_previous_kernel();

  const std::int64_t slot = load_index(arguments.slot_index, arguments.long_slots, work.b);
  const int4 header = *reinterpret_cast<const int4*>(plan_at);
  RankOfLane mine(*plan_at, lane);
  GateBits of_node{};  // a prep warp's: of the lane's node, and of the head
  [[maybe_unused]] HeadBits of_head{};
  if (side >= 0) {
    if constexpr (kRaw)
      of_node = load_raw(arguments, g_at, beta_at), of_head = load_head(arguments, work.head);
    else
      of_node = {*reinterpret_cast<const std::uint32_t*>(g_at), *reinterpret_cast<const std::uint32_t*>(beta_at)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool there = lane / 8 + 4 * i < arguments.nodes;
      copy_async(to + 4 * i * kPitch<K>, copied[i], there);
      copy_async(to + 4 * i * kPitch<K> + 128, copied[i] + 128, there);
    }
  } else {
    start_value(shared, arguments, copied[0], warp, lane);
  }
  const FusedRow row(arguments, slot, header, 0);  // waits, so it comes after what needs no answer
  row.give(work);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && arguments.row_status)
    arguments.row_status[work.b] = row.status;
  if (row.status == CANOPY_ROW_BAD_TREE) write_nan<Shape::kColumns, Shape::kThreads>(arguments, work, threadIdx.x);
  if (!row.computes()) return wait_for_all_copies();
  mine.end_at(work.count, lane);
  if (side >= 0) {
    Gate gate{__uint_as_float(of_node.g), __uint_as_float(of_node.beta)};
    if constexpr (kRaw) gate = raw_gate(arguments, of_node, of_head);
    one_block_prep(shared, arguments, work, mine, gate, side, lane);
  } else {
    start_state(shared.state[warp], arguments.state, work.slot, work.head, column, 0, 16, lane);
    // Not with raw gates in 32 columns: S0 is not what the warp waits for there, and at B = 1 it took 0.1 us longer
    // (H200). In 64 the registers also leave room for two CTAs an SM, not three, which spreads those of B = 4 evenly.
    constexpr bool kHeld = Shape::kPasses == 1 && (!kRaw || Shape::kColumns == 64);
    one_block_solve<Shape, kHeld>(shared, arguments, work, mine, column, warp, lane);
  }
}

template <class Shape>
cudaError_t launch_one_block(const FusedInstance& instance, dim3 grid, cudaStream_t stream, bool dependently,
                             const void* arguments) {
  const auto& given = *static_cast<const FusedArguments*>(arguments);
  return launch_kernel(given.raw_gates ? one_block_kernel<Shape, true> : one_block_kernel<Shape, false>, grid,
                       instance.threads, instance.shared_bytes, stream, dependently, given);
}

template <class Shape>
FusedInstance one_block_instance() {
  static_assert(sizeof(OneBlockShared<Shape>) <= 57344, "four CTAs do not fit an SM");
  static_assert(sizeof(OneBlockShared<Shape>::rows) >= sizeof(float) * Shape::kSolverWarps * 16 * kStageStride);
  return {launch_one_block<Shape>, Shape::kThreads, Shape::kColumns, sizeof(OneBlockShared<Shape>)};
}

}  // namespace canopy::cuda
