// Serial verification: E1 node by node, the opponents of the fused kernel.
//
// Purpose    o [B,T,HV,V] (and U, l) of every node. One launch; a CTA is a sequence, a value head and 32 of its
// columns. Precision  fp32 throughout. Forms      resident: the state stays in registers from a node to its child;
// where a node has several children that
//            have children themselves, its state waits on a stack. snapshot: every node's state is written to memory
//            and its parent's read back, as the published serial kernels do.
// Order      resident walks depth-first with the child of the largest subtree last. A state waits only while a smaller
//            child's subtree is walked, so the stack holds at most log2(T) - 1 states, whatever the tree. A leaf needs
//            no state of its own. snapshot walks in the plan's order.
// Flow       1. state tile, and for T <= 16 the rows of all nodes, on their way; 2. the plan, and from it the order;
//            3. a chunk of nodes at a time: rows as fp32 in shared memory (norm, scale, q.k applied), the next chunk's
//            in flight; each node: S.k and S.q in one pass over the registers, u = beta (v - alpha S.k),
//            o = alpha S.q + u (k.q), S = alpha S + k u; 4. a chunk's o stored together.
#pragma once

#include "cuda/launch.hpp"
#include "cuda/plan.cuh"
#include "cuda/state_tile.cuh"
#include "two_float.hpp"

namespace canopy::cuda {

inline constexpr int kChunk = 8;         // nodes a step of the ring; trees of up to two chunks lie in it whole
inline constexpr int kSharedLevels = 4;  // states of the stack in shared memory, the others in the workspace
inline constexpr int kStackLevels = 6;   // of a tree of 256: 127, 63, 31, 15, 7, 3 nodes below the smaller child

// Levels of the stack that trees of T nodes can need: a smaller child has at most half of what its parent has below.
inline int stack_levels(int nodes) {
  int levels = 0;
  for (int n = (nodes - 1) / 2; n >= 2; n = (n - 1) / 2) ++levels;
  return levels;
}

template <int K>
struct SerialRows {
  float key[2 * kChunk][K], query[2 * kChunk][K];
  float value[2 * kChunk][kTileColumns], o[2 * kChunk][kTileColumns], u[2 * kChunk][kTileColumns];
  float alpha[2 * kChunk], beta[2 * kChunk], key_query[2 * kChunk], log_gate[2 * kChunk];
};

// One position of the walk: the node, its parent's position + 1 (0 for S0), whether it is a leaf, and its parent's last
// child.
struct Stop {
  std::uint32_t bits;
  __device__ int node() const { return bits & 255; }
  __device__ int parent() const { return static_cast<int>(bits >> 8 & 511) - 1; }
  __device__ bool leaf() const { return bits >> 17 & 1; }
  __device__ bool last() const { return bits >> 18 & 1; }
};

struct WalkScratch {
  int heavy[kNodes], below[kNodes], jump[2][kNodes], place[2][kNodes];
};

template <int K, int R>
struct alignas(16) SerialShared {
  union {
    SerialRows<K> rows;
    WalkScratch scratch;  // until the walk is known
  };
  Stop walk[kNodes];
  TwoFloat<float> l[kNodes];
  __device__ SerialShared() = delete;  // shared memory, used as it is
};

// A thread's ranks of the plan, on their way from memory before anything else of it is known; what lies past the count
// is not used.
template <int K, int R>
struct PlanRanks {
  static constexpr int kThreads = StateTile<K, R>::kThreads, kEach = kNodes / kThreads;
  int parent[kEach], below[kEach], node[kEach];

  __device__ PlanRanks(const DevicePlan& plan, int nodes) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int r = threadIdx.x + e * kThreads;
      parent[e] = r < nodes ? plan.parent[r] : 0;
      below[e] = r < nodes ? plan.below[r] : 0;
      node[e] = r < nodes ? plan.order[r] : 0;
    }
  }
};

