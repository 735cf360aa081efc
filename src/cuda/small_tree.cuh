// The fused solve for trees of 17 to 64 nodes where every CTA has an SM: all of the tree's rows at once and two warps
// to each block's coefficients, so that what is left one after the other is U, block by block.
//
// Purpose    o = diag(exp l) Q S0 + C U with (I + G) U = R, path-compressed (E5 to E7).
// Precision  half, as in fused.cuh; not to the bit (nothing is folded, and R of a block below more than 16 nodes is
//            rounded twice), so it is an entry of its own.
// Grid       x: tile of kColumns value columns; y: value head; z: sequence.
// Reads      q, k [B,T,H,128], v [B,T,HV,128] in bf16, gates [B,T,HV], VK state pool, slot index, plan.
// Writes     o [B,T,HV,V] of live nodes; l when asked; row_status.
//
// Flow: memory is asked twice, one answer after the other, as in one_block.cuh: K, Q and V by node, the plan, gates,
// the slot; then S0. Ranks come in where rows are read from shared memory.
//   1. Prep warps, two to a block, one for K and one for Q: products of the block's rows with its own keys and those of
//      its root path, the rows to fp16 operands by rank on the way; decay and mask; then K's warp the substitution (W
//      and -W G_path), Q's warp C.
//   2. Meanwhile solver warps make l and the factors of all ranks and turn S0 into fp16; then a warp to 16 columns
//      makes R of every block, and another exp(l) S0^T q.
//   3. Once the coefficients are published, the one makes U block by block, W R - W G u_path; O of the other follows.
// Shared     95 KB.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/small_tree_prep.cuh"
#include "cuda/tile/poison.cuh"
#include "cuda/tile/solve.cuh"

