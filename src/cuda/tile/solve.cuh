// A solver warp: kTiles x 16 value columns of one head, S0 in registers, the whole tree block by block (E5, E6, E7).
// Solver warps of different columns never talk to each other. Where CTAs are few, the work on 16 columns is shared by a
// warp for U, the chain that everything waits for, and one for O, which is handed U.
#pragma once

#include "cuda/tile/fold.cuh"
#include "cuda/tile/poison.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shape.cuh"
#include "cuda/tile/values.cuh"

namespace canopy::cuda {

enum class Role { kBoth, kU, kO };

// Products S0^T k or S0^T q of the 16 rows of a slot tile, in transposed accumulator layout, with kUsed of S0's parts.
template <class Op, int kUsed, int K, int kTiles, int kParts>
__device__ __forceinline__ void state_products(float (&d)[kTiles][2][4], const StateTile<K, kParts> (&state)[kTiles],
                                               const std::uint8_t* rows, int lane) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) clear(d[m]);
  rows += tile_as_b<K>(lane);
#pragma unroll
  for (int s = 0; s < K / 16; ++s) {
    std::uint32_t x[4];
    load_matrices(x, rows + 32 * s);
#pragma unroll
    for (int p = 0; p < kUsed; ++p)
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma<Op>(d[m][0], state[m].a[s][p], x[0], x[1]);
        mma<Op>(d[m][1], state[m].a[s][p], x[2], x[3]);
      }
  }
}

// d += a b, without the product of the low parts.
template <class Op, int kTiles, int kParts>
__device__ __forceinline__ void accumulate(float (&d)[kTiles][2][4], const std::uint32_t (&a)[kTiles][kParts][4],
                                           const std::uint32_t (&b)[kParts][4]) {
#pragma unroll
  for (int i = 2 * kParts - 2; i >= 0; --i) {  // low a with high b, high with low, high with high: small products first
    const int of_a = i == 2 ? 1 : 0, of_b = i == 1 ? 1 : 0;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      mma<Op>(d[m][0], a[m][of_a], b[of_b][0], b[of_b][1]);
      mma<Op>(d[m][1], a[m][of_a], b[of_b][2], b[of_b][3]);
    }
  }
}

// Coefficients stored in fragment order.
template <int kParts>
__device__ __forceinline__ void read_fragment(std::uint32_t (&b)[kParts][4], const std::uint8_t (&from)[kParts][512],
                                              int lane) {
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    const uint4 x = load_shared(from[p] + 16 * lane);
    b[p][0] = x.x, b[p][1] = x.y, b[p][2] = x.z, b[p][3] = x.w;
  }
}
// Coefficients stored as rows of the transpose.
template <int kParts>
__device__ __forceinline__ void read_rows(std::uint32_t (&b)[kParts][4], const std::uint8_t (&from)[kParts][512],
                                          int lane) {
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    load_transposed(b[p], from[p] + narrow_byte((lane / 8) % 2 * 8 + lane % 8, lane / 16));
}

// A transposed accumulator tile as the A fragment of the next product.
template <class Op, int kParts>
__device__ __forceinline__ void to_operand(std::uint32_t (&a)[kParts][4], const float (&d)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t parts[kParts];
    split<Op>(parts, d[i / 2][2 * (i % 2)], d[i / 2][2 * (i % 2) + 1]);
#pragma unroll
    for (int p = 0; p < kParts; ++p) a[p][i] = parts[p];
  }
}

// The lane's four nodes' entries of a slot's factors: [n][c % 2].
__device__ __forceinline__ void read_factors(float (&x)[2][2], const float* of, int lane) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float2 y = *reinterpret_cast<const float2*>(of + 8 * n + 2 * (lane % 4));
    x[n][0] = y.x, x[n][1] = y.y;
  }
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

// A warp's column group within its head; groups are counted through the CTA's heads.
template <class Shape>
__device__ __forceinline__ int column_group(int group) {
  return Shape::kHeads == 1 ? group : group % Shape::kGroups;
}

