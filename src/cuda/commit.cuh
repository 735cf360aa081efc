// Commit: the state of the accepted node (E8) into the pool, all layers in one launch.
//
// Purpose    state[dst_slot] = S of node `leaf`, and state[track_slot] = S of node `track_leaf`, from
// state[slot_index]. Precision  fp32 throughout. Methods    resolve: u on the path by solving its chain system again;
// stash: u from verification's memory; replay: E1 along
//            the path in order, the same bits whatever tree the path was part of.
// Grid       (HV x parts, B, L): a CTA is a head's state, or a part of it where there are few; 32 columns at a time,
// the next
//            ones on their way meanwhile. Memory bound: each state is read and written once.
// Flow       1. state tile on its way; 2. the path from the plan's parents; 3. eight nodes at a time: keys, values and
// gates
//            into shared memory, k.k of all pairs, then u by forward substitution (E6 on a chain) and one
//            update of the tile (E8). The state after eight nodes is the S0 of the next eight.
// Skipped    rows with a flag, padding rows and leaves outside the live nodes: nothing is read or written.
#pragma once

#include "cuda/launch.hpp"
#include "cuda/plan.cuh"
#include "cuda/state_tile.cuh"
#include "two_float.hpp"

namespace canopy::cuda {

// Columns a thread: each warp takes a node's whole key from shared memory, and with one column a thread that alone took
// longer than the state takes from memory.
inline constexpr int kCommitColumns = 2;
inline constexpr int kPathNodes = 8;  // solved together

template <int K>
struct alignas(16) CommitShared {
  float key[kPathNodes][K], value[kPathNodes][kTileColumns];
  float g[kPathNodes][kPathNodes];  // beta_i Gam_ij (k_i . k_j), j < i (E4)
  TwoFloat<float> l[kPathNodes];    // from the first node of the eight on
  float log_gate[kPathNodes], alpha[kPathNodes], decay[kPathNodes], beta[kPathNodes], gamma[kPathNodes];
  std::uint8_t path[kNodes];  // nodes, root first
};

__device__ inline bool live_leaf(const std::int32_t* leaf, int b, int count) {
  return leaf && leaf[b] >= 0 && leaf[b] < count;
}

// Root path of a node into sm.path, and its length: a rank is on it if the node is in its subtree, and stands at its
// depth.
template <int K>
__device__ int find_path(const DevicePlan& plan, int count, int node, CommitShared<K>& sm) {
  const int rank = plan.rank[node];
  __syncthreads();  // the last path may still be read
  for (int r = threadIdx.x; r <= rank && r < count; r += blockDim.x)
    if (rank <= r + plan.below[r]) sm.path[plan.depths[r]] = plan.order[r];
  __syncthreads();
  return plan.depths[rank] + 1;
}

// Log gate of path node i; by stash where gates are not given, from the stored l.
template <int Method>
__device__ Gate path_gate(const CommitParams& params, int layer, int b, int hv, const std::uint8_t* path, int i) {
  const Problem& p = params.problem;
  if (Method != CANOPY_COMMIT_STASH || p.g.data || p.a.data) return load_gate(p, layer, b, path[i], hv);
  const float* const l = static_cast<const float*>(params.stash_l.data);
  const float own = l[row_offset(params.stash_l, layer, b, path[i], hv)];
  return {i == 0 ? own : own - l[row_offset(params.stash_l, layer, b, path[i - 1], hv)], 0.0f};
}

// Keys and gates of path nodes first .. first + nodes - 1 into shared memory; a warp a node.
template <int K, int Method>
__device__ void load_path(const CommitParams& params, int wide, int layer, int b, int hv, int first, int nodes,
                          CommitShared<K>& sm) {
  const Problem& p = params.problem;
  const int lane = threadIdx.x % 32, h = hv / (p.heads_v / p.heads_k);
  for (int i = threadIdx.x / 32; i < nodes; i += blockDim.x / 32) {
    const int node = sm.path[first + i];
    Four key{};
    Gate gate{};
    if (lane * 4 < K)
      key = load_four(p.k.dtype, p.k.data, row_offset(p.k, layer, b, node, h) + lane * 4, wide & kWideK);
    if (lane == 0) gate = path_gate<Method>(params, layer, b, hv, sm.path, first + i);
    float4 k = to_float4(p.k.dtype, key);
    if (p.l2norm) {
      const float norm = inverse_norm(lane_sum<32>(k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w), p.l2norm_eps);
      k = {k.x * norm, k.y * norm, k.z * norm, k.w * norm};
    }
    if (lane * 4 < K) *reinterpret_cast<float4*>(&sm.key[i][lane * 4]) = k;
    if (lane == 0) {
      sm.log_gate[i] = gate.log_gate;
      sm.alpha[i] = expf(gate.log_gate);
      sm.beta[i] = gate.beta;
    }
  }
  __syncthreads();
}

// The same nodes' v, or u by stash, of one tile; eight lanes a node.
template <int K, int Method>
__device__ void load_values(const CommitParams& params, int wide, int layer, int b, int hv, int column0, int first,
                            int nodes, CommitShared<K>& sm) {
  constexpr bool stash = Method == CANOPY_COMMIT_STASH;
  const Tensor& values = stash ? params.stash_u : params.problem.v;
  const int i = threadIdx.x / 8, four = threadIdx.x % 8 * 4;
  if (i < nodes)
    *reinterpret_cast<float4*>(&sm.value[i][four]) =
        load_float4(values.dtype, values.data, row_offset(values, layer, b, sm.path[first + i], hv) + column0 + four,
                    wide & (stash ? kWideU : kWideV));
  __syncthreads();
}

// Decays within the eight (E2, E3) and, by resolve, G (E4): eight lanes a pair.
template <int K>
__device__ void pair_up(bool solve, int nodes, CommitShared<K>& sm) {
  if (threadIdx.x < nodes) {
    TwoFloat<float> l;
    for (int i = 0; i <= static_cast<int>(threadIdx.x); ++i) l = add(l, sm.log_gate[i]);
    sm.l[threadIdx.x] = l;
    sm.decay[threadIdx.x] = expf(l.hi + l.lo);
  }
  __syncthreads();
  if (threadIdx.x < nodes) sm.gamma[threadIdx.x] = expf(difference(sm.l[nodes - 1], sm.l[threadIdx.x]));
  if (solve) {
    const int group = threadIdx.x / 8, lane = threadIdx.x % 8;
    for (int first = 0; first < nodes * nodes; first += blockDim.x / 8) {  // whole warps: the sum is over their lanes
      const int i = (first + group) / nodes, j = (first + group) % nodes;
      float sum = 0;
      if (i < nodes && j < i) {
        for (int k = lane * 4; k < K; k += 32) {
          const float4 x = *reinterpret_cast<const float4*>(&sm.key[i][k]),
                       y = *reinterpret_cast<const float4*>(&sm.key[j][k]);
          sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, sum))));
        }
      }
      sum = lane_sum<8>(sum);
      if (lane == 0 && i < nodes && j < i) sm.g[i][j] = sm.beta[i] * expf(difference(sm.l[i], sm.l[j])) * sum;
    }
  }
  __syncthreads();
}