// The walk from the plan: thread r places rank r. `reorder`: largest subtree last.
template <int K, int R>
__device__ void plan_walk(const PlanRanks<K, R>& ranks, int depth, int count, bool reorder, SerialShared<K, R>& sm) {
  constexpr int kThreads = StateTile<K, R>::kThreads, kEach = kNodes / kThreads;
  int parent[kEach], size[kEach], shift[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int r = threadIdx.x + e * kThreads;
    parent[e] = r >= count || r == 0 ? -1 : ranks.parent[e];
    size[e] = r >= count ? 0 : ranks.below[e] + 1;
    sm.scratch.below[r] = size[e] - 1;
    sm.scratch.heavy[r] = -1;
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kEach; ++e)  // among equals the later child, which is where it stands already
    if (parent[e] >= 0) atomicMax(&sm.scratch.heavy[parent[e]], size[e] << 8 | (threadIdx.x + e * kThreads));
  __syncthreads();
  bool moved = false;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int r = threadIdx.x + e * kThreads;
    shift[e] = parent[e] < 0 ? 0 : r - parent[e];
    if (reorder && parent[e] >= 0) {
      const int key = sm.scratch.heavy[parent[e]], heavy = key & 255, below = sm.scratch.below[parent[e]];
      if (r == heavy)
        shift[e] = below + 1 - size[e];
      else if (r > heavy)
        shift[e] -= key >> 8;
      moved |= shift[e] != r - parent[e];
    }
  }
  const bool any = __syncthreads_or(moved);
  int place[kEach], up_place[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) place[e] = threadIdx.x + e * kThreads, up_place[e] = parent[e];
  if (any) {  // positions are sums of shifts along the root path: by pointer doubling
    int side = 0;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int r = threadIdx.x + e * kThreads;
      sm.scratch.place[0][r] = shift[e], sm.scratch.jump[0][r] = parent[e];
    }
    __syncthreads();
    for (int reach = 1; reach <= depth; reach *= 2, side ^= 1) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int r = threadIdx.x + e * kThreads, to = sm.scratch.jump[side][r];
        sm.scratch.place[side ^ 1][r] = sm.scratch.place[side][r] + (to >= 0 ? sm.scratch.place[side][to] : 0);
        sm.scratch.jump[side ^ 1][r] = to >= 0 ? sm.scratch.jump[side][to] : -1;
      }
      __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      place[e] = sm.scratch.place[side][threadIdx.x + e * kThreads];
      up_place[e] = parent[e] >= 0 ? sm.scratch.place[side][parent[e]] : -1;
    }
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int r = threadIdx.x + e * kThreads;
    if (r >= count) continue;
    const bool last = parent[e] < 0 || (reorder ? (sm.scratch.heavy[parent[e]] & 255) == r
                                                : r + size[e] == parent[e] + sm.scratch.below[parent[e]] + 1);
    sm.walk[place[e]].bits =
        static_cast<std::uint32_t>(ranks.node[e] | (up_place[e] + 1) << 8 | (size[e] == 1) << 17 | last << 18);
  }
  __syncthreads();
}

// One node's inputs on their way from memory; a warp has the node, a lane four keys.
struct NodeInputs {
  Four key, query, value;
  Gate gate;
};

template <int K>
__device__ NodeInputs fetch_node(const Problem& p, int wide, int b, int node, int hv, int column0) {
  const int lane = threadIdx.x % 32, h = hv / (p.heads_v / p.heads_k);
  NodeInputs in{};
  if (lane * 4 < K) {
    in.key = load_four(p.k.dtype, p.k.data, row_offset(p.k, 0, b, node, h) + lane * 4, wide & kWideK);
    in.query = load_four(p.q.dtype, p.q.data, row_offset(p.q, 0, b, node, h) + lane * 4, wide & kWideQ);
  }
  if (lane < kTileColumns / 4)
    in.value = load_four(p.v.dtype, p.v.data, row_offset(p.v, 0, b, node, hv) + column0 + lane * 4, wide & kWideV);
  if (lane == 0) in.gate = load_gate(p, 0, b, node, hv);
  return in;
}

