// The path-compressed closed form (E2 to E7) of the value heads that share a key head.
//
//   1. Rows 2r and 2r+1 of `rows` hold key and query of depth-first rank r; all products take both at once.
//   2. Once per key head: for each block of 16 ranks, the raw k.k and q.k (E4, E7 without their factors) against the
//      block's own keys and its root path. The root path is a stack indexed by depth, kept as columns of a panel.
//   3. Per value head: keys and queries against S0, tile by tile (E5, E7); then rank by rank forward substitution (E6),
//      with the output accumulated beside it: u_j is loaded once for both.
//
// Only ancestors are ever multiplied, so nothing outside a node's root path can touch it, NaN included.
#pragma once

#include "cpu/head.hpp"

namespace canopy::cpu::CANOPY_ISA {

// Lanes of a block's coefficient row: its own 16 ranks, then the root path from the root down.
inline int coefficient_lanes(int depth) { return kBlockRows + round_up(depth, kBlockRows); }

struct ClosedFormScratch {
  float* rows;         // [2T][kRow] keys and queries
  float* solved;       // [2T][kRow] S0^T k then u; S0^T q then o
  float* tile;         // [K][NV] of S0
  float* panel;        // [K][lanes] keys as columns
  float* raw;          // [2T][lanes] k.k and q.k of every block
  float* g_row;        // [lanes] G of one rank
  float* c_row;        // [lanes] C of one rank
  float* lane_hi;      // [lanes] l of each lane
  float* lane_lo;      // [lanes]
  float* value;        // [256] v of one node
  std::int16_t* path;  // [blocks][256] ranks of the root path of a block's first row
  GateRows gates;

