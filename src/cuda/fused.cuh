// The fused tree kernel: one launch verifies every tree of the batch (E5 to E7), `half` precision.
//
// Purpose    o = diag(exp l) Q S0 + C U with (I + G) U = R, path-compressed (docs/math.md), for all nodes at once.
// Precision  one fp16 pass of every tensor-core product, fp32 accumulation; gates, decay and the 16-row substitution in
//            fp32, log gates in two floats. S0 and each key and query row carry a power of two of their own.
// Grid       x: value head, then tile of kColumns value columns; y: sequence. Nothing but (B, T) shapes it.
// Reads      q, k [B,T,H,K], v [B,T,HV,V], gates [B,T,HV], state pool, slot index, plan.
// Writes     o [B,T,HV,V] of live nodes; U, l when asked; row_status. The workspace holds path rows deeper than
//            kStackRows: [B,HV,V/16,kSpillRows,16] fp16.
// Keeps      a row's bits do not depend on the batch or the tile width; what is not finite stays in its subtree.
//
// Flow
//   1. All warps: own copies on their way, gates and plan into tables; then l by pointer doubling.
//   2. Prep warps take the steps in turn: own cp.async of the 16 block rows of K and Q and the 16 path rows of K into a
//      ring slot; raw products; K and Q to fp16 in place; decay, mask; substitution; coefficients into the slot.
//   3. Solver warps (16 kTiles value columns each) follow through mbarriers: S0^T k and S0^T q from S0 in registers, R,
//      U from W R and -W G u_path, O from C; push U on the path stack.
// Shared memory: the ring (14.5 KB a slot at K = 128), 1.5 KB of path stack and 2 KB of V a column group, 9 KB of
// tables.
#pragma once

#include "cuda/plan.cuh"
#include "cuda/tile/prep.cuh"
#include "cuda/tile/solve.cuh"

namespace canopy::cuda {

template <class Input_, int kKeys, int kColumns_, int kTiles_, int kPrepWarps_, int kDepth_>
struct FusedShape {
  using Input = Input_;
  static constexpr int K = kKeys, kColumns = kColumns_, kTiles = kTiles_, kPrepWarps = kPrepWarps_;
  static constexpr int kSlots = kPrepWarps * kDepth_, kDepth = kDepth_;
  static constexpr int kGroups = kColumns / 16, kSolverWarps = kGroups / kTiles;
  static constexpr int kThreads = 32 * (kSolverWarps + kPrepWarps);
};

template <class Shape>
struct FusedShared {
  Slot<Shape::K> slots[Shape::kSlots];
  ValueGroup<typename Shape::Input> groups[Shape::kGroups];
  alignas(128) float stage[Shape::kSolverWarps][16 * kStageStride];
  NodeTables tables;
  // K and Q of a slot are fp16, its coefficients are there, its readers are done.
  std::uint64_t converted[Shape::kSlots], published[Shape::kSlots], empty[Shape::kSlots];
};

struct FusedArguments {
  VerifyParams params;
  Rows q, k, v, o, u;
  const DevicePlan* plans;
  __half* spill;
  float scale;
};

// What a CTA works on.
struct FusedWork {
  int b, head, key_head, column;
  int count, depth, blocks, steps;
  std::int64_t slot;
};

// Position in the ring: step s lies in slot s % kSlots, on its s / kSlots-th use.
template <int kSlots>
struct RingAt {
  int slot = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, phase ^= 1;
  }
};

// Rows of a sequence with a malformed tree.
template <class Shape>
__device__ void write_nan(const VerifyParams& p, int b, int head, int column, int count) {
  const float nan = __int_as_float(0x7fffffff);
  for (int i = threadIdx.x; i < count * Shape::kColumns; i += Shape::kThreads) {
    const int node = i / Shape::kColumns, v = column + i % Shape::kColumns;
    auto at = [&](const Tensor& t) { return b * t.stride[1] + node * t.stride[2] + head * t.stride[3] + v; };
    if (p.o.dtype == CANOPY_F32)
      static_cast<float*>(p.o.data)[at(p.o)] = nan;
    else
      static_cast<std::uint16_t*>(p.o.data)[at(p.o)] = 0x7fff;  // a NaN as bf16 and as f16
    if (p.stash_u.data) static_cast<float*>(p.stash_u.data)[at(p.stash_u)] = nan;
    if (p.stash_l.data && v == 0)
      static_cast<float*>(
          p.stash_l.data)[b * p.stash_l.stride[1] + node * p.stash_l.stride[2] + head * p.stash_l.stride[3]] = nan;
  }
}

