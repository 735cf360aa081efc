// The state after the accepted node (E8), tile by tile: S0 is read once, the path applied, the result written once.
//   resolve  solves the path's own chain system again (E2 to E6 on m nodes); nothing need be stored by verification
//   stash    takes u from verification
//   replay   is E1 along the path, in order
#pragma once

#include "cpu/serial.hpp"

namespace canopy::cpu::CANOPY_ISA {

struct CommitScratch {
  float* keys;     // [m][kRow] of the path
  float* values;   // [m][kRow] v, whole rows
  float* solved;   // [m][NV] S0^T k, then u
  float* tile;     // [K][NV] S0
  float* result;   // [K][NV]
  float* g;        // [m][m] of (E4), row by row
  float* gamma;    // [m] exp(l_leaf - l_j)
  float* zero;     // [K] a query that asks nothing
  GateRows gates;

  static std::size_t carve(const Problem& p, void* base, CommitScratch& s) {
    Arena arena(base);
    const int rows = round_up(p.nodes, W);
    s.keys = arena.take<float>(std::size_t(rows) * kRow);
    s.values = arena.take<float>(std::size_t(rows) * kRow);
    s.solved = arena.take<float>(std::size_t(rows) * NV);
    s.tile = arena.take<float>(p.dim_k * NV);
    s.result = arena.take<float>(p.dim_k * NV);
    s.g = arena.take<float>(std::size_t(rows) * rows);
    s.gamma = arena.take<float>(rows);
    s.zero = arena.take<float>(p.dim_k);
    s.gates.take(arena, rows);
    return arena.used();
  }
};

inline std::size_t commit_scratch(const Problem& p) {
  CommitScratch s;
  return CommitScratch::carve(p, nullptr, s);
}

// Keys, values and gates of the path; for resolve also G of the chain.
inline void load_path(const CommitParams& params, const CommitRow& row, const std::int32_t* path, int m,
                      const CommitScratch& s) {
  const Problem& p = params.problem;
  const int h = row.hv / (p.heads_v / p.heads_k);
  for (int j = 0; j < m; ++j) {
    load_key(p, row.layer, row.b, path[j], h, s.keys + j * kRow);
    if (p.v.data && params.method != CANOPY_COMMIT_STASH)
      load_row(p.v.dtype, value_row(p, row.layer, row.b, path[j], row.hv), p.dim_v, s.values + j * kRow);
    if (p.g.data || p.a.data) {
      load_gate(p, row.layer, row.b, path[j], row.hv, s.gates.decay[j], s.gates.beta[j]);
      s.gates.extend(j, j - 1);
    } else {  // stash without gates: l as verification wrote it
      const auto& t = params.stash_l;
      s.gates.hi[j] = load_scalar(t.dtype, t.data, row.layer * t.stride[0] + row.b * t.stride[1] + path[j] * t.stride[2] +
                                                       row.hv * t.stride[3]);
      s.gates.lo[j] = 0.0f;
    }
  }
  if (params.method == CANOPY_COMMIT_REPLAY) {
    for (int j = 0; j < m; j += W) store(s.gates.decay + j, exp(load(s.gates.decay + j)));  // alpha, not exp(l)
    return;
  }
  s.gates.finish(0, m, -1);
  const auto decays_to = [&](int i, float* out) {  // exp(l_i - l_j) for all j
    const float hi = s.gates.hi[i], lo = s.gates.lo[i];
    for (int j = 0; j < m; j += W) store(out + j, exp((hi - load(s.gates.hi + j)) + (lo - load(s.gates.lo + j))));
  };
  decays_to(m - 1, s.gamma);
  if (params.method == CANOPY_COMMIT_STASH) return;
  for (int i = 1; i < m; ++i) {
    float* g = s.g + std::int64_t(i) * round_up(m, W);
    decays_to(i, g);
    for (int j = 0; j < i; ++j) g[j] *= s.gates.beta[i] * dot(s.keys + i * kRow, s.keys + j * kRow, p.dim_k);
  }
}

// u of the path for the tile's columns into s.solved.
inline void path_u(const CommitParams& params, const CommitRow& row, const std::int32_t* path, int m, int column,
                   const CommitScratch& s) {
  const Problem& p = params.problem;
  if (params.method == CANOPY_COMMIT_STASH) {
    const int columns = p.dim_v - column < NV ? p.dim_v - column : NV;
    const auto& t = params.stash_u;
    for (int j = 0; j < m; ++j) {
      std::memset(s.solved + j * NV, 0, NV * sizeof(float));
      load_row(t.dtype,
               at(t, row.layer * t.stride[0] + row.b * t.stride[1] + path[j] * t.stride[2] + row.hv * t.stride[3] + column),
               columns, s.solved + j * NV);
    }
    return;
  }
  product_columns<NR>(s.keys, m, s.tile, NV, p.dim_k, s.solved, NV);
  for (int i = 0; i < m; ++i) {
    const float* g = s.g + std::int64_t(i) * round_up(m, W);
    Vec u[NR];
    CANOPY_UNROLL
    for (int n = 0; n < NR; ++n)
      u[n] = s.gates.beta[i] * (load(s.values + i * kRow + column + n * W) -
                                s.gates.decay[i] * load(s.solved + i * NV + n * W));  // E5
    for (int j = 0; j < i; ++j) {
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) u[n] -= g[j] * load(s.solved + j * NV + n * W);  // E6
    }
    CANOPY_UNROLL
    for (int n = 0; n < NR; ++n) store(s.solved + i * NV + n * W, u[n]);
  }
}