namespace canopy::cuda {
namespace small {

// Tables of the thread's rank, from what it has loaded of its node and rank; between the two all solver threads meet.
struct RankLoads {
  std::uint8_t rank, prefix;
  std::uint16_t in_block;
  uint2 up;
  RankLoads() = default;
  __device__ __forceinline__ RankLoads(const DevicePlan& plan, int i)
      : rank(plan.rank[i]),
        prefix(plan.prefix[i]),
        in_block(plan.in_block[i]),
        up(*reinterpret_cast<const uint2*>(plan.up[i])) {}
};
__device__ __forceinline__ void store_rank(SmallShared& shared, const RankLoads& of, Gate gate, int i, int count) {
  const bool live = i < count;
  if (live) {
    shared.gate[of.rank] = gate_units(gate.log_gate);
    shared.of_value[of.rank] = gate.beta;
    *reinterpret_cast<uint2*>(shared.up[i]) = of.up;
  }
  shared.in_block[i] = live ? of.in_block : 0;
  shared.prefix[i] = live ? of.prefix : 0;
  if (i == 0) shared.gate[SmallShape::kTreeNodes] = 0;
}
__device__ __forceinline__ TwoFloat<float> make_factors(SmallShared& shared, float scale, int r, int count) {
  if (r >= count) {
    shared.l[r] = {};
    shared.of_key[r] = shared.of_query[r] = shared.of_value[r] = 0;
    return {};
  }
  std::int64_t sum = shared.gate[r];
  int lowest = high_half(sum);  // only kNanGate's is as low as that
  int from = r;
#pragma unroll 1
  do {
    const uint2 up = *reinterpret_cast<const uint2*>(shared.up[from]);
    std::int64_t gate[kUp];
#pragma unroll
    for (int a = 0; a < kUp; ++a)
      gate[a] = shared.gate[min((a < 4 ? up.x : up.y) >> (8 * (a % 4)) & 0xff, unsigned{SmallShape::kTreeNodes})];
#pragma unroll
    for (int a = 0; a < kUp; ++a) sum += gate[a], lowest = min(lowest, high_half(gate[a]));
    from = up.y >> 24;
  } while (from != kNone);
  const float nan = __int_as_float(0x7fffffff);
  const TwoFloat<float> l = lowest == high_half(kNanGate) ? TwoFloat<float>{nan, nan} : log2_of_units(sum);
  const float exp_l = exp2_fast(l.hi + l.lo);
  shared.l[r] = l;
  shared.of_key[r] = -exp_l * shared.of_value[r];  // E5, E7
  shared.of_query[r] = exp_l * scale;
  return l;
}

// The lane's four nodes' factors: [n][c % 2].
__device__ __forceinline__ void product_factors(float (&x)[2][2], const SmallShared& shared, bool l2norm, int side,
                                                int block, int lane) {
  const int first = 16 * block;
  const auto times = [&](const float* by) {
    float y[2][2];
    read_factors(y, by + first, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i / 2][i % 2] *= y[i / 2][i % 2];
  };
  read_factors(x, (side == 0 ? shared.of_key : shared.of_query) + first, lane);
  if (__builtin_expect(l2norm, 0)) times(shared.norm[side]);
  if (__builtin_expect(shared.rescaled[side][block], 0)) times(shared.in_range[side]);
}

// The lane's row of the A fragment of U of 16 path rows: of the zeros past the path.
__device__ __forceinline__ std::uint32_t path_row_of_u(const SmallShared& shared, int block, int tile, int ancestors,
                                                       int lane) {
  const int depth = 16 * tile + lane_row(lane);
  const int rank = depth < ancestors ? static_cast<int>(shared.path[block][depth]) : SmallShape::kTreeNodes;
  return narrow_byte(rank, lane / 8 % 2);
}

// R, or exp(l) S0^T q, of all blocks into shared memory, two at a time.
template <bool kMakesO>
__device__ __forceinline__ void multiply_state(SmallShared& shared, const StateTile<K, 1>& state, const FusedWork& work,
                                               bool l2norm, int group, int lane) {
  constexpr int side = kMakesO, kAtOnce = 2;
  const std::uint8_t* rows = shared.operands[side] + tile_as_b<K>(lane);
#pragma unroll 1
  for (int block = 0; block < work.blocks; block += kAtOnce, rows += 16 * kAtOnce * kPitch<K>) {
    float d[kAtOnce][2][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) clear(d[i]);
    std::uint32_t x[K / 16][kAtOnce][4];  // all loads before the first product, as in prepare()
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) load_matrices(x[s][i], rows + 16 * i * kPitch<K> + 32 * s);
#pragma unroll
    for (int s = 0; s < K / 16; ++s)
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        mma<__half>(d[i][0], state.a[s][0], x[s][i][0], x[s][i][1]);
        mma<__half>(d[i][1], state.a[s][0], x[s][i][2], x[s][i][3]);
      }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int first = 16 * (block + i);
      float by[2][2];
      product_factors(by, shared, l2norm, side, block + i, lane);
      if (__builtin_expect(state.scaled, 0)) {
#pragma unroll
        for (int j = 0; j < 8; ++j) d[i][j / 4][j % 4] *= state.product_scale;
      }
      if constexpr (kMakesO) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
          *reinterpret_cast<float4*>(shared.then.o[group][block + i][n][lane]) = {
              d[i][n][0] * by[n][0], d[i][n][1] * by[n][1], d[i][n][2] * by[n][0], d[i][n][3] * by[n][1]};
      } else {
        const int node = node_of(shared, first + lane_row(lane), work.count);
        float of_value[2][2];
        read_factors(of_value, shared.of_value + first, lane);
        std::uint32_t v[4], r[4];
        load_transposed(v, shared.values[group] + narrow_byte(node, lane / 8 % 2));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float2 y = unpack<__nv_bfloat16>(v[j]);
          if (__builtin_expect(state.scaled, 0)) y.x *= state.value_scale, y.y *= state.value_scale;
          const int n = j / 2, c = j % 2 * 2;
          r[j] = pack_half(fmaf(d[i][n][c], by[n][0], y.x * of_value[n][0]),
                           fmaf(d[i][n][c + 1], by[n][1], y.y * of_value[n][1]));
        }
        store_shared(shared.then.r[group][block + i][0] + 16 * lane, {r[0], r[1], r[2], r[3]});
      }
    }
  }
}

// Nodes of a block with a spoilt ancestor, or spoilt themselves.
__device__ __noinline__ unsigned spoilt_below(const SmallShared& shared, const unsigned* nan_nodes, unsigned spoilt,
                                              int block, int lane) {
  const int rank = 16 * block + lane % 16;
  bool on_path = false;
  for (int depth = 0; depth < shared.prefix[rank]; ++depth) {
    const int above = shared.path[block][depth];
    on_path |= nan_nodes[above / 16] >> above % 16 & 1;
  }
  spoilt |= __ballot_sync(~0u, lane < 16 && on_path);
  return spoilt | __ballot_sync(~0u, lane < 16 && (shared.in_block[rank] & spoilt));
}

