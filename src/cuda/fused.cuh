// The fused tree kernel: one launch verifies every tree of the batch (E5 to E7) with tensor cores. docs/kernels.md
// explains the words: block, step, slot, path stack, fold, prep and solver warp.
//
// Purpose    o = diag(exp l) Q S0 + C U with (I + G) U = R, path-compressed (docs/math.md), for all nodes at once.
// Precision  half: one fp16 pass of every product, fp32 accumulation; precise: operands in two fp16 parts; fast: bf16
//            operands. Always in fp32: decay and the 16-row substitution; log gates add up without rounding. State
//            columns and key and query rows that fp16 holds badly carry a power of two of their own.
// Grid       x: tile of kColumns value columns; y: kHeads value heads; z: sequence. It depends on B, T, HV and V
//            alone, never on the trees.
// Reads      q, k [B,T,H,K], v [B,T,HV,V], gates [B,T,HV], state pool, slot index, plan.
// Writes     o [B,T,HV,V] of live nodes; U (precise), l when asked; row_status. The workspace holds path rows deeper
//            than kPathRows: [2,B,HV,V/16,kNodes,kParts,16] 16-bit.
// Keeps      a row's bits do not depend on the batch or the tile width; what is not finite stays in its subtree.
//
// Flow
//   1. Prep warps read their first steps from the plan and start copying; solver warps start copying V and S0 and make
//      the node tables meanwhile.
//   2. Prep warps take the steps in turn: own cp.async of the 16 block rows of K and Q and the 16 path rows of K into a
//      ring slot; raw products, K and Q to operands in place; decay, mask; substitution; coefficients into the slot.
//   3. Solver warps (16 kTiles value columns each) follow through mbarriers: S0^T k and S0^T q from S0 in registers, R,
//      U from W R and -W G u_path, O from C; push U on the path stack. Deep root paths that all later nodes share are
//      folded into S0 32 nodes at a time.
// Shared memory: docs/kernels.md.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/tile/prep.cuh"
#include "cuda/tile/solve.cuh"
#include "cuda/tile/work.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

// A prep warp's steps. `rows` are its first kDepth, under way already.
template <class Shape>
__device__ __forceinline__ void prep_warp(StepRows (&rows)[Shape::kDepth], FusedShared<Shape>& shared,
                                          const KeySource& source, const PrepOptions& options, const DevicePlan& plan,
                                          int steps, int unit, int lane) {
  using Input = typename Shape::Input;
  constexpr int K = Shape::K, kDepth = Shape::kDepth, kStride = Shape::kPrepWarps;
  int slot = unit, last_slot = unit + (kDepth - 1) * kStride;  // of rows[0] and rows[kDepth - 1]
  std::uint32_t phase = 0, last_phase = 0;                     // how often, modulo 2, they were used before
  auto advance = [&](int& s, std::uint32_t& p) {
    if ((s += kStride) >= Shape::kSlots) s -= Shape::kSlots, p ^= 1;
  };
  for (int i = 0, step = unit; step < steps; ++i, step += kStride) {
    StepLoad coming{};
    if (step + kDepth * kStride < steps) coming = load_step(plan, step + kDepth * kStride, lane);
    // The last slot's rows, as soon as the step before this one has left it.
    auto bring_last = [&] {
      if (step + (kDepth - 1) * kStride < steps) {
        barrier_wait(&shared.empty[last_slot], last_phase ^ 1);
        start_rows(shared.slots[last_slot], source, rows[kDepth - 1], &shared.loaded[last_slot], lane);
      }
    };
    if constexpr (!kAsync<Input>) {
      if (i >= kDepth) barrier_wait(&shared.empty[slot], phase ^ 1);
      auto& to = shared.slots[slot];
      const bool folds = rows[0].folds;
      read_f32_rows<K>(to.keys, to.input_factor[0], source.keys, source.key_step, rows[0].node, 0, lane);
      read_f32_rows<K>(to.queries, to.input_factor[1], folds ? source.keys : source.queries,
                       folds ? source.key_step : source.query_step, rows[0].node, folds ? 16 : 0, lane);
      if (!folds) read_f32_rows<K>(to.path, to.input_factor[2], source.keys, source.key_step, rows[0].node, 16, lane);
    } else {
      if (kDepth == 1 && i > 0) bring_last();
      barrier_wait(&shared.loaded[slot], phase);
    }
    __syncwarp();
    prepare_step<Shape>(
        shared.slots[slot], shared.tables, rows[0], source, options, &shared.tables_ready, &shared.converted[slot],
        &shared.published[slot],
        [&] {
          if (kAsync<Input> && kDepth > 1 && i > 0) bring_last();
        },
        lane);
#pragma unroll
    for (int d = 0; d + 1 < kDepth; ++d) rows[d] = rows[d + 1];
    rows[kDepth - 1] = StepRows(coming, lane);
    advance(slot, phase), advance(last_slot, last_phase);
  }
}