template <int K>
__device__ void deposit_node(const Problem& p, const NodeInputs& in, int row, SerialRows<K>& rows) {
  const int lane = threadIdx.x % 32;
  float4 k = to_float4(p.k.dtype, in.key), q = to_float4(p.q.dtype, in.query);
  float key_norm = 1, query_norm = query_scale(p);
  if (p.l2norm) {
    key_norm = inverse_norm(lane_sum<32>(k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w), p.l2norm_eps);
    query_norm *= inverse_norm(lane_sum<32>(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w), p.l2norm_eps);
  }
  k = {k.x * key_norm, k.y * key_norm, k.z * key_norm, k.w * key_norm};
  q = {q.x * query_norm, q.y * query_norm, q.z * query_norm, q.w * query_norm};
  const float key_query = lane_sum<32>(k.x * q.x + k.y * q.y + k.z * q.z + k.w * q.w);
  if (lane * 4 < K) {
    *reinterpret_cast<float4*>(&rows.key[row][lane * 4]) = k;
    *reinterpret_cast<float4*>(&rows.query[row][lane * 4]) = q;
  }
  if (lane < kTileColumns / 4) *reinterpret_cast<float4*>(&rows.value[row][lane * 4]) = to_float4(p.v.dtype, in.value);
  if (lane == 0) {
    rows.alpha[row] = expf(in.gate.log_gate);
    rows.beta[row] = in.gate.beta;
    rows.key_query[row] = key_query;
    rows.log_gate[row] = in.gate.log_gate;
  }
}

// Rows of a malformed tree: NaN wherever a result was due.
__device__ inline void poison_row(const VerifyParams& params, int b, int hv, int column0, int count) {
  const float nan = __uint_as_float(0x7fc00000u);
  for (int i = threadIdx.x; i < count * kTileColumns; i += blockDim.x) {
    const int t = i / kTileColumns, column = column0 + i % kTileColumns;
    const std::int64_t at = row_offset(params.o, 0, b, t, hv) + column;
    if (params.o.dtype == CANOPY_F32)
      static_cast<float*>(params.o.data)[at] = nan;
    else
      static_cast<unsigned short*>(params.o.data)[at] = narrow(params.o.dtype, nan);
    if (params.stash_u.data)
      static_cast<float*>(params.stash_u.data)[row_offset(params.stash_u, 0, b, t, hv) + column] = nan;
    if (params.stash_l.data && column == 0)
      static_cast<float*>(params.stash_l.data)[row_offset(params.stash_l, 0, b, t, hv)] = nan;
  }
}

// The results of positions first .. first + nodes - 1, and their l.
template <int K, int R>
__device__ void store_chunk(const VerifyParams& params, int wide, int b, int hv, int column0, int first, int nodes,
                            bool whole, SerialShared<K, R>& sm) {
  for (int i = threadIdx.x; i < nodes * (kTileColumns / 4); i += StateTile<K, R>::kThreads) {
    const int node = sm.walk[first + i / 8].node(), four = i % 8 * 4;
    const int row = whole ? node : (first + i / 8) % (2 * kChunk);
    store_float4(params.o.dtype, params.o.data, row_offset(params.o, 0, b, node, hv) + column0 + four, wide & kWideO,
                 *reinterpret_cast<const float4*>(&sm.rows.o[row][four]));
    if (params.stash_u.data)
      store_float4(CANOPY_F32, params.stash_u.data, row_offset(params.stash_u, 0, b, node, hv) + column0 + four,
                   wide & kWideU, *reinterpret_cast<const float4*>(&sm.rows.u[row][four]));
  }
  if (params.stash_l.data && column0 == 0 && threadIdx.x == 0) {
    for (int i = first; i < first + nodes; ++i) {  // E2
      const int row = whole ? sm.walk[i].node() : i % (2 * kChunk), up = sm.walk[i].parent();
      sm.l[i] = add(up >= 0 ? sm.l[up] : TwoFloat<float>{}, sm.rows.log_gate[row]);
      static_cast<float*>(params.stash_l.data)[row_offset(params.stash_l, 0, b, sm.walk[i].node(), hv)] =
          sm.l[i].hi + sm.l[i].lo;
    }
  }
}

// A tile's place in memory: thread-private float4, so that the same thread reads back what it wrote.
template <int K, int R>
__device__ inline void keep(const StateTile<K, R>& tile, float4* at) {
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < StateTile<K, R>::kFours; ++m)
      at[(r * StateTile<K, R>::kFours + m) * StateTile<K, R>::kThreads + threadIdx.x] = tile.s[r][m];
}
template <int K, int R>
__device__ inline void recall(StateTile<K, R>& tile, const float4* at) {
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < StateTile<K, R>::kFours; ++m)
      tile.s[r][m] = at[(r * StateTile<K, R>::kFours + m) * StateTile<K, R>::kThreads + threadIdx.x];
}

