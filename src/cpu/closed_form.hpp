// The path-compressed closed form (E2 to E7) of the value heads that share a key head.
//
//   1. Rows 2r and 2r+1 of `rows` hold key and query of depth-first rank r; all products take both at once.
//   2. Once per key head: for each block of 16 ranks, the raw k.k and q.k (E4, E7 without their factors) against the
//      block's own keys and its root path. The root path is a stack indexed by depth, kept as columns of a panel.
//   3. Per value head: keys and queries against S0, tile by tile (E5, E7); then rank by rank forward substitution (E6),
//      with the output accumulated beside it: u_j is loaded once for both.
//
// Only ancestors are ever multiplied, so nothing outside a node's root path can touch it, NaN included.
//
// A path of d nodes costs d^2 in step 2 and 3. Where a long path ends in a node that all remaining ranks descend from (a
// chain, above all), the state of that node is formed (E8) and the rest of the tree starts from it: a new segment.
#pragma once

#include "cpu/head.hpp"

namespace canopy::cpu::CANOPY_ISA {

// Folding m path nodes into the state costs m K V multiply-adds and saves the R remaining nodes m (2 V + K) each at
// least: worth it from R = 43 at K = V. Both bounds leave some room.
inline constexpr int kFoldPath = 64, kFoldRemaining = 64;

// Blocks first_block .. end_block - 1, whose ranks are solved from the state of rank `base` (-1: from S0); `above` of
// their ancestors lie at or above the base and are no longer looked at.
struct Segment {
  int first_block, end_block, base, above;
};
inline constexpr int kMaxSegments = kMaxNodes / kFoldPath;

inline int split_segments(const Plan& plan, Segment (&segments)[kMaxSegments]) {
  int count = 0;
  segments[0] = {0, plan.blocks, -1, 0};
  for (int i = 1; i < plan.blocks; ++i) {
    const Block& block = plan.block[i];
    const int parent = plan.parent[block.first];
    if (block.ancestors - segments[count].above < kFoldPath || plan.nodes - block.first < kFoldRemaining ||
        parent + plan.subtree[parent] < plan.nodes)
      continue;
    segments[count].end_block = i;
    segments[++count] = {i, plan.blocks, parent, block.ancestors};
  }
  return count + 1;
}

// Lanes of a block's coefficient row: its own 16 ranks, then its root path from the segment's top down.
inline int coefficient_lanes(int path) { return kBlockRows + round_up(path, kBlockRows); }

struct ClosedFormScratch {
  float* rows;         // [2T][kRow] keys and queries
  float* solved;       // [2T][kRow] S^T k then u; S^T q then o
  float* state;        // [V / NV][K][NV] S0, or the state of the segment's base
  float* panel;        // [K][lanes] keys as columns
  float* raw;          // [2T][lanes] k.k and q.k of every block
  float* g_row;        // [lanes] G of one rank
  float* c_row;        // [lanes] C of one rank
  float* lane_hi;      // [lanes] l of each lane
  float* lane_lo;      // [lanes]
  float* value;        // [kRow] v of one node
  std::int16_t* path;  // [blocks][256] ranks of the root path of a block's first row
  GateRows gates;