// The tables, each warp after it has started its own copies; all warps meet in here.
template <class Shape>
__device__ __forceinline__ void finish_tables(NodeTables& tables, const FusedArguments& arguments,
                                              const FusedWork& work) {
  load_gates<Shape::kThreads>(tables, arguments.params.problem, work.b, work.head, work.count);
  load_plan<Shape::kThreads>(tables, arguments.plans[work.b]);
  __syncthreads();
  accumulate_gates<Shape::kThreads>(tables, work.count, work.depth);
}

template <class Shape>
__device__ __forceinline__ void prep_warp(FusedShared<Shape>& shared, const FusedArguments& arguments,
                                          const DevicePlan& plan, const FusedWork& work, int unit, int lane) {
  using Input = typename Shape::Input;
  constexpr int K = Shape::K, kSlots = Shape::kSlots, kStride = Shape::kPrepWarps;
  const char *keys = arguments.k.of(work.b, work.key_head), *queries = arguments.q.of(work.b, work.key_head);
  const std::uint32_t key_step = arguments.k.node, query_step = arguments.q.node;
  const bool l2norm = arguments.params.problem.l2norm != 0;
  const float eps = arguments.params.problem.l2norm_eps;

  StepRows rows[Shape::kDepth];  // of the steps whose copies are under way, the next one first
#pragma unroll
  for (int i = 0; i < Shape::kDepth; ++i) {
    const int step = unit + i * kStride;
    if (step < work.steps) {
      rows[i] = read_step(plan, step, lane);
      if constexpr (kAsync<Input>)
        start_rows<K>(shared.slots[step % kSlots], keys, key_step, queries, query_step, rows[i], lane);
    }
    if constexpr (kAsync<Input>) cute::cp_async_fence();
  }
  finish_tables<Shape>(shared.tables, arguments, work);

  for (int step = unit; step < work.steps; step += kStride) {
    const int slot = step % kSlots, next = step + kSlots;
    StepRows next_rows{};
    if (next < work.steps) next_rows = read_step(plan, next, lane);
    if constexpr (kAsync<Input>) {
      cute::cp_async_wait<Shape::kDepth - 1>();
    } else {
      if (step >= kSlots) barrier_wait(&shared.empty[slot], (step / kSlots - 1) & 1);
      Slot<K>& to = shared.slots[slot];
      read_f32_rows<K>(to.keys, to.input_factor[0], keys, key_step, rows[0].node, 0, lane);
      read_f32_rows<K>(to.queries, to.input_factor[1], queries, query_step, rows[0].node, 0, lane);
      read_f32_rows<K>(to.path, to.input_factor[2], keys, key_step, rows[0].node, 16, lane);
    }
    __syncwarp();
    prepare_step<Input, K>(shared.slots[slot], shared.tables, rows[0], l2norm, eps, arguments.scale,
                           &shared.converted[slot], &shared.published[slot], lane);
    if constexpr (kAsync<Input>) {
      if (next < work.steps) {
        barrier_wait(&shared.empty[slot], (step / kSlots) & 1);
        start_rows<K>(shared.slots[slot], keys, key_step, queries, query_step, next_rows, lane);
      }
      cute::cp_async_fence();
    }
#pragma unroll
    for (int i = 0; i + 1 < Shape::kDepth; ++i) rows[i] = rows[i + 1];
    rows[Shape::kDepth - 1] = next_rows;
  }
}