inline constexpr int tile_bytes(int k) { return k * kTileColumns * 4; }

// A node's key and query, this thread's part.
template <int K>
struct KeyQuery {
  float4 key[K / 32], query[K / 32];
};
template <int K, int R>
__device__ inline void read_key_query(const SerialRows<K>& rows, int row, KeyQuery<K>& x) {
#pragma unroll
  for (int m = 0; m < K / 32; ++m) {
    x.key[m] = *reinterpret_cast<const float4*>(&rows.key[row][StateTile<K, R>::key(m)]);
    x.query[m] = *reinterpret_cast<const float4*>(&rows.query[row][StateTile<K, R>::key(m)]);
  }
}

// E1 for one node; the state becomes the node's where it has children. The next node's key and query, of row `next` if
// it is not negative, are read into x.
template <int K, int R>
__device__ inline void serial_step(StateTile<K, R>& tile, SerialRows<K>& rows, int row, int next, bool leaf,
                                   KeyQuery<K>& x) {
  float sk[R], sq[R];
#pragma unroll
  for (int r = 0; r < R; ++r) sk[r] = dot(tile, r, x.key), sq[r] = dot(tile, r, x.query);
  const float alpha = rows.alpha[row], beta = rows.beta[row], key_query = rows.key_query[row];
  float value[R];
#pragma unroll
  for (int r = 0; r < R; ++r) value[r] = rows.value[row][StateTile<K, R>::column(r)];
  constexpr bool kEarly = R == 1;  // two columns a thread leave no registers for it, and more CTAs to hide the wait
  KeyQuery<K> coming;
  if (kEarly && next >= 0) read_key_query<K, R>(rows, next, coming);
#pragma unroll
  for (int r = 0; r < R; ++r) sk[r] = lane_sum<8>(sk[r]), sq[r] = lane_sum<8>(sq[r]);
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int column = StateTile<K, R>::column(r);
    const float u = beta * (value[r] - alpha * sk[r]);
    if (threadIdx.x % 8 == 0) {
      rows.o[row][column] = fmaf(u, key_query, alpha * sq[r]);
      rows.u[row][column] = u;
    }
    if (!leaf) decay_and_add(tile, r, alpha, x.key, u);
  }
  if (kEarly)
    x = coming;
  else if (next >= 0)
    read_key_query<K, R>(rows, next, x);
}