// A solver warp, from S0 and V on their way to the last output. Two steps make the node tables: `store_tables`, after
// which the solver warps meet, and `finish_tables`.
template <class Shape, class Store, class Finish>
__device__ __forceinline__ void solver_side(FusedShared<Shape>& shared, const FusedArguments& arguments,
                                            const FusedWork& work, Store&& store_tables, Finish&& finish_tables,
                                            int warp, int lane) {
  constexpr int K = Shape::K, kTiles = Shape::kTiles;
  const int group = Shape::kSharedWork ? warp % Shape::kGroups : kTiles * warp;
  const bool makes_o = Shape::kSharedWork && warp >= Shape::kGroups;
  const int column = work.column + 16 * column_group<Shape>(group);
  StateElements<K> s0;
  bool staged = false;
  if constexpr (Shape::kStagesState) {
    staged = arguments.state_vk;
    if (staged) {
      start_state(shared.state[group], arguments.state, work.slot, work.head, column, makes_o ? 8 : 0, 8, lane);
      barrier_arrive_async(&shared.state_loaded[group]);
    }
  }
  bool by_rows = false;
  if constexpr (!Shape::kStagesState) by_rows = arguments.state_vk;
  const auto load_tile = [&](int m) {
    if constexpr (!Shape::kStagesState) {
      if (by_rows) return load_state_rows<K>(s0, arguments.state, work.slot, work.head, column + 16 * m, lane);
    }
    load_state<K>(s0, arguments.state, arguments.state_vk, work.slot, work.head, column + 16 * m, lane);
  };
  if constexpr (Shape::kStagesState) {
    if (!staged) load_tile(0);
    if (!makes_o) clear(shared.values[group / kTiles].stack[0], lane);
  }
  if constexpr (Shape::kSharedWork) {
    if (makes_o) clear(shared.handovers[group].stack, lane);
  }
  store_tables();
  meet(Shape::kSolverThreads);
  if (!makes_o) {
    ValueWarp<Shape>& own = shared.values[group / kTiles];
    const char* values = arguments.v.of(work.b, work.head) + column * static_cast<int>(sizeof(typename Shape::Input)) +
                         value_chunk<Shape>(lane);
#pragma unroll
    for (int i = 0; i < Shape::kValueStages; ++i) {
      if (i < work.blocks)
        start_values<Shape>(own.values[i], &shared.values_loaded[group / kTiles][i], values, arguments.v.node,
                            shared.tables[0].order + 16 * i, work.count - 16 * i, lane);
    }
  }
  // A whole S0 holds up the memory pipe, so it comes after what the tables and the first blocks wait for.
  if constexpr (!Shape::kStagesState) load_tile(0);
  finish_tables();
  warp_arrive(&shared.tables_ready, lane);

  StateTile<K, Shape::kStateParts> state[kTiles];
  if constexpr (Shape::kStagesState) {
    if (staged) {
      barrier_wait(&shared.state_loaded[group], 0);
      read_state(s0, shared.state[group], arguments.state.dtype, lane);
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    if (m > 0) load_tile(m);
    if (!by_rows) {
      convert_state<typename Shape::Operand>(state[m], s0, true);
    } else if constexpr (!Shape::kStagesState) {
      static_assert(sizeof(shared.values[0].stack) >= kRowsStaged);
      convert_state<typename Shape::Operand>(state[m], s0, true, &shared.values[group / kTiles].stack[0].rows[0][0],
                                             lane);
    }
  }
  if constexpr (!Shape::kStagesState) {
    __syncwarp();  // the stacks have been S0's staging
#pragma unroll
    for (int m = 0; m < kTiles; ++m) clear(shared.values[group / kTiles].stack[m], lane);
  }
  barrier_wait(&shared.tables_ready, 0);
  if constexpr (!Shape::kSharedWork) {
    solver_warp<Shape, Role::kBoth>(shared, arguments, work, state, group, warp, lane);
  } else if (makes_o) {
    solver_warp<Shape, Role::kO>(shared, arguments, work, state, group, warp, lane);
  } else {
    solver_warp<Shape, Role::kU>(shared, arguments, work, state, group, warp, lane);
  }
}

// One lane of each warp, each its share: an init takes some 40 cycles, and a warp's lanes would take turns. `prepared`:
// arrivals that say that a slot is ready.
template <class Shape>
__device__ __forceinline__ void start_barriers(FusedShared<Shape>& shared, int prepared) {
  constexpr int kWarps = Shape::kThreads / 32, kSlots = Shape::kSlots, kSolved = kWarpArrivals * Shape::kSolverWarps;
  constexpr int kValues = Shape::kValueWarps * Shape::kValueStages;
  using Shared = FusedShared<Shape>;
  static_assert(offsetof(Shared, tables_ready) - offsetof(Shared, loaded) ==
                8 * (4 * kSlots + kValues + Shape::kGroups));
  if (threadIdx.x % 32 != 0) return;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i <= 4 * kSlots + kValues + Shape::kGroups; i += kWarps) {
    int arrivals = 32;  // loaded, and further on values_loaded
    if (i >= kSlots && i < 3 * kSlots) arrivals = prepared;
    if (i >= 3 * kSlots && i < 4 * kSlots) arrivals = kSolved;
    if (i >= 4 * kSlots + kValues) arrivals = i < 4 * kSlots + kValues + Shape::kGroups ? 64 : kSolved;
    barrier_init(shared.loaded + i, arrivals);
  }
  if constexpr (Shape::kSharedWork) {
    static_assert(offsetof(Handover<Shape::kParts>, empty) - offsetof(Handover<Shape::kParts>, full) == 8 * kHandovers);
#pragma unroll 1
    for (int i = threadIdx.x / 32; i < 2 * kHandovers * Shape::kGroups; i += kWarps)
      barrier_init(shared.handovers[i / (2 * kHandovers)].full + i % (2 * kHandovers), kWarpArrivals);
  }
}