// d += coefficients of the path rows above the last 16 times U.
__device__ __forceinline__ void add_far_path(float (&d)[1][2][4], const SmallShared& shared, int side, int group,
                                             int block, int ancestors, int lane) {
#pragma unroll 1
  for (int tile = 0; tile < tiles_of_path(ancestors) - 1; ++tile) {
    std::uint32_t far[1][4], u_path[1][1][4];
    load_transposed(u_path[0][0], shared.of_columns[group].u + path_row_of_u(shared, block, tile, ancestors, lane));
    read_fragment(far, shared.far[side][first_far_tile(block) + tile], lane);
    accumulate<__half>(d, u_path, far);
  }
}

// U of all blocks, one after the other   (E6)
__device__ __forceinline__ void solve(SmallShared& shared, const FusedWork& work, int group, int lane) {
  std::uint8_t* const u_rows = shared.of_columns[group].u;
  unsigned* const all_nan = shared.nan_nodes[group];
  bool spoilt_before = false;
  if (lane < 2) store_shared(u_rows + narrow_byte(SmallShape::kTreeNodes, lane), {});
  __syncwarp();
  const std::uint32_t own_row = narrow_byte(lane_row(lane), lane / 8 % 2);
#pragma unroll 1
  for (int block = 0; block < work.blocks; ++block) {
    const int ancestors = shared.ancestors[block], last = tiles_of_path(ancestors) - 1;
    const Coefficients<1>& of = shared.then.of[block];
    std::uint32_t w[1][4], g[1][4], r[1][1][4], u_path[1][1][4], u[1][1][4];
    const std::uint32_t at = path_row_of_u(shared, block, last, ancestors, lane);
    read_rows(w, of.w, lane);
    read_rows(g, of.g, lane);
    read_fragment(r[0], shared.then.r[group][block], lane);
    if (__builtin_expect(last > 0, 0)) {  // R -= G u_path of the rows above
      float d[1][2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = unpack<__half>(r[0][0][i]);
        d[0][i / 2][i % 2 * 2] = y.x, d[0][i / 2][i % 2 * 2 + 1] = y.y;
      }
      add_far_path(d, shared, 0, group, block, ancestors, lane);
      to_operand<__half>(r[0], d[0]);
    }
    load_transposed(u_path[0][0], u_rows + at);
    float x[1][2][4];
    const auto solve_block = [&] {
      clear(x[0]);
      accumulate<__half>(x, r, w);
      accumulate<__half>(x, u_path, g);
      to_operand<__half>(u[0], x[0]);
      return any_spoilt(spoilt_by<__half>(u[0][0]));
    };
    unsigned nan_nodes = 0;
    if (__builtin_expect(solve_block() || spoilt_before, 0)) {
      nan_nodes = spoilt_nodes<__half>(r[0][0], lane);
      clear_nodes(r[0], nan_nodes, lane);
      if (nan_nodes) solve_block();
      nan_nodes = spoilt_below(shared, all_nan, nan_nodes | spoilt_nodes<__half>(u[0][0], lane), block, lane);
      clear_nodes(u[0], nan_nodes, lane);
      spoilt_before |= nan_nodes != 0;
    }
    store_transposed(u_rows + 512 * block + own_row, u[0][0]);
    if (lane == 0) all_nan[block] = nan_nodes;
    warp_arrive(&shared.solved[group][block], lane);
  }
}