  static std::size_t carve(const Problem& p, void* base, ClosedFormScratch& s) {
    Arena arena(base);
    const int rows = round_up(p.nodes, kBlockRows), lanes = coefficient_lanes(p.nodes), depth_k = round_up(p.dim_k, W);
    s.rows = arena.take<float>(std::size_t{2} * rows * kRow);
    s.solved = arena.take<float>(std::size_t{2} * rows * kRow);
    s.state = arena.take<float>(std::size_t(p.dim_k) * round_up(p.dim_v, NV));
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
  float* key(int r) const { return rows + std::int64_t{2} * r * kRow; }
  float* u(int r) const { return solved + std::int64_t{2} * r * kRow; }
};

inline std::size_t closed_form_scratch(const Problem& p) {
  ClosedFormScratch s;
  return ClosedFormScratch::carve(p, nullptr, s);
}

// Step 2 for one segment. `lanes` is the row length of panel and raw for this tree.
inline void raw_products(const Plan& plan, const Segment& segment, int dim_k, int lanes, const ClosedFormScratch& s) {
  std::int16_t stacked[kMaxNodes];  // rank whose key stands at each depth of the panel's path part
  int on_stack = 0;
  for (int b = segment.first_block; b < segment.end_block; ++b) {
    const Block& block = plan.block[b];
    std::int16_t* path = s.path + b * kMaxNodes;
    const int length = block.ancestors - segment.above;
    for (int d = length - 1, r = plan.parent[block.first]; d >= 0; --d, r = plan.parent[r])
      path[d] = static_cast<std::int16_t>(r);
    for (int d = 0; d < length; ++d) {
      if (d < on_stack && stacked[d] == path[d]) continue;
      stacked[d] = path[d];
      const float* key = s.key(path[d]);
      for (int kk = 0; kk < dim_k; ++kk) s.panel[std::int64_t(kk) * lanes + kBlockRows + d] = key[kk];
    }
    on_stack = length;

    for (int j = 0; j < block.rows; j += W)
      for (int kk = 0; kk < dim_k; kk += W)
        transpose_block(s.key(block.first + j) + kk, 2 * kRow, block.rows - j, s.panel + std::int64_t(kk) * lanes + j, lanes);
    product(s.key(block.first), 2 * block.rows, s.panel, lanes, (kBlockRows + length + W - 1) / W, dim_k,
            s.raw + std::int64_t{2} * block.first * lanes, lanes);
  }
}

// G and C of rank r from its raw products, lane by lane. Lanes that are no ancestors hold values that nobody reads.
inline void coefficients(int r, int used, const float* raw_k, const float* raw_q, const ClosedFormScratch& s) {
  const float hi = s.gates.hi[r], lo = s.gates.lo[r], beta = s.gates.beta[r];
  for (int j = 0; j < used; j += W) {
    const Vec gamma = exp((hi - load(s.lane_hi + j)) + (lo - load(s.lane_lo + j)));  // E3
    store(s.g_row + j, beta * (gamma * load(raw_k + j)));
    store(s.c_row + j, gamma * load(raw_q + j));
  }
}

// u and o of rank r, N vectors of columns from `column`; `prefix` ancestors lie on the block's path.
template <int N>
CANOPY_INLINE void solve_columns(const Plan& plan, const Block& block, int r, int prefix, int column,
                                 const std::int16_t* path, const ClosedFormScratch& s) {
  float* own = s.u(r) + column;
  Vec u[N], o[N];
  CANOPY_UNROLL
  for (int n = 0; n < N; ++n) {
    u[n] = s.gates.beta[r] * (load(s.value + column + n * W) - s.gates.decay[r] * load(own + n * W));  // E5
    o[n] = s.gates.decay[r] * load(own + kRow + n * W);
  }
  const auto subtract = [&](int rank, int lane) __attribute__((always_inline)) {
    const float* other = s.u(rank) + column;
    const float g = s.g_row[lane], c = s.c_row[lane];
    CANOPY_UNROLL
    for (int n = 0; n < N; ++n) {
      const Vec x = load(other + n * W);
      u[n] -= g * x;  // E6
      o[n] += c * x;  // E7
    }
  };
  for (int d = 0; d < prefix; ++d) subtract(path[d], kBlockRows + d);
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

inline void solve_block(const VerifyParams& params, const Plan& plan, int block_index, int above, int b, int hv, int lanes,
                        const ClosedFormScratch& s) {
  const Problem& p = params.problem;
  const Block& block = plan.block[block_index];
  const std::int16_t* path = s.path + block_index * kMaxNodes;
  const int length = block.ancestors - above, vectors = round_up(p.dim_v, NV) / W;
  for (int j = 0; j < kBlockRows; ++j) {
    const int r = block.first + (j < block.rows ? j : 0);
    s.lane_hi[j] = s.gates.hi[r];
    s.lane_lo[j] = s.gates.lo[r];
  }
  for (int d = 0; d < round_up(length, W); ++d) {
    const int r = path[d < length ? d : 0];
    s.lane_hi[kBlockRows + d] = s.gates.hi[r];
    s.lane_lo[kBlockRows + d] = s.gates.lo[r];
  }
  for (int r = block.first; r < block.first + block.rows; ++r) {
    const float* raw = s.raw + std::int64_t{2} * r * lanes;
    coefficients(r, kBlockRows + round_up(length, W), raw, raw + lanes, s);
    load_row(p.v.dtype, value_row(p, 0, b, plan.order[r], hv), p.dim_v, s.value);
    const int prefix = plan.prefix[r] - above;
    int n = 0;
    for (; n + kSolveVectors <= vectors; n += kSolveVectors)
      solve_columns<kSolveVectors>(plan, block, r, prefix, n * W, path, s);
    for (; n < vectors; n += NR) solve_columns<NR>(plan, block, r, prefix, n * W, path, s);
    write_outputs(params, b, plan.order[r], hv, s.u(r) + kRow, s.u(r), s.gates.hi[r] + s.gates.lo[r]);
  }
}

// The state of rank `base` from that of the segment it ends, in place, one tile.
inline void fold_path(const Plan& plan, int base, int above, int dim_k, int column, const ClosedFormScratch& s) {
  std::int16_t path[kMaxNodes];
  float gamma[kMaxNodes];
  const int length = plan.depths[base] + 1 - above;
  for (int d = length - 1, r = base; d >= 0; --d, r = plan.parent[r]) {
    path[d] = static_cast<std::int16_t>(r);
    gamma[d] = exp(splat((s.gates.hi[base] - s.gates.hi[r]) + (s.gates.lo[base] - s.gates.lo[r])))[0];
  }
  advance_state(
      s.state + std::int64_t(column) * dim_k, s.state + std::int64_t(column) * dim_k, dim_k, s.gates.decay[base], length,
      gamma, [&](int j) { return s.key(path[j]); }, [&](int j) { return s.u(path[j]) + column; });
}

// Step 3 for one value head.
inline void solve_head(const VerifyParams& params, const Plan& plan, const Segment* segments, int count, int b, int hv,
                       int lanes, const ClosedFormScratch& s) {
  const Problem& p = params.problem;
  for (int r = 0; r < plan.nodes; ++r) {
    load_gate(p, 0, b, plan.order[r], hv, s.gates.decay[r], s.gates.beta[r]);
    s.gates.extend(r, plan.parent[r]);
  }
  std::memset(s.value + p.dim_v, 0, (round_up(p.dim_v, NV) - p.dim_v) * sizeof(float));

  const char* head = state_head(p, 0, slot_of(p, p.slot_index, b), hv);
  for (int i = 0; i < count; ++i) {
    const Segment& segment = segments[i];
    const int first = plan.block[segment.first_block].first;
    const Block& last = plan.block[segment.end_block - 1];
    for (int column = 0; column < p.dim_v; column += NV) {
      float* tile = s.state + std::int64_t(column) * p.dim_k;
      if (i == 0) load_state_tile(p, head, column, tile);
      else fold_path(plan, segment.base, segments[i - 1].above, p.dim_k, column, s);
      product_columns<NR>(s.key(first), 2 * (last.first + last.rows - first), tile, NV, p.dim_k, s.u(first) + column, kRow);
    }
    s.gates.finish(first, last.first + last.rows, segment.base);
    for (int block = segment.first_block; block < segment.end_block; ++block)
      solve_block(params, plan, block, segment.above, b, hv, lanes, s);
  }
}

inline void closed_form(const VerifyParams& params, const Plan& plan, int b, int hv_first, int hv_count, void* scratch) {
  const Problem& p = params.problem;
  ClosedFormScratch s;
  ClosedFormScratch::carve(p, scratch, s);
  const int h = hv_first / (p.heads_v / p.heads_k);
  for (int r = 0; r < plan.nodes; ++r) {
    load_key(p, 0, b, plan.order[r], h, s.key(r));
    load_query(p, b, plan.order[r], h, s.key(r) + kRow);
  }
  Segment segments[kMaxSegments];
  const int count = split_segments(plan, segments);
  int longest = 0;
  for (int i = 0; i < count; ++i)
    for (int block = segments[i].first_block; block < segments[i].end_block; ++block) {
      const int length = plan.block[block].ancestors - segments[i].above;
      longest = length > longest ? length : longest;
    }
  const int lanes = coefficient_lanes(longest);
  std::memset(s.panel, 0, sizeof(float) * p.dim_k * lanes);  // lanes without a key: no stray denormals
  for (int i = 0; i < count; ++i) raw_products(plan, segments[i], p.dim_k, lanes, s);
  for (int hv = hv_first; hv < hv_first + hv_count; ++hv) solve_head(params, plan, segments, count, b, hv, lanes, s);
}

}  // namespace canopy::cpu::CANOPY_ISA
