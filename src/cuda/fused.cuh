// The fused tree kernel: one launch verifies every tree of the batch (E5 to E7), `half` precision.
//
// Purpose    o = diag(exp l) Q S0 + C U with (I + G) U = R, path-compressed (docs/math.md), for all nodes at once.
// Precision  one fp16 pass of every tensor-core product, fp32 accumulation; gates, decay and the 16-row substitution in
//            fp32, log gates in two floats. S0 and each key and query row carry a power of two of their own.
// Grid       x: tile of kColumns value columns; y: value head; z: sequence. Nothing but (B, T) shapes it.
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
#include "cuda/row.cuh"
#include "cuda/tile/prep.cuh"
#include "cuda/tile/solve.cuh"

// CTAs that have to fit an SM by registers. sm_120 has shared memory for one alone, and needs no spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
#define CANOPY_MIN_CTAS(wanted) 1
#else
#define CANOPY_MIN_CTAS(wanted) (wanted)
#endif

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

// Everything the kernel asks of a call, in the order it asks: constant memory is fetched line by line.
struct FusedArguments {
  const DevicePlan* plans;
  const void* slot_index;
  std::int64_t padding_slot, slots;
  std::int32_t* row_status;
  std::int32_t nodes, dim_v, heads_v;
  float value_heads_inverse;  // H / HV
  bool long_slots, raw_gates, beta_doubled, l2norm, state_vk;
  float scale, l2norm_eps;
  Rows g, beta;  // or a and b
  PerHead a_log, dt_bias;
  std::int32_t a_log_dtype, dt_bias_dtype;
  Rows k, q, state, v, o, u, l;
  __half* spill;
};

// What a CTA works on.
struct FusedWork {
  int b, head, key_head, column;
  int count, depth, blocks, steps;
  std::int64_t slot;
};

__device__ __forceinline__ Gate fused_gate(const FusedArguments& a, int b, int node, int head) {
  const char *g = a.g.of(b, head) + std::int64_t{node} * a.g.node,
             *beta = a.beta.of(b, head) + std::int64_t{node} * a.beta.node;
  if (!a.raw_gates) return {clamp_log_gate(*reinterpret_cast<const float*>(g)), *reinterpret_cast<const float*>(beta)};
  const float x = load_float(g, a.g.dtype, 0) + load_float(a.dt_bias.data + head * a.dt_bias.step, a.dt_bias_dtype, 0);
  return {log_gate_from_raw(load_float(a.a_log.data + head * a.a_log.step, a.a_log_dtype, 0), x),
          beta_from_raw(load_float(beta, a.beta.dtype, 0), a.beta_doubled)};
}

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
__device__ void write_nan(const FusedArguments& a, const FusedWork& work) {
  const float nan = __int_as_float(0x7fffffff);
  for (int i = threadIdx.x; i < work.count * Shape::kColumns; i += Shape::kThreads) {
    const int node = i / Shape::kColumns, v = work.column + i % Shape::kColumns;
    auto row = [&](const Rows& t) { return t.of(work.b, work.head) + std::int64_t{node} * t.node; };
    if (a.o.dtype == CANOPY_F32)
      reinterpret_cast<float*>(row(a.o))[v] = nan;
    else
      reinterpret_cast<std::uint16_t*>(row(a.o))[v] = 0x7fff;  // a NaN as bf16 and as f16
    if (a.u.data) reinterpret_cast<float*>(row(a.u))[v] = nan;
    if (a.l.data && v == 0) *reinterpret_cast<float*>(row(a.l)) = nan;
  }
}

// A prep warp's first copies, before the tables are there; `rows` are its next steps.
template <class Shape>
__device__ __forceinline__ void start_prep(const StepRows (&rows)[Shape::kDepth], FusedShared<Shape>& shared,
                                           const FusedArguments& arguments, const FusedWork& work, int unit, int lane) {
  if constexpr (kAsync<typename Shape::Input>) {
    const char *keys = arguments.k.of(work.b, work.key_head), *queries = arguments.q.of(work.b, work.key_head);
#pragma unroll
    for (int i = 0; i < Shape::kDepth; ++i) {
      const int step = unit + i * Shape::kPrepWarps;
      if (step < work.steps)
        start_rows<Shape::K>(shared.slots[step % Shape::kSlots], keys, arguments.k.node, queries, arguments.q.node,
                             rows[i], lane);
      cute::cp_async_fence();
    }
  }
}