  static std::size_t carve(const Problem& p, void* base, ClosedFormScratch& s) {
    Arena arena(base);
    const int rows = round_up(p.nodes, kBlockRows), lanes = coefficient_lanes(p.nodes), depth_k = round_up(p.dim_k, W);
    s.rows = arena.take<float>(std::size_t{2} * rows * kRow);
    s.solved = arena.take<float>(std::size_t{2} * rows * kRow);
    s.tile = arena.take<float>(p.dim_k * NV);
    s.panel = arena.take<float>(std::size_t(depth_k) * lanes);
    s.raw = arena.take<float>(std::size_t{2} * rows * lanes);
    s.g_row = arena.take<float>(lanes);
    s.c_row = arena.take<float>(lanes);
    s.lane_hi = arena.take<float>(lanes);
    s.lane_lo = arena.take<float>(lanes);
    s.value = arena.take<float>(kRow);
    s.path = arena.take<std::int16_t>(std::size_t(rows / kBlockRows) * kMaxNodes);
    s.gates.take(arena, rows);
    return arena.used();
  }
};

inline std::size_t closed_form_scratch(const Problem& p) {
  ClosedFormScratch s;
  return ClosedFormScratch::carve(p, nullptr, s);
}

// Step 2. `lanes` is the row length of panel and raw for this tree.
inline void raw_products(const Plan& plan, int dim_k, int lanes, const ClosedFormScratch& s) {
  std::int16_t stacked[kMaxNodes];  // rank whose key stands at each depth of the panel's path part
  int on_stack = 0;
  for (int b = 0; b < plan.blocks; ++b) {
    const Block& block = plan.block[b];
    std::int16_t* path = s.path + b * kMaxNodes;
    for (int d = block.ancestors - 1, r = plan.parent[block.first]; d >= 0; --d, r = plan.parent[r])
      path[d] = static_cast<std::int16_t>(r);
    for (int d = 0; d < block.ancestors; ++d) {
      if (d < on_stack && stacked[d] == path[d]) continue;
      stacked[d] = path[d];
      const float* key = s.rows + std::int64_t{2} * path[d] * kRow;
      for (int kk = 0; kk < dim_k; ++kk) s.panel[std::int64_t(kk) * lanes + kBlockRows + d] = key[kk];
    }
    on_stack = block.ancestors;

    const float* first = s.rows + std::int64_t{2} * block.first * kRow;
    for (int j = 0; j < block.rows; j += W)
      for (int kk = 0; kk < dim_k; kk += W)
        transpose_block(first + 2 * j * kRow + kk, 2 * kRow, block.rows - j, s.panel + std::int64_t(kk) * lanes + j, lanes);
    const int used = kBlockRows + block.ancestors;
    product(first, 2 * block.rows, s.panel, lanes, (used + W - 1) / W, dim_k, s.raw + std::int64_t{2} * block.first * lanes,
            lanes);
  }
}

// G and C of rank r from its raw products: rows of the coefficients, lane by lane. Lanes that are no ancestors hold
// values that nobody reads.
inline void coefficients(int r, int used, const float* raw_k, const float* raw_q, const ClosedFormScratch& s) {
  const float hi = s.gates.hi[r], lo = s.gates.lo[r], beta = s.gates.beta[r];
  for (int j = 0; j < used; j += W) {
    const Vec gamma = exp((hi - load(s.lane_hi + j)) + (lo - load(s.lane_lo + j)));  // E3
    store(s.g_row + j, beta * (gamma * load(raw_k + j)));
    store(s.c_row + j, gamma * load(raw_q + j));
  }
}

// u and o of rank r, N vectors of columns from `column`.
template <int N>
CANOPY_INLINE void solve_columns(const Plan& plan, const Block& block, int r, int column, const std::int16_t* path,
                                 const ClosedFormScratch& s) {
  float* own = s.solved + std::int64_t{2} * r * kRow + column;
  Vec u[N], o[N];
  CANOPY_UNROLL
  for (int n = 0; n < N; ++n) {
    u[n] = s.gates.beta[r] * (load(s.value + column + n * W) - s.gates.decay[r] * load(own + n * W));  // E5
    o[n] = s.gates.decay[r] * load(own + kRow + n * W);
  }
  const auto subtract = [&](int rank, int lane) __attribute__((always_inline)) {
    const float* other = s.solved + std::int64_t{2} * rank * kRow + column;
    const float g = s.g_row[lane], c = s.c_row[lane];
    CANOPY_UNROLL
    for (int n = 0; n < N; ++n) {
      const Vec x = load(other + n * W);
      u[n] -= g * x;  // E6
      o[n] += c * x;  // E7
    }
  };
  for (int d = 0; d < plan.prefix[r]; ++d) subtract(path[d], kBlockRows + d);
  for (unsigned bits = plan.in_block[r]; bits; bits &= bits - 1) {
    const int j = __builtin_ctz(bits);
    subtract(block.first + j, j);
  }
  const float c = s.c_row[r - block.first];
  CANOPY_UNROLL
  for (int n = 0; n < N; ++n) {
    store(own + n * W, u[n]);
    store(own + kRow + n * W, o[n] + c * u[n]);
  }
}

inline constexpr int kSolveVectors = W == 16 || MR > 6 ? 8 : 4;  // 2N accumulators in the registers there are

// Step 3 for one value head.
inline void solve_head(const VerifyParams& params, const Plan& plan, int b, int hv, int lanes, const ClosedFormScratch& s) {
  const Problem& p = params.problem;
  for (int r = 0; r < plan.nodes; ++r) {
    load_gate(p, 0, b, plan.order[r], hv, s.gates.decay[r], s.gates.beta[r]);
    s.gates.extend(r, plan.parent[r]);
  }
  s.gates.finish(plan.nodes);

  const char* head = state_head(p, 0, slot_of(p, p.slot_index, b), hv);
  for (int column = 0; column < p.dim_v; column += NV) {
    load_state_tile(p, head, column, s.tile);
    product_columns<NR>(s.rows, 2 * plan.nodes, s.tile, NV, p.dim_k, s.solved + column, kRow);
  }

  const int vectors = round_up(p.dim_v, NV) / W;
  std::memset(s.value + p.dim_v, 0, (vectors * W - p.dim_v) * sizeof(float));
  for (int block_index = 0; block_index < plan.blocks; ++block_index) {
    const Block& block = plan.block[block_index];
    const std::int16_t* path = s.path + block_index * kMaxNodes;
    for (int j = 0; j < kBlockRows; ++j) {
      const int r = block.first + (j < block.rows ? j : 0);
      s.lane_hi[j] = s.gates.hi[r];
      s.lane_lo[j] = s.gates.lo[r];
    }
    for (int d = 0; d < round_up(block.ancestors, W); ++d) {
      const int r = path[d < block.ancestors ? d : 0];
      s.lane_hi[kBlockRows + d] = s.gates.hi[r];
      s.lane_lo[kBlockRows + d] = s.gates.lo[r];
    }
    for (int r = block.first; r < block.first + block.rows; ++r) {
      const float* raw = s.raw + std::int64_t{2} * r * lanes;
      coefficients(r, kBlockRows + round_up(block.ancestors, W), raw, raw + lanes, s);
      load_row(p.v.dtype, value_row(p, 0, b, plan.order[r], hv), p.dim_v, s.value);
      int n = 0;
      for (; n + kSolveVectors <= vectors; n += kSolveVectors) solve_columns<kSolveVectors>(plan, block, r, n * W, path, s);
      for (; n < vectors; n += NR) solve_columns<NR>(plan, block, r, n * W, path, s);
      write_outputs(params, b, plan.order[r], hv, s.solved + std::int64_t{2} * r * kRow + kRow,
                    s.solved + std::int64_t{2} * r * kRow, s.gates.hi[r] + s.gates.lo[r]);
    }
  }
}

inline void closed_form(const VerifyParams& params, const Plan& plan, int b, int hv_first, int hv_count, void* scratch) {
  const Problem& p = params.problem;
  ClosedFormScratch s;
  ClosedFormScratch::carve(p, scratch, s);
  const int h = hv_first / (p.heads_v / p.heads_k);
  for (int r = 0; r < plan.nodes; ++r) {
    load_key(p, 0, b, plan.order[r], h, s.rows + std::int64_t{2} * r * kRow);
    load_query(p, b, plan.order[r], h, s.rows + std::int64_t{2} * r * kRow + kRow);
  }
  int deepest = 0;
  for (int i = 0; i < plan.blocks; ++i) deepest = plan.block[i].ancestors > deepest ? plan.block[i].ancestors : deepest;
  const int lanes = coefficient_lanes(deepest);
  std::memset(s.panel, 0, sizeof(float) * p.dim_k * lanes);  // lanes without a key: no stray denormals
  raw_products(plan, p.dim_k, lanes, s);
  for (int hv = hv_first; hv < hv_first + hv_count; ++hv) solve_head(params, plan, b, hv, lanes, s);
}

}  // namespace canopy::cpu::CANOPY_ISA
