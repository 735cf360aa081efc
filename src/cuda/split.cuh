// The split design: kernel 1 makes what does not depend on values once for each (sequence, value head), kernel 2
// applies it to value columns. Its steps are the fused kernel's, so its results are that kernel's to the bit.
//
// Purpose    as fused.cuh (E5 to E7, path-compressed). fused.cuh makes coefficients again in every CTA of a head:
//            V / 32 times where CTAs are narrow.
// Kernel 1   grid x: groups of kFactorWarps steps, y: value head, z: sequence. A warp takes a step (16 block rows
//            against 16 path rows) and leaves in the workspace what tile/prep.cuh leaves in a ring slot.
// Kernel 2   grid x: kColumns value columns, y: value head, z: sequence. One warp carries slots into the ring by
//            cp.async, the others are the fused kernel's solver warps.
// Workspace  operands [B,H,steps] of K and Q rows in 16 bits (written by the first value head of a key head), and
//            coefficients [B,HV,steps]: W, -W G_path, C, C_path, factors of rows (SplitPart). `steps` is the most that
//            a tree of T nodes can have. Then the fused kernel's spilt path rows.
// Keeps      what fused.cuh keeps: a row's bits do not depend on the batch or the tile width, what is not finite stays
//            in its subtree.
#pragma once

#include "cuda/fused.cuh"
#include "cuda/instances/split.hpp"
#include "cuda/tile/factor.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

struct SplitArguments {
  FusedArguments fused;
  std::uint8_t *operands, *coefficients;
  std::int32_t heads_k, steps;  // steps: of a tree at most
};

inline constexpr int kFactorWarps = 4;

// Steps that a tree of T nodes can have (plan.cuh, kMaxSteps): a block against each block before it, the first against
// none.
constexpr int most_steps(int nodes) {
  const int blocks = (nodes + kRows - 1) / kRows;
  return 1 + blocks * (blocks - 1) / 2;
}
static_assert(most_steps(kNodes) <= kMaxSteps);

// The two parts of a slot that travel.
template <class Slot>
struct SplitPart {
  static constexpr int kOperands = offsetof(Slot, path), kCoefficients = sizeof(Coefficients<Slot::kParts>);
  static_assert(kOperands % 16 == 0 && kCoefficients % 16 == 0, "copied 16 bytes at a time");
};

template <class Slot>
__device__ __forceinline__ std::uint8_t* operands_of(const SplitArguments& a, int b, int key_head, int step) {
  return a.operands + ((std::int64_t{b} * a.heads_k + key_head) * a.steps + step) * SplitPart<Slot>::kOperands;
}
template <class Slot>
__device__ __forceinline__ std::uint8_t* coefficients_of(const SplitArguments& a, int b, int head, int step) {
  return a.coefficients +
         ((std::int64_t{b} * a.fused.heads_v + head) * a.steps + step) * SplitPart<Slot>::kCoefficients;
}

// Whether a step's K and Q rows are used: a block's with its first path rows, a fold's always.
__device__ __forceinline__ bool has_operands(const Step& step) { return step.tile == 0; }

// ---- kernel 1 ----------------------------------------------------------------------------------------------------
template <class Shape>
struct FactorShared {
  typename Shape::RingSlot slots[kFactorWarps];
  NodeTables tables[1];
  FactorBarriers<kFactorWarps> barriers;
};