// O += C_path u_path + C u   (E7)
__device__ __forceinline__ void make_outputs(SmallShared& shared, const FusedArguments& arguments,
                                             const FusedWork& work, const StateTile<K, 1>& state, char* out, int group,
                                             int lane) {
  const std::uint8_t* const u_rows = shared.of_columns[group].u;
  const std::uint32_t own_row = narrow_byte(lane_row(lane), lane / 8 % 2);
#pragma unroll 1
  for (int block = 0; block < work.blocks; ++block) {
    const int ancestors = shared.ancestors[block], last = tiles_of_path(ancestors) - 1;
    const Coefficients<1>& of = shared.then.of[block];
    float o[1][2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 y = *reinterpret_cast<const float4*>(shared.then.o[group][block][n][lane]);
      o[0][n][0] = y.x, o[0][n][1] = y.y, o[0][n][2] = y.z, o[0][n][3] = y.w;
    }
    std::uint32_t c[1][4], c_path[1][4], u[1][1][4], u_path[1][1][4];
    read_fragment(c, of.c, lane);
    read_fragment(c_path, of.c_path, lane);
    const std::uint32_t at = path_row_of_u(shared, block, last, ancestors, lane);
    const int rank = 16 * block + lane / 2;
    const std::uint32_t node = shared.order[rank];
    barrier_wait(&shared.solved[group][block], 0);
    if (__builtin_expect(last > 0, 0)) add_far_path(o, shared, 1, group, block, ancestors, lane);
    load_transposed(u_path[0][0], u_rows + at);
    load_transposed(u[0][0], u_rows + 512 * block + own_row);
    accumulate<__half>(o, u_path, c_path);
    accumulate<__half>(o, u, c);
    const unsigned nan_nodes = shared.nan_nodes[group][block];
    if (__builtin_expect(nan_nodes != 0, 0)) fill_nan(o[0], nan_nodes, lane);
    if (__builtin_expect(state.scaled, 0)) {
#pragma unroll
      for (int i = 0; i < 8; ++i) o[0][i / 4][i % 4] *= state.value_unscale;
    }
    write_tiles<__nv_bfloat16>(shared.then.scratch[group], o,
                               rank < work.count ? out + std::uint64_t{node} * arguments.o.node : nullptr,
                               arguments.o.dtype, lane);
  }
}

}  // namespace small