template <class Shape>
__device__ __forceinline__ void prep_warp(StepRows (&rows)[Shape::kDepth], FusedShared<Shape>& shared,
                                          const FusedArguments& arguments, const DevicePlan& plan,
                                          const FusedWork& work, int unit, int lane) {
  using Input = typename Shape::Input;
  constexpr int K = Shape::K, kSlots = Shape::kSlots, kStride = Shape::kPrepWarps;
  const char *keys = arguments.k.of(work.b, work.key_head), *queries = arguments.q.of(work.b, work.key_head);
  const std::uint32_t key_step = arguments.k.node, query_step = arguments.q.node;

  for (int step = unit; step < work.steps; step += kStride) {
    const int slot = step % kSlots, next = step + kSlots;
    StepRows next_rows{};
    if (next < work.steps) next_rows = read_step(plan, next, lane);
    if constexpr (kAsync<Input>) {
      cute::cp_async_wait<Shape::kDepth - 1>();
    } else {
      if (step >= kSlots) barrier_wait(&shared.empty[slot], (step / kSlots - 1) & 1);
      Slot<K>& to = shared.slots[slot];
      read_f32_rows<K>(to.keys, input_factors(to, 0), keys, key_step, rows[0].node, 0, lane);
      read_f32_rows<K>(to.queries, input_factors(to, 1), queries, query_step, rows[0].node, 0, lane);
      read_f32_rows<K>(to.path, input_factors(to, 2), keys, key_step, rows[0].node, 16, lane);
    }
    __syncwarp();
    prepare_step<Input, K>(shared.slots[slot], shared.tables, rows[0], arguments.l2norm, arguments.l2norm_eps,
                           arguments.scale, &shared.converted[slot], &shared.published[slot], lane);
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

// A column group's value tile of a block on its way.
template <class Shape>
__device__ __forceinline__ void start_block(ValueGroup<typename Shape::Input>* groups, const FusedArguments& arguments,
                                            const char* values, int block, int node, int lane) {
  using Input = typename Shape::Input;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m)
    start_values<Input>(groups[m].values[block % kValueStages], values + m * 16 * sizeof(Input), arguments.v.node, node,
                        lane);
}

// A solver warp's first copies, and S0 if it has one column group (with two, the registers are needed elsewhere).
template <class Shape>
__device__ __forceinline__ void start_solver(StateElements<Shape::K>& s0, FusedShared<Shape>& shared,
                                             const FusedArguments& arguments, const FusedWork& work,
                                             const int (&first_nodes)[kValueStages], int warp, int lane) {
  const int column = work.column + 16 * Shape::kTiles * warp;
  ValueGroup<typename Shape::Input>* groups = shared.groups + warp * Shape::kTiles;
  const char* values = arguments.v.of(work.b, work.head) + column * sizeof(typename Shape::Input);
  if (Shape::kTiles == 1)
    load_state<Shape::K>(s0, arguments.state, arguments.state_vk, work.slot, work.head, column, lane);
#pragma unroll
  for (int i = 0; i < kValueStages; ++i) {
    if (i < work.blocks)
      start_block<Shape>(groups, arguments, values, i, 16 * i + lane / 2 < work.count ? first_nodes[i] : -1, lane);
    cute::cp_async_fence();
  }
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) clear(groups[m].stack, lane);
}

template <class Shape>
__device__ __forceinline__ void solver_warp(StateElements<Shape::K>& s0, FusedShared<Shape>& shared,
                                            const FusedArguments& arguments, const FusedWork& work, int warp,
                                            int lane) {
  using Input = typename Shape::Input;
  constexpr int K = Shape::K, kTiles = Shape::kTiles;
  const NodeTables& tables = shared.tables;
  ValueGroup<Input>* groups = shared.groups + warp * kTiles;
  float* stage = shared.stage[warp];
  const int blocks = work.blocks, count = work.count, column = work.column + 16 * kTiles * warp;
  __half* spill = arguments.spill +
                  ((std::int64_t{work.b} * arguments.heads_v + work.head) * (arguments.dim_v / 16) + column / 16) *
                      (kSpillRows * 16);
  const char* values = arguments.v.of(work.b, work.head) + column * sizeof(Input);
  const int o_bytes = arguments.o.dtype == CANOPY_F32 ? 4 : 2;
  char* out = arguments.o.of(work.b, work.head) + column * o_bytes;
  const bool stores_u = arguments.u.data != nullptr;
  char* u_out = arguments.u.of(work.b, work.head) + column * 4;

  StateTile<K> state[kTiles];
  if (kTiles == 1) convert_state<K>(state[0], s0);
#pragma unroll
  for (int m = 0; m < kTiles && kTiles > 1; ++m) {
    load_state<K>(s0, arguments.state, arguments.state_vk, work.slot, work.head, column + 16 * m, lane);
    convert_state<K>(state[m], s0);
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
      // R = beta (v - exp(l) S0^T k)   (E5), O = exp(l) S0^T q
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float scale = state[m].product_scale, value_scale = state[m].value_scale;
        const float of_key[2] = {-beta.x * exp_l.x * key.x * scale, -beta.y * exp_l.y * key.y * scale};
        const float of_query[2] = {exp_l.x * query.x * scale, exp_l.y * query.y * scale};
        const float of_value[2] = {beta.x * value_scale, beta.y * value_scale};
        float v[4];
        read_values<Input>(v, groups[m].values[block % kValueStages], n, lane);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          r[m][n][c] = fmaf(r[m][n][c], of_key[c % 2], v[c] * of_value[c % 2]);
          o[m][n][c] *= of_query[c % 2];
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
      warp_arrive(&shared.empty[at.slot], lane);
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
    warp_arrive(&shared.empty[at.slot], lane);
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
    if (next < blocks)
      start_block<Shape>(groups, arguments, values, next, next_rank < count ? tables.order[next_rank] : -1, lane);
    cute::cp_async_fence();
  }
}