template <class Family>
__global__ void __launch_bounds__(32 * kFactorWarps, 1)
    split_factor_kernel(const __grid_constant__ SplitArguments arguments) {
  using Shape = typename Family::template On<CANOPY_THIS_ARCHITECTURE>::Shape;
  constexpr int kThreads = 32 * kFactorWarps;
  using RingSlot = typename Shape::RingSlot;
  using Part = SplitPart<RingSlot>;
  static_assert(sizeof(FactorShared<Shape>) <= 101376, "more shared memory than a block may have on sm_120");
  auto& shared = *reinterpret_cast<FactorShared<Shape>*>(dynamic_shared());
  const FusedArguments& of = arguments.fused;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  shared.barriers.start();
  FusedWork work = work_of_cta(of, 0);
  const DevicePlan& plan = of.plans[work.b];
  touch(fetched);
  __syncthreads();
  begin_after_previous_kernel();

  TableLoads<kThreads> loads;
  loads.start(plan, of.nodes, threadIdx.x, [&](int node) { return fused_gate(of, work.b, node, work.head); });
  int step = blockIdx.x * kFactorWarps + warp;
  const StepLoad first_step = load_step(plan, step, lane);
  const FusedRow row(of, plan, work.b);
  row.give(work);
  if (!row.computes()) return;

  const KeySource source{of.k.of(work.b, work.key_head), of.q.of(work.b, work.key_head), of.k.node, of.q.node};
  const PrepOptions options{of.l2norm, of.l2norm_eps, of.scale};
  RingSlot& slot = shared.slots[warp];
  FactorBarriers<kFactorWarps>& barriers = shared.barriers;
  StepRows rows(first_step, lane);
  if (step < work.steps) start_rows(slot, source, rows, &barriers.loaded[warp], lane);
  loads.store(shared.tables[0], work.count, threadIdx.x);
  __syncthreads();
  accumulate_gates<kThreads>(shared.tables[0], work.count, threadIdx.x);
  warp_arrive(&barriers.tables_ready, lane);

  const bool writes = writes_operands(of, work);
  for (int i = 0; step < work.steps; ++i, step += gridDim.x * kFactorWarps) {
    if (i > 0) {
      rows = StepRows(load_step(plan, step, lane), lane);
      __syncwarp();  // the slot has been read
      start_rows(slot, source, rows, &barriers.loaded[warp], lane);
    }
    barrier_wait(&barriers.loaded[warp], i & 1);
    __syncwarp();
    prepare_step<Shape>(
        slot, shared.tables, rows, source, options, &barriers.tables_ready, &barriers.converted[warp],
        &barriers.published[warp], [] {}, lane);
    __syncwarp();
    if (writes && has_operands(plan.step[step])) {
      std::uint8_t* const to = operands_of<RingSlot>(arguments, work.b, work.key_head, step);
      for (int i = 16 * lane; i < Part::kOperands; i += 512) store_global(to + i, load_shared(slot.keys + i));
    }
    std::uint8_t* const to = coefficients_of<RingSlot>(arguments, work.b, work.head, step);
    for (int i = 16 * lane; i < Part::kCoefficients; i += 512) store_global(to + i, load_shared(slot.of[0].w[0] + i));
  }

  if (blockIdx.x == 0 && of.l.data) {
    __syncthreads();
    for (int r = threadIdx.x; r < work.count; r += kThreads)
      *reinterpret_cast<float*>(of.l.of(work.b, work.head) + std::int64_t{shared.tables[0].order[r]} * of.l.node) =
          natural(shared.tables[0].l[r]);
  }
}

// ---- kernel 2 ----------------------------------------------------------------------------------------------------
// The warp that brings the steps' slots from the workspace, in order, as far ahead as the ring is long.
template <class Shape>
__device__ __forceinline__ void carry_steps(FusedShared<Shape>& shared, const SplitArguments& arguments,
                                            const FusedWork& work, const DevicePlan& plan, int lane) {
  using RingSlot = typename Shape::RingSlot;
  using Part = SplitPart<RingSlot>;
  const std::uint8_t *operands = operands_of<RingSlot>(arguments, work.b, work.key_head, 0) + 16 * lane,
                     *coefficients = coefficients_of<RingSlot>(arguments, work.b, work.head, 0) + 16 * lane;
  RingAt<Shape::kSlots> at;
  unsigned first_tiles = 0;  // of the next 32 steps
  for (int step = 0; step < work.steps; ++step) {
    RingSlot& slot = shared.slots[at.slot];
    if (step % 32 == 0)
      first_tiles = __ballot_sync(~0u, step + lane < work.steps && has_operands(plan.step[step + lane]));
    barrier_wait(&shared.empty[at.slot], at.phase ^ 1);
    if (first_tiles >> step % 32 & 1) {
#pragma unroll
      for (int i = 0; i < Part::kOperands; i += 512)
        if (i + 16 * lane < Part::kOperands) copy_async(slot.keys + i + 16 * lane, operands + i, true);
    }
#pragma unroll
    for (int i = 0; i < Part::kCoefficients; i += 512)
      if (i + 16 * lane < Part::kCoefficients) copy_async(slot.of[0].w[0] + i + 16 * lane, coefficients + i, true);
    barrier_arrive_async(&shared.converted[at.slot]);
    barrier_arrive_async(&shared.published[at.slot]);
    operands += Part::kOperands, coefficients += Part::kCoefficients;
    at.advance();
  }
}