template <class Shape>
__device__ __forceinline__ void solver_warp(FusedShared<Shape>& shared, const FusedArguments& arguments,
                                            const DevicePlan& plan, const FusedWork& work, int warp, int lane) {
  using Input = typename Shape::Input;
  constexpr int K = Shape::K, kTiles = Shape::kTiles;
  constexpr int kValueBytes = 16 * sizeof(Input);  // of one column group
  const NodeTables& tables = shared.tables;
  ValueGroup<Input>* groups = shared.groups + warp * kTiles;
  float* stage = shared.stage[warp];
  const int blocks = work.blocks, count = work.count, column = work.column + 16 * kTiles * warp;
  const Problem& problem = arguments.params.problem;
  __half* spill =
      arguments.spill +
      ((std::int64_t{work.b} * problem.heads_v + work.head) * (problem.dim_v / 16) + column / 16) * (kSpillRows * 16);
  const char* values = arguments.v.of(work.b, work.head) + column * sizeof(Input);
  const int o_bytes = arguments.o.dtype == CANOPY_F32 ? 4 : 2;
  char* out = arguments.o.of(work.b, work.head) + column * o_bytes;
  const bool stores_u = arguments.u.data != nullptr;
  char* u_out = arguments.u.of(work.b, work.head) + column * 4;

  auto start = [&](int block, int node) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      start_values<Input>(groups[m].values[block % kValueStages], values + m * kValueBytes, arguments.v.node, node,
                          lane);
  };

  StateTile<K> state[kTiles];
  {
    StateElements<K> s0;
    load_state<K>(s0, problem, work.slot, work.head, column, lane);
#pragma unroll
    for (int i = 0; i < kValueStages; ++i) {
      const int rank = 16 * i + lane / 2;
      if (i < blocks) start(i, rank < count ? static_cast<int>(plan.order[rank]) : -1);
      cute::cp_async_fence();
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) clear(groups[m].stack, lane);
    finish_tables<Shape>(shared.tables, arguments, work);
    convert_state<K>(state[0], s0);
#pragma unroll
    for (int m = 1; m < kTiles; ++m) {
      load_state<K>(s0, problem, work.slot, work.head, column + 16 * m, lane);
      convert_state<K>(state[m], s0);
    }
  }

  SpoiltPath spoilt[kTiles];
  bool spoilt_before = false;
  RingAt<Shape::kSlots> at;
  for (int block = 0; block < blocks; ++block) {
    const int first = 16 * block, ancestors = tables.ancestors[block];
    float r[kTiles][2][4], o[kTiles][2][4];  // transposed: [n-tile of nodes][value, node]
    barrier_wait(&shared.converted[at.slot], at.phase);
    const Slot<K>* slot = &shared.slots[at.slot];
    state_products<K, kTiles>(r, state, slot->keys, lane);
    state_products<K, kTiles>(o, state, slot->queries, lane);
    cute::cp_async_wait<kValueStages - 1>();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = 8 * n + 2 * (lane % 4);
      const float2 exp_l = *reinterpret_cast<const float2*>(tables.exp_l + first + j);
      const float2 beta = *reinterpret_cast<const float2*>(tables.beta + first + j);
      const float2 key = *reinterpret_cast<const float2*>(slot->key_factor + j);
      const float2 query = *reinterpret_cast<const float2*>(slot->query_factor + j);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float scale = state[m].product_scale;
        const float ek[2] = {exp_l.x * key.x * scale, exp_l.y * key.y * scale};
        const float eq[2] = {exp_l.x * query.x * scale, exp_l.y * query.y * scale};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          r[m][n][c] *= -ek[c % 2];
          o[m][n][c] *= eq[c % 2];
        }
      }
      // R = beta (v - exp(l) S0^T k)   (E5)
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        float v[2][4];
        read_values<Input>(v, groups[m].values[block % kValueStages], lane);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float b_j = c % 2 ? beta.y : beta.x;
          r[m][n][c] = b_j * fmaf(v[n][c], state[m].value_scale, r[m][n][c]);
        }
      }
    }

    // Path rows above the last 16: R -= G u_path, O += C u_path.
    for (int tile = 0; 16 * (tile + 1) < ancestors; ++tile) {
      barrier_wait(&shared.published[at.slot], at.phase);
      slot = &shared.slots[at.slot];
      std::uint32_t g[4], c[4], u_path[kTiles][4];
      read_fragment(g, slot->g, lane);
      read_fragment(c, slot->c_path, lane);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        read_path(u_path[m], groups[m].stack, spill + m * kSpillRows * 16, tile, ancestors, lane);
      accumulate<kTiles>(r, u_path, g);
      accumulate<kTiles>(o, u_path, c);
      __syncwarp();
      if (lane == 0) barrier_arrive(&shared.empty[at.slot]);
      at.advance();
    }

    // U = W R - W G u_path   (E6)
    std::uint32_t r_half[kTiles][4], u_path[kTiles][4], u[kTiles][4];
    __half2 sum = __floats2half2_rn(0.f, 0.f);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      to_operand(r_half[m], r[m]);
      sum = spoilt_by(r_half[m], sum);
      read_path(u_path[m], groups[m].stack, spill + m * kSpillRows * 16, max(0, ancestors - 1) / 16, ancestors, lane);
    }
    unsigned nan_nodes[kTiles] = {};
    const bool spoilt_now = spoilt_before || any_spoilt(sum);
    if (__builtin_expect(spoilt_now, 0)) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        nan_nodes[m] = spoilt_nodes(r_half[m], lane);
        clear_nodes(r_half[m], nan_nodes[m], lane);
      }
    }
    barrier_wait(&shared.published[at.slot], at.phase);
    slot = &shared.slots[at.slot];
    std::uint32_t w[4], g[4], c[4], c_path[4];
    {
      const int row = narrow_byte((lane / 8) % 2 * 8 + lane % 8, lane / 16);
      load_transposed(w, slot->w + row);
      load_transposed(g, slot->g + row);
    }
    read_fragment(c, slot->c, lane);
    read_fragment(c_path, slot->c_path, lane);
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int i = 0; i < 8; ++i) r[m][i / 4][i % 4] = 0;
    accumulate<kTiles>(r, u_path, g);
    accumulate<kTiles>(r, r_half, w);
    accumulate<kTiles>(o, u_path, c_path);
    sum = __floats2half2_rn(0.f, 0.f);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      to_operand(u[m], r[m]);
      sum = spoilt_by(u[m], sum);
    }
    const bool careful = any_spoilt(sum) || spoilt_now;
    if (__builtin_expect(careful, 0)) {
      spoilt_before = false;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        nan_nodes[m] = spoilt[m].below(nan_nodes[m] | spoilt_nodes(u[m], lane), tables, first, lane);
        clear_nodes(u[m], nan_nodes[m], lane);
        fill_nan(r[m], nan_nodes[m], lane);
        spoilt[m].push(nan_nodes[m], tables, first, lane);
        spoilt_before |= spoilt[m].any();
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      push_path(groups[m].stack, spill + m * kSpillRows * 16, u[m], tables.push + first, lane);
    accumulate<kTiles>(o, u, c);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[at.slot]);
    at.advance();

    const int rank = first + lane / 2, next = block + kValueStages, next_rank = 16 * next + lane / 2;
    const int node = rank < count ? tables.order[rank] : -1;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if (__builtin_expect(careful, 0)) fill_nan(o[m], nan_nodes[m], lane);