template <int K, int R>
__device__ inline void path_key(const CommitShared<K>& sm, int i, float4 (&k)[K / 32]) {
#pragma unroll
  for (int m = 0; m < K / 32; ++m) k[m] = *reinterpret_cast<const float4*>(&sm.key[i][StateTile<K, R>::key(m)]);
}

// The tile after the `nodes` nodes in shared memory, by E1.
template <int K, int R>
__device__ void replay(int nodes, const CommitShared<K>& sm, StateTile<K, R>& tile) {
  float4 k[K / 32];
#pragma unroll 1
  for (int i = 0; i < nodes; ++i) {
    path_key<K, R>(sm, i, k);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float recalled = lane_sum<8>(dot(tile, r, k));
      const float u = sm.beta[i] * (sm.value[i][StateTile<K, R>::column(r)] - sm.alpha[i] * recalled);
      decay_and_add(tile, r, sm.alpha[i], k, u);
    }
  }
}

// The same by E5, E6 and E8. A column's eight lanes keep its u in `value`.
template <int K, int R, int Method>
__device__ void advance(int nodes, CommitShared<K>& sm, StateTile<K, R>& tile) {
  float4 k[K / 32];
  if constexpr (Method == CANOPY_COMMIT_RESOLVE) {
#pragma unroll 1
    for (int i = 0; i < nodes; ++i) {  // E5
      path_key<K, R>(sm, i, k);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float recalled = lane_sum<8>(dot(tile, r, k));
        float& value = sm.value[i][StateTile<K, R>::column(r)];
        if (threadIdx.x % 8 == 0) value = sm.beta[i] * (value - sm.decay[i] * recalled);
      }
    }
    __syncwarp();
    for (int i = 1; i < nodes; ++i) {  // E6: the first lane of a column substitutes, the others only read afterwards
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (threadIdx.x % 8 != 0) continue;
        const int column = StateTile<K, R>::column(r);
        float u = sm.value[i][column];
        for (int j = 0; j < i; ++j) u = fmaf(-sm.g[i][j], sm.value[j][column], u);
        sm.value[i][column] = u;
      }
    }
    __syncwarp();
  }
  const float decay = sm.decay[nodes - 1];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int m = 0; m < K / 32; ++m) {
      float4& s = tile.s[r][m];
      s = {decay * s.x, decay * s.y, decay * s.z, decay * s.w};
    }