template <class Shape, int kMinCtas>
__global__ void __launch_bounds__(Shape::kThreads, CANOPY_MIN_CTAS(kMinCtas))
    fused_kernel(const __grid_constant__ FusedArguments arguments) {
  extern __shared__ __align__(256) std::uint8_t memory[];
  static_assert(sizeof(FusedShared<Shape>) <= 101376, "more shared memory than a block may have on sm_120");
  auto& shared = *reinterpret_cast<FusedShared<Shape>*>(memory);
  constexpr int kThreads = Shape::kThreads, kGates = (kNodes + kThreads - 1) / kThreads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  FusedWork work;
  work.b = blockIdx.z, work.head = blockIdx.y, work.column = blockIdx.x * Shape::kColumns;
  work.key_head = static_cast<int>((work.head + 0.5f) * arguments.value_heads_inverse);
  const DevicePlan& plan = arguments.plans[work.b];
  wait_for_previous_kernel();

  // Loads that depend on nothing. Those of the plan may be of a malformed or shorter tree: they are in bounds, and what
  // they bring is not used then.
  const bool solves = warp < Shape::kSolverWarps;
  const int unit = warp - Shape::kSolverWarps;
  StepRows rows[Shape::kDepth];
  int first_nodes[kValueStages];
  if (solves) {
#pragma unroll
    for (int i = 0; i < kValueStages; ++i) first_nodes[i] = plan.order[16 * i + lane / 2];
  } else {
#pragma unroll
    for (int i = 0; i < Shape::kDepth; ++i) rows[i] = read_step(plan, unit + i * Shape::kPrepWarps, lane);
  }
  work.slot = work.b;
  if (arguments.slot_index)
    work.slot = arguments.long_slots ? static_cast<const std::int64_t*>(arguments.slot_index)[work.b]
                                     : static_cast<const std::int32_t*>(arguments.slot_index)[work.b];
  const int4 header = *reinterpret_cast<const int4*>(&plan);
  work.steps = plan.steps, work.count = header.y, work.depth = header.z, work.blocks = header.w;
  const uint4 plan_part = load_plan(plan);
  Gate gates[kGates];
#pragma unroll
  for (int i = 0; i < kGates; ++i) {
    const int node = threadIdx.x + i * kThreads;
    if (node < arguments.nodes) gates[i] = fused_gate(arguments, work.b, node, work.head);
  }

  const bool padding = arguments.slot_index && work.slot <= arguments.padding_slot;
  const int status = padding ? 0 : header.x | (work.slot >= arguments.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && arguments.row_status)
    arguments.row_status[work.b] = status;
  if (status == CANOPY_ROW_BAD_TREE) write_nan<Shape>(arguments, work);
  if (padding || status || work.count == 0) return;

  StateElements<Shape::K> s0;
  if (solves)
    start_solver<Shape>(s0, shared, arguments, work, first_nodes, warp, lane);
  else
    start_prep<Shape>(rows, shared, arguments, work, unit, lane);
  if (threadIdx.x < Shape::kSlots) {
    barrier_init(&shared.converted[threadIdx.x], kWarpArrivals);
    barrier_init(&shared.published[threadIdx.x], kWarpArrivals);
    barrier_init(&shared.empty[threadIdx.x], kWarpArrivals * Shape::kSolverWarps);
  }
  store_plan(shared.tables, plan_part);
#pragma unroll
  for (int i = 0; i < kGates; ++i) {
    const int node = threadIdx.x + i * kThreads;
    if (node < arguments.nodes) shared.tables.other[node] = {gates[i].log_gate, gates[i].beta};
  }
  __syncthreads();
  accumulate_gates<kThreads>(shared.tables, work.count, work.depth);

  if (solves)
    solver_warp<Shape>(s0, shared, arguments, work, warp, lane);
  else
    prep_warp<Shape>(rows, shared, arguments, plan, work, unit, lane);

  if (work.column == 0 && arguments.l.data) {
    char* l = arguments.l.of(work.b, work.head);
    for (int r = threadIdx.x; r < work.count; r += kThreads)
      *reinterpret_cast<float*>(l + std::int64_t{shared.tables.order[r]} * arguments.l.node) = shared.tables.l[r].hi;
  }
}

}  // namespace canopy::cuda