#pragma unroll
      for (int i = 0; i < 8; ++i) o[m][i / 4][i % 4] *= state[m].value_unscale;
      write_tile(stage, o[m], out + m * 16 * o_bytes, arguments.o.node, arguments.o.dtype, node, lane);
      if (stores_u) {
#pragma unroll
        for (int i = 0; i < 8; ++i) r[m][i / 4][i % 4] *= state[m].value_unscale;
        write_tile(stage, r[m], u_out + m * 64, arguments.u.node, CANOPY_F32, node, lane);
      }
    }
    __syncwarp();
    if (next < blocks) start(next, next_rank < count ? tables.order[next_rank] : -1);
    cute::cp_async_fence();
  }
}

template <class Shape, int kMinCtas>
__global__ void __launch_bounds__(Shape::kThreads, kMinCtas)
    fused_kernel(const __grid_constant__ FusedArguments arguments) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  auto& shared = *reinterpret_cast<FusedShared<Shape>*>(memory);
  const VerifyParams& p = arguments.params;
  const int tiles = p.problem.dim_v / Shape::kColumns;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  FusedWork work;
  work.b = blockIdx.y, work.head = blockIdx.x / tiles, work.column = blockIdx.x % tiles * Shape::kColumns;
  work.key_head = work.head / (p.problem.heads_v / p.problem.heads_k);
  const DevicePlan& plan = arguments.plans[work.b];
  wait_for_previous_kernel();

  work.slot = device_slot(p.problem, p.problem.slot_index, work.b);
  const int4 header = *reinterpret_cast<const int4*>(&plan);
  work.steps = plan.steps, work.count = header.y, work.depth = header.z, work.blocks = header.w;
  const int status = header.x | (work.slot >= p.problem.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (blockIdx.x == 0 && threadIdx.x == 0 && p.row_status) p.row_status[work.b] = work.slot < 0 ? 0 : status;
  if (work.slot < 0) return;
  if (status) {
    if (status == CANOPY_ROW_BAD_TREE) write_nan<Shape>(p, work.b, work.head, work.column, work.count);
    return;
  }
  if (work.count == 0) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kSlots; ++i) {
      barrier_init(&shared.converted[i], 1);
      barrier_init(&shared.published[i], 1);
      barrier_init(&shared.empty[i], Shape::kSolverWarps);
    }
  }
  if (warp < Shape::kSolverWarps) {
    solver_warp<Shape>(shared, arguments, plan, work, warp, lane);
  } else {
    prep_warp<Shape>(shared, arguments, plan, work, warp - Shape::kSolverWarps, lane);
  }
  if (work.column == 0 && p.stash_l.data) {
    for (int r = threadIdx.x; r < work.count; r += Shape::kThreads)
      static_cast<float*>(p.stash_l.data)[work.b * p.stash_l.stride[1] + shared.tables.order[r] * p.stash_l.stride[2] +
                                          work.head * p.stash_l.stride[3]] = shared.tables.l[r].hi;
  }
}

}  // namespace canopy::cuda