// kRaw: gates are raw. A kernel of its own, since every instruction of the other counts.
template <bool kRaw>
__global__ void __launch_bounds__(SmallShape::kThreads, 1)
    small_tree_kernel(const __grid_constant__ FusedArguments arguments) {
  constexpr int K = SmallShape::K, kBlocks = SmallShape::kBlocks, kGroups = SmallShape::kGroups;
  auto& shared = *reinterpret_cast<SmallShared*>(dynamic_shared());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, unit = warp - SmallShape::kSolverWarps;
  const int fetched = fetch_parameters(arguments, warp);
  FusedWork work;
  work.b = blockIdx.z, work.head = blockIdx.y, work.column = blockIdx.x * SmallShape::kColumns;
  work.key_head = key_head_of(work.head, arguments.key_heads_each);
  // Addresses are worked out while the kernel before ends, and held: left to the compiler they come after the wait.
  const bool solves = unit < 0, makes_o = warp >= kGroups;
  const int side = unit / kBlocks, block = unit % kBlocks;              // a prep warp's
  const int group = warp % kGroups, column = work.column + 16 * group;  // a solver warp's
  const DevicePlan* const plan_at = held(arguments.plans + work.b);
  const int rank = static_cast<int>(threadIdx.x) - SmallShape::kFirstTableThread;
  const int thread_node = max(0, min(rank, arguments.nodes - 1));
  const char *g_at = nullptr, *beta_at = nullptr, *from = nullptr;
  std::uint32_t step = 0;
  if (solves) {
    g_at = held(arguments.g.of(work.b, work.head) + std::int64_t{thread_node} * arguments.g.node);
    beta_at = held(arguments.beta.of(work.b, work.head) + std::int64_t{thread_node} * arguments.beta.node);
    from = held(arguments.v.of(work.b, work.head) + 2 * column + 16 * (lane % 2));
    step = arguments.v.node;
    if (makes_o && lane < kBlocks) barrier_init(&shared.solved[group][lane], kWarpArrivals);
  } else {
    from = held((side == 0 ? arguments.k : arguments.q).of(work.b, work.key_head) + 16 * (lane % 8));
    step = side == 0 ? arguments.k.node : arguments.q.node;
  }
  hold(step);
  touch(fetched);
  begin_after_previous_kernel();

  const DevicePlan& plan = *plan_at;
  const std::int64_t slot = load_index(arguments.slot_index, arguments.long_slots, work.b);
  const int4 header = *reinterpret_cast<const int4*>(plan_at);
  GateBits of_node{};
  [[maybe_unused]] HeadBits of_head{};
  small::RankLoads of_rank;
  if (solves) {
    of_rank = small::RankLoads(plan, max(rank, 0));
    if constexpr (kRaw)
      of_node = load_raw(arguments, g_at, beta_at), of_head = load_head(arguments, work.head);
    else
      of_node = {*reinterpret_cast<const std::uint32_t*>(g_at), *reinterpret_cast<const std::uint32_t*>(beta_at)};
    if (!makes_o) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const int node = lane / 2 + 16 * i;
        const bool there = node < arguments.nodes;
        copy_async(shared.values[group] + narrow_byte(node, lane % 2), from + std::uint64_t{there ? node : 0u} * step,
                   there);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int node = 16 * block + lane / 8 + 4 * i;
      const bool there = node < arguments.nodes;
      const char* const row = from + std::uint64_t{there ? node : 0u} * step;
      std::uint8_t* const to = shared.rows[side] + node * kPitch<K> + 16 * (lane % 8);
      copy_async(to, row, there);
      copy_async(to + 128, row + 128, there);
    }
    if (side == 0 && lane < kBlocks) copy_async<16>(&shared.path[block][16 * lane], &plan.path[block][16 * lane]);
    if (unit == kBlocks && lane < kBlocks) copy_async<16>(&shared.order[16 * lane], &plan.order[16 * lane]);
    if (unit == kBlocks + 1 && lane == 0) copy_async<16>(shared.ancestors, plan.ancestors);
  }
  const FusedRow row(arguments, slot, header, 0);  // waits, so it comes after what needs no answer
  row.give(work);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && arguments.row_status)
    arguments.row_status[work.b] = row.status;
  if (row.status == CANOPY_ROW_BAD_TREE)
    write_nan<SmallShape::kColumns, SmallShape::kThreads>(arguments, work, threadIdx.x);
  if (!row.computes()) return wait_for_all_copies();
  if (!solves) return small::prepare(shared, arguments, work, block, side, lane);

  start_state(shared.of_columns[group].state, arguments.state, work.slot, work.head, column, makes_o ? 8 : 0, 8, lane);
  if (rank >= 0) {
    Gate gate{__uint_as_float(of_node.g), __uint_as_float(of_node.beta)};
    if constexpr (kRaw) gate = raw_gate(arguments, of_node, of_head);
    small::store_rank(shared, of_rank, gate, rank, work.count);
  }
  meet(SmallShape::kSolverThreads);
  TwoFloat<float> l;
  if (rank >= 0) l = small::make_factors(shared, arguments.scale, rank, work.count);
  __syncwarp();
  arrive_at(small::kTables, SmallShape::kThreads);
  if (work.column == 0 && arguments.l.data && rank >= 0 && rank < work.count)
    *reinterpret_cast<float*>(arguments.l.of(work.b, work.head) + std::int64_t{plan.order[rank]} * arguments.l.node) =
        natural(l);
  if (__builtin_expect(arguments.l2norm, 0)) wait_at(small::kNorms, SmallShape::kThreads);
  wait_for_all_copies();
  if (!makes_o) {
#pragma unroll 1
    for (int node = lane / 2 + 16 * (work.count / 16); node < 16 * work.blocks; node += 16)
      if (node >= work.count) store_shared(shared.values[group] + narrow_byte(node, lane % 2), {});
  }
  meet(SmallShape::kSolverThreads);
  StateTile<K, 1> state;
  convert_staged(state, shared.of_columns[group].state, arguments.state.dtype, lane);
  wait_at(small::kMultiplied, SmallShape::kThreads);
  if (makes_o) {
    small::multiply_state<true>(shared, state, work, arguments.l2norm, group, lane);
    wait_at(small::kPublished, SmallShape::kThreads);
    char* const out = arguments.o.of(work.b, work.head) + column * (arguments.o.dtype == CANOPY_F32 ? 4 : 2);
    small::make_outputs(shared, arguments, work, state, out, group, lane);
  } else {
    small::multiply_state<false>(shared, state, work, arguments.l2norm, group, lane);
    __syncwarp();
    wait_at(small::kPublished, SmallShape::kThreads);
    small::solve(shared, work, group, lane);
  }
}

inline cudaError_t launch_small_tree(const FusedInstance& instance, dim3 grid, cudaStream_t stream, bool dependently,
                                     const void* arguments) {
  const auto& given = *static_cast<const FusedArguments*>(arguments);
  return launch_kernel(given.raw_gates ? small_tree_kernel<true> : small_tree_kernel<false>, grid, instance.threads,
                       instance.shared_bytes, stream, dependently, given);
}

inline FusedInstance small_tree_instance() {
  static_assert(sizeof(SmallShared) <= 101376, "more shared memory than a block may have on sm_86, sm_89 and sm_120");
  return {launch_small_tree, SmallShape::kThreads, SmallShape::kColumns, sizeof(SmallShared)};
}

}  // namespace canopy::cuda
