// What a CTA of the fused kernel is made of: its tile of value columns, its warps, its shared memory; and what it is
// asked to do.
#pragma once

#include "cuda/tile/path_stack.cuh"
#include "cuda/tile/rows.hpp"
#include "cuda/tile/state.cuh"
#include "cuda/tile/tables.cuh"

namespace canopy::cuda {

// half: one fp16 operand a number. precise: two, which add up to it (bf16 and f16 inputs are exact in one, bf16 from
// 2^-17 on). fast: one bf16 operand, and bf16 inputs are used as they come.
enum class Form { kHalf, kPrecise, kFast };

// kColumns value columns; kTiles column groups of 16 a solver warp, or, kShared, two solver warps a group (one
// makes U, one O); kPrepWarps, each with kDepth slots of the ring. kHeads: value heads of one key head, which have
// solver warps of their own and share what prep makes of K and Q.
template <class Input_, int kKeys, Form kForm, int kColumns_, int kTiles_, bool kShared, int kPrepWarps_, int kDepth_,
          int kValueStages_, int kHeads_ = 1>
struct FusedShape {
  using Input = Input_;
  using Operand = std::conditional_t<kForm == Form::kFast, __nv_bfloat16, __half>;         // of the solver's products
  using RawOperand = std::conditional_t<sizeof(Input) == 2, Input, __half>;                // of k.k and q.k
  static constexpr bool kConvert = sizeof(Input) == 2 && !std::is_same_v<Input, Operand>;  // K and Q, once multiplied
  static_assert(!kConvert || std::is_same_v<Input, __nv_bfloat16>, "f16 inputs are never turned into bf16");
  static constexpr int K = kKeys, kColumns = kColumns_, kTiles = kTiles_, kParts = kForm == Form::kPrecise ? 2 : 1;
  // Folding rounds the state again and again, which bf16 alone does not bear.
  static constexpr int kStateParts = kForm == Form::kHalf ? 1 : 2;
  static constexpr bool kSharedWork = kShared, kStoresU = kForm == Form::kPrecise;
  static constexpr int kPrepWarps = kPrepWarps_, kDepth = kDepth_, kSlots = kPrepWarps * kDepth;
  static constexpr int kValueStages = kValueStages_;  // V tiles in flight a warp
  static constexpr int kValueBytes = 16 * kTiles * sizeof(Input), kValuePitch = kValueBytes + 16;
  static constexpr int kHeads = kHeads_, kGroups = kColumns / 16;  // groups of a head
  static constexpr int kHeadWarps = kShared ? 2 * kGroups : kGroups / kTiles, kSolverWarps = kHeads * kHeadWarps;
  static constexpr int kValueWarps = kHeads * kGroups / kTiles;
  static_assert(kHeads == 1 || !kShared, "shared work is on one head");
  static constexpr bool kStagesState = kShared;  // else straight to registers: no room
  static constexpr int kHeadThreads = 32 * kHeadWarps;
  static constexpr int kSolverThreads = 32 * kSolverWarps, kThreads = kSolverThreads + 32 * kPrepWarps;
  using RingSlot = Slot<K, kParts, kHeads>;
};

// What a solver warp that makes U has to itself.
template <class Shape>
struct alignas(16) ValueWarp {
  std::uint8_t values[Shape::kValueStages][16 * Shape::kValuePitch];
  PathStack<Shape::kParts> stack[Shape::kTiles];
};

// What the U warp of a group hands to its O warp: U of a block as A fragments, and the nodes whose U is not finite.
inline constexpr int kHandovers = 4;  // blocks that the U warp may be ahead
template <int kParts>
struct alignas(16) Handover {
  std::uint8_t u[kHandovers][kParts][512];
  PathStack<kParts> stack;  // the O warp's own
  unsigned nan_nodes[kHandovers];
  std::uint64_t full[kHandovers], empty[kHandovers];
};

inline constexpr int kStageStride = 20;  // floats a row of the tile that results pass through on their way out

struct Nothing {};

template <class Shape>
struct FusedShared {
  typename Shape::RingSlot slots[Shape::kSlots];
  ValueWarp<Shape> values[Shape::kValueWarps];
  std::conditional_t<Shape::kSharedWork, Handover<Shape::kParts>, Nothing> handovers[Shape::kGroups];
  alignas(16) float stage[Shape::kSolverWarps][16 * kStageStride];
  std::conditional_t<Shape::kStagesState, StateStage<Shape::K>, Nothing> state[Shape::kGroups];
  NodeTables tables[Shape::kHeads];
  // Of a slot: its rows have come, K, Q and factors are ready, its coefficients are there, its readers are done.
  std::uint64_t loaded[Shape::kSlots], converted[Shape::kSlots], published[Shape::kSlots], empty[Shape::kSlots];
  std::uint64_t values_loaded[Shape::kValueWarps][Shape::kValueStages], state_loaded[Shape::kGroups], tables_ready;
};

// Everything the kernel asks of a call, in the order it asks: constant memory is fetched line by line.
struct FusedArguments {
  const DevicePlan* plans;
  const void* slot_index;
  std::int64_t padding_slot, slots;
  std::int32_t* row_status;
  std::int32_t nodes, dim_v, heads_v;
  float key_heads_each;  // H / HV
  bool long_slots, raw_gates, beta_doubled, l2norm, state_vk;
  float scale, l2norm_eps;
  Rows g, beta;  // or a and b
  PerHead a_log, dt_bias;
  std::int32_t a_log_dtype, dt_bias_dtype;
  Rows k, q, state, v, o, u, l;
  std::uint16_t* spill;
};

// What a CTA works on.
struct FusedWork {
  int b, head, key_head, column;
  int count, blocks, steps;
  std::int64_t slot;
};

}  // namespace canopy::cuda