template <class Family>
__global__ void __launch_bounds__(Family::template On<CANOPY_THIS_ARCHITECTURE>::Shape::kThreads,
                                  Family::template On<CANOPY_THIS_ARCHITECTURE>::cta.ctas)
    split_apply_kernel(const __grid_constant__ SplitArguments arguments) {
  using Shape = typename Family::template On<CANOPY_THIS_ARCHITECTURE>::Shape;
  static_assert(Shape::kPrepWarps == 1, "the carrier");
  auto& shared = *reinterpret_cast<FusedShared<Shape>*>(dynamic_shared());
  const FusedArguments& of = arguments.fused;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  start_barriers(shared, 32);
  FusedWork work = work_of_cta(of, blockIdx.x * Shape::kColumns);
  const DevicePlan& plan = of.plans[work.b];
  touch(fetched);
  __syncthreads();
  begin_after_previous_kernel();

  const FusedRow row(of, plan, work.b);
  row.give(work);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && of.row_status) of.row_status[work.b] = row.status;
  if (row.status == CANOPY_ROW_BAD_TREE) write_nan<Shape::kColumns, Shape::kThreads>(of, work, threadIdx.x);
  if (!row.computes()) return;
  if (warp >= Shape::kSolverWarps) return carry_steps(shared, arguments, work, plan, lane);
  TableLoads<Shape::kSolverThreads> loads;
  loads.start_plan(plan, threadIdx.x);
  solver_side(
      shared, of, work, [&] { loads.store_plan(shared.tables[0], threadIdx.x); },
      [&] {
        for (int r = work.count + threadIdx.x; r < kNodes; r += Shape::kSolverThreads) clear_rank(shared.tables[0], r);
      },
      warp, lane);
}

// The families of CTAs, as families.cuh has them: two warps for 16 value columns; or a warp for 32.
template <class Input, int K, Form kForm>
struct SplitNarrow {
  template <int kArchitecture>
  struct On {
    static constexpr CtaTuning cta =
        kForm == Form::kPrecise ? tuning_of(kArchitecture).split_precise : tuning_of(kArchitecture).split_narrow;
    using Shape = FusedShape<Input, K, kForm, cta.columns, 1, true, cta.prep_warps, cta.depth, 4>;
  };
};
template <class Input, int K, Form kForm>
struct SplitWide {
  template <int kArchitecture>
  struct On {
    static constexpr CtaTuning cta = tuning_of(kArchitecture).split_wide;
    using Shape = FusedShape<Input, K, kForm, cta.columns, 2, false, cta.prep_warps, cta.depth, 2>;
  };
};

template <class Family, int kArchitecture>
FusedInstance split_apply_on() {
  using Shape = typename Family::template On<kArchitecture>::Shape;
  static_assert(kArchitecture == 90 || sizeof(FusedShared<Shape>) <= 101376,
                "more shared memory than a block may have on sm_86, sm_89 and sm_120");
  return {launch_instance<SplitArguments, split_apply_kernel<Family>>, Shape::kThreads, Shape::kColumns,
          sizeof(FusedShared<Shape>)};
}
// As the binary for that GPU was compiled.
template <class Family>
FusedInstance split_apply_instance(int architecture) {
  if (architecture >= 120) return split_apply_on<Family, 120>();
  return architecture >= 90 ? split_apply_on<Family, 90>() : split_apply_on<Family, 80>();
}
template <class Family>
SplitInstance split_instance(int architecture) {
  using Shape = typename Family::template On<90>::Shape;  // its slots are the same on all
  return {
      {launch_instance<SplitArguments, split_factor_kernel<Family>>, 32 * kFactorWarps, 0, sizeof(FactorShared<Shape>)},
      split_apply_instance<Family>(architecture)};
}

}  // namespace canopy::cuda