// s.result = the tile after the path's m nodes.
inline void advance_tile(const CommitParams& params, const CommitRow& row, const std::int32_t* path, int m, int column,
                         const CommitScratch& s) {
  const int dim_k = params.problem.dim_k;
  if (params.method == CANOPY_COMMIT_REPLAY) {
    alignas(64) float u[NV], o[NV];
    for (int j = 0; j < m; ++j)
      serial_node<true>(s.keys + j * kRow, s.zero, dim_k, s.gates.decay[j], s.gates.beta[j], s.values + j * kRow + column,
                        j == 0 ? s.tile : s.result, s.result, u, o);
    return;
  }
  path_u(params, row, path, m, column, s);
  advance_state(
      s.tile, s.result, dim_k, s.gates.decay[m - 1], m, s.gamma, [&](int j) { return s.keys + j * kRow; },
      [&](int j) { return s.solved + j * NV; });
}

// One path from the source slot to `slot`. A tile of S0 is in scratch before anything of it is overwritten, so the two
// may be the same.
inline void commit_path(const CommitParams& params, const CommitRow& row, const std::int32_t* path, int m,
                        std::int64_t slot, const CommitScratch& s) {
  const Problem& p = params.problem;
  load_path(params, row, path, m, s);
  for (int j = 0; j < m; ++j)
    std::memset(s.values + j * kRow + p.dim_v, 0, (round_up(p.dim_v, NV) - p.dim_v) * sizeof(float));
  const char* from = state_head(p, row.layer, row.src_slot, row.hv);
  char* to = state_head(p, row.layer, slot, row.hv);
  for (int column = 0; column < p.dim_v; column += NV) {
    load_state_tile(p, from, column, s.tile);
    advance_tile(params, row, path, m, column, s);
    store_state_tile(p, to, column, s.result);
  }
}

inline void commit(const CommitParams& params, const CommitRow& row, void* scratch) {
  CommitScratch s;
  CommitScratch::carve(params.problem, scratch, s);
  std::memset(s.zero, 0, params.problem.dim_k * sizeof(float));
  // Both start from S0, so the one that overwrites the source goes last. (They never share a slot.)
  const auto track = [&] {
    if (row.track_slot >= 0) commit_path(params, row, row.track_path, row.track_length, row.track_slot, s);
  };
  if (row.track_slot != row.src_slot) track();
  if (row.dst_slot >= 0) commit_path(params, row, row.path, row.length, row.dst_slot, s);
  if (row.track_slot == row.src_slot) track();
}

}  // namespace canopy::cpu::CANOPY_ISA
