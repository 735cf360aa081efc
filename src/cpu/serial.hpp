// The recurrence (E1) node by node, on one tile of NV state columns at a time so that the tile stays in L1 cache: the
// two published baselines, and the replay that commit offers.
#pragma once

#include "cpu/head.hpp"

namespace canopy::cpu::CANOPY_ISA {

// E1 for one node on one tile: the parent's state `in` to this node's state `out` (equal: in place). u and o get NV
// values. Without Keep the state is formed for o but not written. K is a multiple of 8; sums over k run in four
// interleaved parts to hide the latency of the multiply-add.
template <bool Keep>
CANOPY_INLINE void serial_node(const float* key, const float* query, int dim_k, float alpha, float beta, const float* value,
                               const float* in, float* out, float* u_out, float* o_out) {
  constexpr int kParts = 4;
  Vec recalled[kParts][NR] = {};
  for (int kk = 0; kk < dim_k; kk += kParts) {
    CANOPY_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const Vec x = splat(key[kk + i]);
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) recalled[i][n] += x * load(in + (kk + i) * NV + n * W);
    }
  }
  Vec u[NR];
  CANOPY_UNROLL
  for (int n = 0; n < NR; ++n) {
    const Vec total = (recalled[0][n] + recalled[1][n]) + (recalled[2][n] + recalled[3][n]);
    u[n] = beta * (load(value + n * W) - alpha * total);
    store(u_out + n * W, u[n]);
  }
  Vec o[kParts][NR] = {};
  for (int kk = 0; kk < dim_k; kk += kParts) {
    CANOPY_UNROLL
    for (int i = 0; i < kParts; ++i) {
      const Vec x = splat(key[kk + i]), y = splat(query[kk + i]);
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) {
        const Vec state = alpha * load(in + (kk + i) * NV + n * W) + x * u[n];
        if (Keep) store(out + (kk + i) * NV + n * W, state);
        o[i][n] += y * state;
      }
    }
  }
  CANOPY_UNROLL
  for (int n = 0; n < NR; ++n) store(o_out + n * W, (o[0][n] + o[1][n]) + (o[2][n] + o[3][n]));
}

struct SerialScratch {
  float* rows;   // [2T][kRow] key and query of depth-first rank r in rows 2r and 2r+1
  float* tiles;  // [kept][K][NV]
  float* alpha;  // [T] exp of the log gate
  float* beta;   // [T]
  float* log_l;  // [T] l, for the stash

  // A state is kept aside only while a sibling of its subtree is still to come, so L states at once need 2L + 1 nodes.
  static int kept(const Problem& p) { return (p.nodes - 1) / 2 + 1; }
  static std::size_t carve(const Problem& p, int tiles, void* base, SerialScratch& s) {
    Arena arena(base);
    const int rows = round_up(p.nodes, W);
    s.rows = arena.take<float>(std::size_t{2} * rows * kRow);
    s.tiles = arena.take<float>(std::size_t(tiles) * p.dim_k * NV);
    s.alpha = arena.take<float>(rows);
    s.beta = arena.take<float>(rows);
    s.log_l = arena.take<float>(rows);
    return arena.used();
  }
};

inline void load_serial_rows(const Problem& p, const Plan& plan, int b, int hv, const SerialScratch& s) {
  const int h = hv / (p.heads_v / p.heads_k);
  TwoFloat<float> l[kMaxNodes];
  for (int r = 0; r < plan.nodes; ++r) {
    load_key(p, 0, b, plan.order[r], h, s.rows + std::int64_t{2} * r * kRow);
    load_query(p, b, plan.order[r], h, s.rows + std::int64_t{2} * r * kRow + kRow);
    load_gate(p, 0, b, plan.order[r], hv, s.alpha[r], s.beta[r]);
    l[r] = plan.parent[r] < 0 ? TwoFloat<float>{s.alpha[r], 0.0f} : add(l[plan.parent[r]], s.alpha[r]);
    s.log_l[r] = l[r].hi + l[r].lo;
  }
  for (int r = 0; r < plan.nodes; r += W) store(s.alpha + r, exp(load(s.alpha + r)));
}