// All blocks of the tree for the kTiles column groups from `group` on, whose S0 is in `state`, by solver warp `warp`.
// kPlain: no path is longer than 16 rows and S0 is not scaled, so nothing is folded, spilt or scaled.
template <class Shape, Role kRole, bool kPlain>
__device__ __forceinline__ void solve_blocks(FusedShared<Shape>& shared, const FusedArguments& arguments,
                                             const FusedWork& work,
                                             StateTile<Shape::K, Shape::kStateParts> (&state)[Shape::kTiles], int group,
                                             int warp, int lane) {
  using Input = typename Shape::Input;
  using Op = typename Shape::Operand;
  constexpr int kTiles = Shape::kTiles, kParts = Shape::kParts;
  constexpr bool kU = kRole != Role::kO, kO = kRole != Role::kU;
  constexpr int kStateParts = kPlain ? kParts : Shape::kStateParts;
  static_assert(kRole == Role::kBoth || kTiles == 1, "shared work is on one column group");
  const int head = Shape::kHeads == 1 ? 0 : warp / Shape::kHeadWarps;
  const NodeTables& tables = shared.tables[head];
  ValueWarp<Shape>& own = shared.values[group / kTiles];
  const auto stack = [&](int m) -> PathStack<kParts>& {
    if constexpr (kRole == Role::kO)
      return shared.handovers[group].stack;
    else
      return own.stack[m];
  };
  float* const stage = shared.stage[warp];
  const int count = work.count, column = work.column + 16 * column_group<Shape>(group);
  const auto spill = [&](int m) {
    const std::int64_t groups = std::int64_t{gridDim.z} * arguments.heads_v * (arguments.dim_v / 16);
    return arguments.spill + ((std::int64_t{work.b} * arguments.heads_v + work.head) * (arguments.dim_v / 16) +
                              column / 16 + m + (kRole == Role::kO ? groups : 0)) *
                                 kSpillElements<kParts>;
  };
  const char* const values =
      held(arguments.v.of(work.b, work.head) + column * static_cast<int>(sizeof(Input)) + value_chunk<Shape>(lane));
  char* const out = held(arguments.o.of(work.b, work.head) + column * (arguments.o.dtype == CANOPY_F32 ? 4 : 2));
  // The lane's row of the block and half of it, for ldmatrix and stmatrix of transposed tiles.
  const int tile_row = (lane / 16) * 8 + lane % 8, tile_half = (lane / 8) % 2 * 16;

  SpoiltPath spoilt[kTiles];
  bool spoilt_before = false;
  RingAt<Shape::kSlots> at;
  const auto end_step = [&] {
    warp_arrive(&shared.empty[at.slot], lane);
    at.advance();
  };
  RingAt<kHandovers> hand;
  RingAt<Shape::kValueStages> of_values;
  // A warp with registers to spare has the next block's products with S0 under way while it finishes a block.
  constexpr bool kAhead = kRole != Role::kBoth && kParts == 1 && kPlain;
  float r[kTiles][2][4], o[kTiles][2][4];  // transposed: [n-tile of nodes][value, node]
  float next[kTiles][2][4];
  const auto start_next = [&](int block) {
    if (kAhead && block + 1 < work.blocks) {
      auto then = at;
      then.advance();
      barrier_wait(&shared.converted[then.slot], then.phase);
      const auto& slot = shared.slots[then.slot];
      state_products<Op, kStateParts>(next, state, kU ? slot.keys : slot.queries, lane);
    }
  };
  int base = 0;  // nodes of the root path that are in the state
  for (int block = 0; block < work.blocks; ++block) {
    const int first = 16 * block;
    int ancestors = 0;  // on the path, from base on
    if constexpr (!kPlain) {
      while (base < tables.base[block]) {
        barrier_wait(&shared.converted[at.slot], at.phase);
        base += kFoldRows;
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
          fold<Op>(state[m], stack(m), spill(m), shared.slots[at.slot], shared.slots[at.slot].of[head], base,
                   tables.ancestors[block] - base, lane);
        end_step();
      }
      ancestors = tables.ancestors[block] - base;
    }

    if (!kAhead || block == 0) {
      barrier_wait(&shared.converted[at.slot], at.phase);
      if constexpr (kU) state_products<Op, kStateParts>(r, state, shared.slots[at.slot].keys, lane);
      if constexpr (kO) state_products<Op, kStateParts>(o, state, shared.slots[at.slot].queries, lane);
    }
    auto* slot = &shared.slots[at.slot].of[head];
    if constexpr (kU) {  // R = beta (v - exp(l) S0^T k)   (E5)
      float of_key[2][2], of_value[2][2];
      read_factors(of_key, slot->of_key, lane);
      read_factors(of_value, slot->of_value, lane);
      barrier_wait(&shared.values_loaded[group / kTiles][of_values.slot], of_values.phase);
      __syncwarp();
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        float v[2][4];
        read_values<Shape>(v, own.values[of_values.slot], m, lane);
        const float product_scale = state[m].product_scale, value_scale = state[m].value_scale;
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            float& x = r[m][n][c];
            if constexpr (kPlain)
              x = fmaf(x, of_key[n][c % 2], v[n][c] * of_value[n][c % 2]);
            else
              x = fmaf(x * product_scale, of_key[n][c % 2], v[n][c] * of_value[n][c % 2] * value_scale);
          }
      }
    }
    if constexpr (kO) {  // O = exp(l) S0^T q
      float of_query[2][2];
      read_factors(of_query, slot->of_query, lane);
#pragma unroll
      for (int i = 0; i < 8 * kTiles; ++i) {
        if constexpr (!kPlain) o[i / 8][i / 4 % 2][i % 4] *= state[i / 8].product_scale;
        o[i / 8][i / 4 % 2][i % 4] *= of_query[i / 4 % 2][i % 2];
      }
    }

    std::uint32_t u_path[kTiles][kParts][4], u[kTiles][kParts][4];
    if constexpr (kPlain) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) read_near_path(u_path[m], stack(m), 0, lane);
    } else {
      int tile = 0;  // path rows above the last 16: R -= G u_path, O += C u_path
      for (; 16 * (tile + 1) < ancestors; ++tile) {
        barrier_wait(&shared.published[at.slot], at.phase);
        slot = &shared.slots[at.slot].of[head];
        std::uint32_t coefficients[kParts][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) read_path(u_path[m], stack(m), spill(m), base, tile, ancestors, lane);
        if constexpr (kU) {
          read_fragment(coefficients, slot->g, lane);
          accumulate<Op>(r, u_path, coefficients);
        }
        if constexpr (kO) {
          read_fragment(coefficients, slot->c_path, lane);
          accumulate<Op>(o, u_path, coefficients);
        }
        end_step();
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) read_path(u_path[m], stack(m), spill(m), base, tile, ancestors, lane);
    }

    const std::uint32_t push_at = tables.push_at[first + tile_row] ^ tile_half;
    unsigned nan_nodes[kTiles] = {};
    bool careful = false;
    if constexpr (kU) {  // U = W R - W G u_path   (E6)
      std::uint32_t r_operand[kTiles][kParts][4], w[kParts][4], g[kParts][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) to_operand<Op>(r_operand[m], r[m]);
      barrier_wait(&shared.published[at.slot], at.phase);
      slot = &shared.slots[at.slot].of[head];
      read_rows(w, slot->w, lane);
      read_rows(g, slot->g, lane);
      const auto solve = [&] {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) clear(r[m]);
        accumulate<Op>(r, u_path, g);
        accumulate<Op>(r, r_operand, w);
        std::uint32_t sum = 0;
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          to_operand<Op>(u[m], r[m]);
          sum |= spoilt_by<Op>(u[m][0]);
        }
        return any_spoilt(sum);
      };
      careful = solve() || spoilt_before;
      if (__builtin_expect(careful, 0)) {
        unsigned any = 0;
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          nan_nodes[m] = spoilt_nodes<Op>(r_operand[m][0], lane);
          clear_nodes(r_operand[m], nan_nodes[m], lane);
          any |= nan_nodes[m];
        }
        if (any) solve();
        spoilt_before = false;
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          nan_nodes[m] = spoilt[m].below(nan_nodes[m] | spoilt_nodes<Op>(u[m][0], lane), tables, first, lane);
          clear_nodes(u[m], nan_nodes[m], lane);
          fill_nan(r[m], nan_nodes[m], lane);
          spoilt[m].push(nan_nodes[m], tables, first, lane);
          spoilt_before |= spoilt[m].any();
        }
      }
    } else {
      barrier_wait(&shared.published[at.slot], at.phase);
      slot = &shared.slots[at.slot].of[head];
    }
    if constexpr (kO) {  // O += C_path u_path
      std::uint32_t c_path[kParts][4];
      read_fragment(c_path, slot->c_path, lane);
      accumulate<Op>(o, u_path, c_path);
    }
    if constexpr (kRole == Role::kU) {
      Handover<kParts>& to = shared.handovers[group];
      barrier_wait(&to.empty[hand.slot], hand.phase ^ 1);
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        store_shared(to.u[hand.slot][p] + 16 * lane, {u[0][p][0], u[0][p][1], u[0][p][2], u[0][p][3]});
      if (lane == 0) to.nan_nodes[hand.slot] = nan_nodes[0];
      warp_arrive(&to.full[hand.slot], lane);
      hand.advance();
      start_next(block);
    }
    if constexpr (kRole == Role::kO) {
      start_next(block);
      Handover<kParts>& from = shared.handovers[group];
      barrier_wait(&from.full[hand.slot], hand.phase);
      read_fragment(u[0], from.u[hand.slot], lane);
      nan_nodes[0] = from.nan_nodes[hand.slot];
      careful = nan_nodes[0] != 0;
      warp_arrive(&from.empty[hand.slot], lane);
      hand.advance();
    }
    __syncwarp();  // everybody has read the rows that are replaced