// grid (V / 32, HV, B). `memory`: snapshots [B,HV,V/32,T] tiles, or the deeper levels of the stacks
// [B,HV,V/32,deep_levels] tiles.
template <int K, int R, bool Snapshot>
__global__ void __launch_bounds__(StateTile<K, R>::kThreads, 2 * R)
    serial_kernel(const __grid_constant__ VerifyParams params, const DevicePlan* plans, float4* memory, int wide,
                  int levels) {
  using Tile = StateTile<K, R>;
  constexpr int kWarps = Tile::kThreads / 32, kTileFours = K * kTileColumns / 4;
  extern __shared__ __align__(16) unsigned char shared[];
  SerialShared<K, R>& sm = *reinterpret_cast<SerialShared<K, R>*>(shared);
  float4* const stack = reinterpret_cast<float4*>(shared + sizeof(SerialShared<K, R>));
  const Problem& p = params.problem;
  const int column0 = blockIdx.x * kTileColumns, hv = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32;
  const bool whole = p.nodes <= 2 * kChunk;  // rows by node, fetched before the plan is known

  const DevicePlan& plan = plans[b];
  const int4 header = *reinterpret_cast<const int4*>(&plan);  // status, count, depth
  const PlanRanks<K, R> ranks(plan, p.nodes);
  const std::int64_t slot = device_slot(p, p.slot_index, b);
  NodeInputs ahead[2];
  if (whole) {
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (warp + e * kWarps < p.nodes) ahead[e] = fetch_node<K>(p, wide, b, warp + e * kWarps, hv, column0);
  }
  Tile tile;
  const bool in_pool = slot >= 0 && slot < p.slots;
  if (in_pool)
    load_tile<K, R>(p, state_offset(p, 0, slot, hv), column0, wide & kWideState, reinterpret_cast<float*>(stack), tile);
  const int count = header.y, status = header.x | (slot >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (params.row_status && blockIdx.x == 0 && hv == 0 && threadIdx.x == 0) params.row_status[b] = slot < 0 ? 0 : status;
  if (!in_pool || status || count == 0) {
    if (in_pool && status == CANOPY_ROW_BAD_TREE) poison_row(params, b, hv, column0, count);
    return;
  }
  plan_walk<K, R>(ranks, header.z, count, !Snapshot, sm);
  if (whole) {
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if (warp + e * kWarps < count) deposit_node<K>(p, ahead[e], warp + e * kWarps, sm.rows);
    for (int node = warp + 2 * kWarps; node < count; node += kWarps)
      deposit_node<K>(p, fetch_node<K>(p, wide, b, node, hv, column0), node, sm.rows);
  } else {
    for (int i = warp; i < kChunk && i < count; i += kWarps)
      deposit_node<K>(p, fetch_node<K>(p, wide, b, sm.walk[i].node(), hv, column0), i, sm.rows);
  }
  __syncthreads();

  const std::int64_t cta = (std::int64_t{b} * p.heads_v + hv) * gridDim.x + blockIdx.x;
  float4* const own = memory + cta * (Snapshot ? p.nodes : max(levels - kSharedLevels, 0)) * kTileFours;
  const auto level = [&](int i) {
    return i < kSharedLevels ? stack + i * kTileFours : own + (i - kSharedLevels) * kTileFours;
  };
  int current = -1, top = 0;  // position whose state is in the registers; states on the stack
  std::uint64_t kept = 0;     // their positions, a byte each, the top one lowest
  const int step = whole ? 2 * kChunk : kChunk;
  for (int first = 0; first < count; first += step) {
    const int nodes = min(step, count - first), next = first + step;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = warp + e * kWarps;
      if (i < kChunk && next + i < count) ahead[e] = fetch_node<K>(p, wide, b, sm.walk[next + i].node(), hv, column0);
    }
    Stop stop = sm.walk[first];
    int row = whole ? stop.node() : first % (2 * kChunk);
    KeyQuery<K> x;
    read_key_query<K, R>(sm.rows, row, x);
    for (int i = first; i < first + nodes; ++i) {
      const Stop after = sm.walk[min(i + 1, first + nodes - 1)];
      const int row_after = i + 1 == first + nodes ? -1 : whole ? after.node() : (i + 1) % (2 * kChunk);
      const int parent = stop.parent();
      const bool leaf = stop.leaf(), last = stop.last();
      if constexpr (Snapshot) {
        if (parent >= 0) recall(tile, own + parent * kTileFours);
        serial_step(tile, sm.rows, row, row_after, false, x);
        keep(tile, own + i * kTileFours);
      } else {
        const bool waiting = top > 0 && static_cast<int>(kept & 255) == parent;  // never for the root: position 0 keeps
        if (current != parent) recall(tile, level(top - 1));                     // nothing before it has walked
        if (parent >= 0) {
          if (last && waiting)
            kept >>= 8, --top;
          else if (!last && !leaf && !waiting)
            keep(tile, level(top)), kept = kept << 8 | parent, ++top;
        }
        serial_step(tile, sm.rows, row, row_after, leaf, x);
        current = leaf ? parent : i;
      }
      stop = after, row = row_after;
    }
    __syncthreads();
    store_chunk<K, R>(params, wide, b, hv, column0, first, nodes, whole, sm);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int i = warp + e * kWarps;
      if (i < kChunk && next + i < count) deposit_node<K>(p, ahead[e], (next + i) % (2 * kChunk), sm.rows);
    }
    for (int i = warp + 2 * kWarps; i < kChunk && next + i < count; i += kWarps)
      deposit_node<K>(p, fetch_node<K>(p, wide, b, sm.walk[next + i].node(), hv, column0), (next + i) % (2 * kChunk),
                      sm.rows);
    __syncthreads();
  }
}

}  // namespace canopy::cuda