// One node's step and its results, columns `column` to `column` + NV.
template <bool Keep>
inline void serial_step(const VerifyParams& params, const Plan& plan, int b, int hv, int r, int column, const float* in,
                        float* out, const SerialScratch& s) {
  const Problem& p = params.problem;
  const int node = plan.order[r], columns = p.dim_v - column < NV ? p.dim_v - column : NV;
  alignas(64) float value[NV] = {}, u[NV], o[NV];
  load_row(p.v.dtype, value_row(p, 0, b, node, hv) + column * element_bytes(p.v.dtype), columns, value);
  const float* key = s.rows + std::int64_t{2} * r * kRow;
  serial_node<Keep>(key, key + kRow, p.dim_k, s.alpha[r], s.beta[r], value, in, out, u, o);
  const auto element = [&](const canopy_tensor& t) {
    return b * t.stride[1] + node * t.stride[2] + hv * t.stride[3] + column;
  };
  store_row(params.o.dtype, at_out(params.o, element(params.o)), columns, o);
  if (params.stash_u.data) store_row(CANOPY_F32, at_out(params.stash_u, element(params.stash_u)), columns, u);
  if (params.stash_l.data && column == 0)
    static_cast<float*>(params.stash_l.data)[element(params.stash_l)] = s.log_l[r];
}

inline std::size_t serial_resident_scratch(const Problem& p) {
  SerialScratch s;
  return SerialScratch::carve(p, SerialScratch::kept(p), nullptr, s);
}

// Depth-first, so the parent is the previous node wherever it can be. A last child updates its parent's tile in place;
// an earlier child writes the next tile of a stack and leaves the parent's for its siblings; a leaf writes none.
inline void serial_resident(const VerifyParams& params, const Plan& plan, int b, int hv, void* scratch) {
  const Problem& p = params.problem;
  SerialScratch s;
  SerialScratch::carve(p, SerialScratch::kept(p), scratch, s);
  load_serial_rows(p, plan, b, hv, s);
  std::int16_t level[kMaxNodes];  // tile of each rank's state
  const std::int64_t tile = std::int64_t(p.dim_k) * NV;
  const char* head = state_head(p, 0, slot_of(p, p.slot_index, b), hv);
  for (int column = 0; column < p.dim_v; column += NV) {
    load_state_tile(p, head, column, s.tiles);
    for (int r = 0; r < plan.nodes; ++r) {
      const int parent = plan.parent[r];
      const int from = parent < 0 ? 0 : level[parent];
      const bool last_child = parent < 0 || r + plan.subtree[r] == parent + plan.subtree[parent];
      level[r] = static_cast<std::int16_t>(last_child ? from : from + 1);
      if (plan.subtree[r] == 1)
        serial_step<false>(params, plan, b, hv, r, column, s.tiles + from * tile, nullptr, s);
      else
        serial_step<true>(params, plan, b, hv, r, column, s.tiles + from * tile, s.tiles + level[r] * tile, s);
    }
  }
}

inline int value_tiles(const Problem& p) { return (p.dim_v + NV - 1) / NV; }

inline std::size_t snapshot_bytes(const Problem& p) {
  return std::size_t(p.nodes) * value_tiles(p) * p.dim_k * NV * sizeof(float);
}
inline std::size_t serial_snapshot_scratch(const Problem& p) {
  SerialScratch s;
  return SerialScratch::carve(p, 1, nullptr, s);
}

// `snapshots` [tiles][T][K][NV]: every node's state is written and its parent's read back from there.
inline void serial_snapshot(const VerifyParams& params, const Plan& plan, int b, int hv, void* snapshots, void* scratch) {
  const Problem& p = params.problem;
  SerialScratch s;
  SerialScratch::carve(p, 1, scratch, s);
  load_serial_rows(p, plan, b, hv, s);
  const std::int64_t tile = std::int64_t(p.dim_k) * NV;
  const char* head = state_head(p, 0, slot_of(p, p.slot_index, b), hv);
  for (int column = 0; column < p.dim_v; column += NV) {
    float* of_tile = static_cast<float*>(snapshots) + (column / NV) * p.nodes * tile;
    load_state_tile(p, head, column, s.tiles);
    for (int r = 0; r < plan.nodes; ++r) {
      const float* in = plan.parent[r] < 0 ? s.tiles : of_tile + plan.parent[r] * tile;
      serial_step<true>(params, plan, b, hv, r, column, in, of_tile + r * tile, s);
    }
  }
}

}  // namespace canopy::cpu::CANOPY_ISA