#pragma unroll
    for (int m = 0; m < kTiles; ++m) push_path(stack(m), u[m], push_at);
    if (!kPlain && tables.spills[block]) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) spill_path(stack(m), spill(m), tables.push + first, base, lane);
    }
    if constexpr (kO) {  // O += C u
      std::uint32_t c[kParts][4];
      read_fragment(c, slot->c, lane);
      accumulate<Op>(o, u, c);
    }
    end_step();

    const int rank = first + lane / 2;
    const std::uint32_t node = tables.order[rank];
    if constexpr (kO) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (__builtin_expect(careful, 0)) fill_nan(o[m], nan_nodes[m], lane);
        if constexpr (!kPlain) {
#pragma unroll
          for (int i = 0; i < 8; ++i) o[m][i / 4][i % 4] *= state[m].value_unscale;
        }
      }
      write_tiles<Input>(stage, o, rank < count ? out + std::uint64_t{node} * arguments.o.node : nullptr,
                         arguments.o.dtype, lane);
    }
    if constexpr (kU && Shape::kStoresU) {
      if (arguments.u.data) {
#pragma unroll
        for (int i = 0; i < 8; ++i) r[0][i / 4][i % 4] *= state[0].value_unscale;
        char* const u_out = arguments.u.of(work.b, work.head) + column * 4 + std::uint64_t{node} * arguments.u.node;
        write_tiles<float>(stage, r, rank < count ? u_out : nullptr, CANOPY_F32, lane);
      }
    }
    if constexpr (kU) {
      const int coming = block + Shape::kValueStages;
      if (coming < work.blocks)
        start_values<Shape>(own.values[of_values.slot], &shared.values_loaded[group / kTiles][of_values.slot], values,
                            arguments.v.node, tables.order + 16 * coming, count - 16 * coming, lane);
      of_values.advance();
    }
    if constexpr (kAhead) {
#pragma unroll
      for (int i = 0; i < 8 * kTiles; ++i) (kU ? r : o)[i / 8][i / 4 % 2][i % 4] = next[i / 8][i / 4 % 2][i % 4];
    }
  }
}

template <class Shape, Role kRole>
__device__ __forceinline__ void solver_warp(FusedShared<Shape>& shared, const FusedArguments& arguments,
                                            const FusedWork& work,
                                            StateTile<Shape::K, Shape::kStateParts> (&state)[Shape::kTiles], int group,
                                            int warp, int lane) {
  bool plain = work.steps == work.blocks;
#pragma unroll
  for (int m = 0; m < Shape::kTiles; ++m) plain &= !state[m].scaled;
  if (__builtin_expect(plain, 1))
    solve_blocks<Shape, kRole, true>(shared, arguments, work, state, group, warp, lane);
  else
    solve_blocks<Shape, kRole, false>(shared, arguments, work, state, group, warp, lane);
}

}  // namespace canopy::cuda