#pragma unroll 1
  for (int i = 0; i < nodes; ++i) {  // E8
    path_key<K, R>(sm, i, k);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float x = sm.gamma[i] * sm.value[i][StateTile<K, R>::column(r)];
#pragma unroll
      for (int m = 0; m < K / 32; ++m) {
        float4& s = tile.s[r][m];
        s.x = fmaf(k[m].x, x, s.x), s.y = fmaf(k[m].y, x, s.y), s.z = fmaf(k[m].z, x, s.z), s.w = fmaf(k[m].w, x, s.w);
      }
    }
  }
}

template <int K, int Method>
__global__ void __launch_bounds__(256 / kCommitColumns, 3)
    commit_kernel(const __grid_constant__ CommitParams params, const DevicePlan* plans, int wide, int tiles_each) {
  constexpr int R = kCommitColumns;
  using Tile = StateTile<K, R>;
  extern __shared__ __align__(16) unsigned char shared[];
  CommitShared<K>& sm = *reinterpret_cast<CommitShared<K>*>(shared);
  float* const stage = reinterpret_cast<float*>(shared + sizeof(CommitShared<K>));
  const Problem& p = params.problem;
  const int parts = p.dim_v / kTileColumns / tiles_each, hv = blockIdx.x / parts;
  const int begin = blockIdx.x % parts * tiles_each * kTileColumns, end = begin + tiles_each * kTileColumns;
  const int b = blockIdx.y, layer = blockIdx.z;

  const DevicePlan& plan = plans[b];
  const std::int64_t source = device_slot(p, p.slot_index, b);
  const int count = plan.count;
  int status = source < 0 ? 0 : plan.status | (source >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  const bool accepted = source >= 0 && status == 0 && live_leaf(params.leaf, b, count);
  const bool tracked = accepted && live_leaf(params.track_leaf, b, count);
  const std::int64_t target = params.dst_slot ? device_slot(p, params.dst_slot, b) : source;
  const std::int64_t track = tracked ? device_slot(p, params.track_slot, b) : -1;
  if (accepted && (target >= p.slots || track >= p.slots || (track >= 0 && track == target)))
    status |= CANOPY_ROW_BAD_SLOT;
  if (params.row_status && blockIdx.x == 0 && layer == 0 && threadIdx.x == 0) params.row_status[b] = status;
  if (!accepted || status) return;

  // Both start from S0, so what overwrites the source goes last. (They never share a slot.)
  const bool track_last = track == source;
  const std::int64_t from = state_offset(p, layer, source, hv);
  Tile tile, ahead;
  load_tile<K, R>(p, from, begin, wide & kWideState, stage, ahead);
  for (int turn = 0; turn < 2; ++turn) {
    const bool second = (turn == 0) != track_last;  // whether this turn is the track's
    const std::int64_t to = second ? track : target;
    if (to < 0) continue;
    const int length = find_path<K>(plan, count, second ? params.track_leaf[b] : params.leaf[b], sm);
    const std::int64_t onto = state_offset(p, layer, to, hv);
    int prepared = -1;  // first node of what is in shared memory
    for (int column0 = begin; column0 < end; column0 += kTileColumns) {
      tile = ahead;
      // The next tile, or the first again for a second turn, while this one is worked on.
      const int next = column0 + kTileColumns < end ? column0 + kTileColumns : begin;
      if (next != begin || turn == 0) load_tile<K, R>(p, from, next, wide & kWideState, stage, ahead);
      for (int first = 0; first < length; first += kPathNodes) {
        const int nodes = min(kPathNodes, length - first);
        if (prepared != first) {
          load_path<K, Method>(params, wide, layer, b, hv, first, nodes, sm);
          if constexpr (Method != CANOPY_COMMIT_REPLAY) pair_up<K>(Method == CANOPY_COMMIT_RESOLVE, nodes, sm);
          prepared = first;
        }
        load_values<K, Method>(params, wide, layer, b, hv, column0, first, nodes, sm);
        if constexpr (Method == CANOPY_COMMIT_REPLAY)
          replay<K, R>(nodes, sm, tile);
        else
          advance<K, R, Method>(nodes, sm, tile);
        __syncthreads();
      }
      store_tile<K, R>(p, onto, column0, wide & kWideState, stage, tile);
      __syncthreads();
    }
  }
}

}  // namespace canopy::cuda