// `Cta`: Shape, and what tuning.hpp says of its registers.
template <class Cta, class Shape = typename Cta::Shape>
__device__ __forceinline__ void fused(const FusedArguments& arguments, FusedShared<Shape>& shared) {
  constexpr int prep_registers = Cta::cta.prep_registers, solver_registers = Cta::cta.solver_registers;
  static_assert(prep_registers == 0 || (Shape::kSolverWarps % 4 == 0 && Shape::kPrepWarps % 4 == 0), "warpgroups");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, unit = warp - Shape::kSolverWarps;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  start_barriers(shared, kWarpArrivals);
  FusedWork work;
  work.b = blockIdx.z, work.head = blockIdx.y * Shape::kHeads, work.column = blockIdx.x * Shape::kColumns;
  work.key_head = key_head_of(work.head, arguments.key_heads_each);
  const int head = Shape::kHeads == 1 ? 0 : warp / Shape::kHeadWarps;  // a solver warp's, of the CTA's
  const int thread = Shape::kHeads == 1 ? threadIdx.x : threadIdx.x % Shape::kHeadThreads;
  const bool solves = unit < 0;
  // Where CTAs wait for the kernel before, addresses are worked out meanwhile, and held: left to the compiler they come
  // after. g and beta of a solver warp's head, K and Q of a prep warp's.
  constexpr bool kHolds = Cta::cta.ctas == 1 && Shape::kHeads == 1;
  const DevicePlan* plan_at = arguments.plans + work.b;
  const char *first_of = nullptr, *second_of = nullptr;
  if constexpr (kHolds) {
    first_of = solves ? arguments.g.of(work.b, work.head + head) : arguments.k.of(work.b, work.key_head);
    second_of = solves ? arguments.beta.of(work.b, work.head + head) : arguments.q.of(work.b, work.key_head);
    hold(plan_at), hold(first_of), hold(second_of);
  }
  const DevicePlan& plan = *plan_at;
  touch(fetched);
  __syncthreads();
  begin_after_previous_kernel();

  if (solves) work.head += head;
  TableLoads<Shape::kHeadThreads, std::conditional_t<kHolds, GateBits, Gate>> loads;
  [[maybe_unused]] HeadBits of_head{};
  StepLoad first_steps[Shape::kDepth];
  if (solves) {
    if (kHolds && arguments.raw_gates) of_head = load_head(arguments, work.head);
    loads.start(plan, arguments.nodes, thread, [&](int node) {
      if constexpr (kHolds)
        return load_gate(arguments, first_of, second_of, node);
      else
        return fused_gate(arguments, work.b, node, work.head);
    });
  } else {
#pragma unroll
    for (int i = 0; i < Shape::kDepth; ++i) first_steps[i] = load_step(plan, unit + i * Shape::kPrepWarps, lane);
  }
  const FusedRow row(arguments, plan, work.b);
  row.give(work);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && arguments.row_status)
    arguments.row_status[work.b] = row.status;
  if (row.status == CANOPY_ROW_BAD_TREE && solves)
    write_nan<Shape::kColumns, Shape::kHeadThreads>(arguments, work, thread);
  if (!row.computes()) return;

  if (!solves) {
    give_registers<prep_registers>();
    const KeySource source{kHolds ? first_of : arguments.k.of(work.b, work.key_head),
                           kHolds ? second_of : arguments.q.of(work.b, work.key_head), arguments.k.node,
                           arguments.q.node};
    const PrepOptions options{arguments.l2norm, arguments.l2norm_eps, arguments.scale};
    StepRows rows[Shape::kDepth];
#pragma unroll
    for (int i = 0; i < Shape::kDepth; ++i) rows[i] = StepRows(first_steps[i], lane);
    if constexpr (kAsync<typename Shape::Input>) {
#pragma unroll
      for (int i = 0; i < Shape::kDepth; ++i) {
        const int step = unit + i * Shape::kPrepWarps;
        if (step < work.steps) start_rows(shared.slots[step], source, rows[i], &shared.loaded[step], lane);
      }
    }
    prep_warp<Shape>(rows, shared, source, options, plan, work.steps, unit, lane);
    return;
  }

  take_registers<solver_registers>();
  NodeTables& tables = shared.tables[head];
  solver_side(
      shared, arguments, work,
      [&] {
        if constexpr (kHolds)
          loads.store(tables, work.count, thread, [&](GateBits bits) {
            return arguments.raw_gates ? raw_gate(arguments, bits, of_head) : given_gate(bits);
          });
        else
          loads.store(tables, work.count, thread);
      },
      [&] { accumulate_gates<Shape::kHeadThreads>(tables, work.count, thread); }, warp, lane);

  if (work.column == 0 && arguments.l.data) {
    char* l = arguments.l.of(work.b, work.head);
    for (int r = thread; r < work.count; r += Shape::kHeadThreads)
      *reinterpret_cast<float*>(l + std::int64_t{tables.order[r]} * arguments.l.node) = natural(tables.l[r]);
  }
}

// The shape that a family has on an architecture (tuning.hpp).
template <class Family>
__global__ void __launch_bounds__(Family::template On<CANOPY_THIS_ARCHITECTURE>::Shape::kThreads,
                                  Family::template On<CANOPY_THIS_ARCHITECTURE>::cta.ctas)
    fused_kernel(const __grid_constant__ FusedArguments arguments) {
  using Cta = typename Family::template On<CANOPY_THIS_ARCHITECTURE>;
  fused<Cta>(arguments, *reinterpret_cast<FusedShared<typename Cta::Shape>*>(dynamic_shared()));
}

}  // namespace canopy::cuda
