// Commit: the state of the accepted node (E8) into the pool, all layers in one launch.
//
// Purpose    state[dst_slot] = S of node `leaf`, and state[track_slot] = S of node `track_leaf`, from
//            state[slot_index].
// Precision  fp32 throughout.
// Methods    resolve: u on the path by solving its chain system again, by twos; stash: u from verification's memory;
//            replay: E1 along the path in order, the same bits whatever tree the path was part of.
// Grid       (CTAs a row, B): a CTA takes every so many-th tile of its row's states, 16 W columns of one head of one
//            layer, all along the same path. Memory bound: each state is read and written once.
// Flow       1. the path from the plan, once; 2. a pipeline over tiles, eight nodes of the path a step: while a step is
//            worked on, the next one's keys, values, gates and, for the next tile, its state are on their way, the
//            state to shared memory. A step: keys, values and gates into shared memory; then each warp by itself takes
//            its columns of the tile, in registers, from node to node: by replay one at a time, else by twos. Products
//            of alphas over two nodes cannot cancel, so no logarithms are needed.
// Skipped    rows with a flag, padding rows and leaves outside the live nodes: nothing is read or written.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/launch.hpp"
#include "cuda/plan.cuh"
#include "cuda/state_tile.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

inline constexpr int kCommitColumns = 4;  // a thread
inline constexpr int kPathNodes = 8;      // a step

template <int K, int W>
struct alignas(16) CommitShared {
  float state[2][K * StateTile<K, kCommitColumns, W>::kColumns];  // this tile's and the next one's, on its way
  float key[kPathNodes][K];
  float value[kPathNodes][StateTile<K, kCommitColumns, W>::kColumns];  // v, or by stash u
  float alpha[kPathNodes], beta[kPathNodes];                           // past the last node 1 and 0
  int rank, length;
  std::uint8_t path[kNodes];                                           // nodes, root first
};

__device__ inline bool live_leaf(const std::int32_t* leaf, int b, int count) {
  return leaf && leaf[b] >= 0 && leaf[b] < count;
}

// The plan's tables of the ranks that a thread looks at.
template <int Threads>
struct PathRanks {
  static constexpr int kEach = kNodes / Threads;
  unsigned packed[kEach];  // node, depth, nodes below: a byte each
  __device__ PathRanks(const DevicePlan& plan, int nodes) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int r = threadIdx.x + e * Threads;
      packed[e] = r < nodes ? plan.order[r] | plan.depths[r] << 8 | plan.below[r] << 16 : 0;
    }
  }
  __device__ int node(int e) const { return packed[e] & 255; }
  __device__ int depth(int e) const { return packed[e] >> 8 & 255; }
  __device__ int below(int e) const { return packed[e] >> 16; }
};

// Root path of a node into sm.path, and its length: a rank is on it if the node is in its subtree, and stands at its
// depth.
template <int K, int W>
__device__ int find_path(const PathRanks<32 * W>& ranks, int count, int node, CommitShared<K, W>& sm) {
  constexpr int kEach = PathRanks<32 * W>::kEach;
  __syncthreads();  // the last path may still be read
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int r = threadIdx.x + e * 32 * W;
    if (r < count && ranks.node(e) == node) sm.rank = r, sm.length = ranks.depth(e) + 1;
  }
  __syncthreads();
  const int rank = sm.rank;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int r = threadIdx.x + e * 32 * W;
    if (r <= rank && r < count && rank <= r + ranks.below(e))
      sm.path[ranks.depth(e)] = static_cast<std::uint8_t>(ranks.node(e));
  }
  __syncthreads();
  return sm.length;
}

// Where a step works: eight nodes of the path, of one tile.
struct Step8 {
  int layer, hv, column0;  // the tile
  int first, nodes;        // path nodes first .. first + nodes - 1
};

// A step's inputs on their way from memory: warp w has the keys of nodes w, w + W ..., four a lane; thread i four
// columns of the value of node i / 4W; thread i < 8 the gate of node i.
template <int W>
struct StepInputs {
  Four key[kPathNodes / W], value;
  float gate[4];  // g, beta; or a, b, A_log, dt_bias; or by stash without gates l of the node and of the one before
};

// Whether gates are taken from the stored l.
template <int Method>
__device__ inline bool gates_from_l(const Problem& p) {
  return Method == CANOPY_COMMIT_STASH && !p.g.data && !p.a.data;
}

// Past the last node the last again, so that nothing here needs a branch.
template <int K, int W, int Method>
__device__ inline void fetch_step(const CommitParams& params, int wide, int b, const Step8& at,
                                  const CommitShared<K, W>& sm, StepInputs<W>& in) {
  const Problem& p = params.problem;
  const int lane = threadIdx.x % 32, h = at.hv / (p.heads_v / p.heads_k);
  const std::uint8_t* const path = sm.path + at.first;
  if (lane * 4 < K) {
    const std::int64_t row = row_offset(p.k, at.layer, b, 0, h) + lane * 4;
#pragma unroll
    for (int e = 0; e < kPathNodes / W; ++e) {
      const int i = min(static_cast<int>(threadIdx.x / 32) + e * W, at.nodes - 1);
      in.key[e] = load_four(p.k.dtype, p.k.data, row + path[i] * p.k.stride[2], wide & kWideK);
    }
  }
  const Tensor& values = Method == CANOPY_COMMIT_STASH ? params.stash_u : p.v;
  const int i = min(static_cast<int>(threadIdx.x) / (4 * W), at.nodes - 1);
  in.value = load_four(values.dtype, values.data,
                       row_offset(values, at.layer, b, path[i], at.hv) + at.column0 + threadIdx.x % (4 * W) * 4,
                       wide & (Method == CANOPY_COMMIT_STASH ? kWideU : kWideV));
  if (threadIdx.x >= at.nodes) return;
  const int node = path[threadIdx.x];
  const auto of_node = [&](const Tensor& x, int t) {
    return load_float(x.data, x.dtype, row_offset(x, at.layer, b, t, at.hv));
  };
  const auto of_head = [&](const Tensor& x) {
    return load_float(x.data, x.dtype, at.layer * x.stride[0] + at.hv * x.stride[1]);
  };
  if (p.g.data) {
    in.gate[0] = of_node(p.g, node), in.gate[1] = of_node(p.beta, node);
  } else if (gates_from_l<Method>(p)) {
    const bool root = at.first + threadIdx.x == 0;
    in.gate[0] = of_node(params.stash_l, node);
    in.gate[1] = root ? 0 : of_node(params.stash_l, sm.path[at.first + threadIdx.x - 1]);
  } else {
    in.gate[0] = of_node(p.a, node), in.gate[1] = of_node(p.b, node);
    in.gate[2] = of_head(p.a_log), in.gate[3] = of_head(p.dt_bias);
  }
}

template <int K, int W, int Method>
__device__ inline void deposit_step(const CommitParams& params, const StepInputs<W>& in, int nodes,
                                    CommitShared<K, W>& sm) {
  const Problem& p = params.problem;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < kPathNodes / W; ++e) {
    float4 k = lane * 4 < K ? to_float4(p.k.dtype, in.key[e]) : float4{};
    if (p.l2norm) {
      const float norm = inverse_norm(lane_sum<32>(k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w), p.l2norm_eps);
      k = {k.x * norm, k.y * norm, k.z * norm, k.w * norm};
    }
    if (lane * 4 < K) *reinterpret_cast<float4*>(&sm.key[threadIdx.x / 32 + e * W][lane * 4]) = k;
  }
  const int dtype = Method == CANOPY_COMMIT_STASH ? CANOPY_F32 : p.v.dtype;
  float* const value = &sm.value[threadIdx.x / (4 * W)][threadIdx.x % (4 * W) * 4];
  *reinterpret_cast<float4*>(value) = to_float4(dtype, in.value);
  if (threadIdx.x >= kPathNodes) return;
  float log_gate = in.gate[0], beta = in.gate[1];
  if (p.a.data && !p.g.data) {
    log_gate = log_gate_from_raw(in.gate[2], log_gate + in.gate[3]);
    beta = beta_from_raw(beta, p.beta_doubled != 0);
  } else {
    log_gate = gates_from_l<Method>(p) ? log_gate - beta : clamp_log_gate(log_gate);
  }
  const bool live = threadIdx.x < nodes;
  sm.alpha[threadIdx.x] = live ? expf(log_gate) : 1.0f;
  sm.beta[threadIdx.x] = live ? beta : 0.0f;
}

// The tile after the `nodes` nodes in shared memory, by E1.
template <int K, int C, int W>
__device__ void replay(int nodes, const CommitShared<K, W>& sm, StateTile<K, C, W>& tile) {
  float k[K / 8], sum[C];
#pragma unroll 1
  for (int i = 0; i < nodes; ++i) {
    read_keys(sm.key[i], k);
    dot(tile, k, sum);
    const float alpha = sm.alpha[i];
    const float u = sm.beta[i] * (sm.value[i][tile.column(0)] - alpha * sum_lanes<C>(sum));
    scale_tile(tile, alpha);
    spread<C>(u, sum);
    add_outer(tile, k, sum);
  }
}

// The same by chains of two (E5, E6, E8): their keys are read once, and E6 is one multiply-add. An odd last node has a
// companion with its key, alpha 1 and u 0. By stash u is given.
template <int K, int C, int W, int Method>
__device__ void advance(int nodes, const CommitShared<K, W>& sm, StateTile<K, C, W>& tile) {
  float k[2][K / 8], each[2][C];
#pragma unroll 1
  for (int i = 0; i < nodes; i += 2) {
    read_keys(sm.key[i], k[0]), read_keys(sm.key[i + 1], k[1]);
    float u[2] = {sm.value[i][tile.column(0)], sm.value[i + 1][tile.column(0)]};
    const float alpha[2] = {sm.alpha[i], sm.alpha[i + 1]};
    if constexpr (Method == CANOPY_COMMIT_RESOLVE) {
      float between = 0;
#pragma unroll
      for (int n = 0; n < K / 8; ++n) between = fmaf(k[0][n], k[1][n], between);
      dot(tile, k[0], each[0]), dot(tile, k[1], each[1]);
      between = lane_sum<8>(between);
      const float s[2] = {sum_lanes<C>(each[0]), sum_lanes<C>(each[1])};
      u[0] = sm.beta[i] * fmaf(-alpha[0], s[0], u[0]);
      u[1] = sm.beta[i + 1] * fmaf(-alpha[1], fmaf(alpha[0], s[1], between * u[0]), u[1]);
    }
    spread<C>(alpha[1] * u[0], each[0]);
    spread<C>(i + 1 < nodes ? u[1] : 0.0f, each[1]);
    scale_tile(tile, alpha[0] * alpha[1]);
    add_outer(tile, k[0], each[0]), add_outer(tile, k[1], each[1]);
  }
}

template <int K, int W, int Method>
__global__ void __launch_bounds__(32 * W, W == 4 ? tuning_of(CANOPY_THIS_ARCHITECTURE).commit_ctas : 4)
    commit_kernel(const __grid_constant__ CommitParams params, const DevicePlan* plans, int wide) {
  constexpr int C = kCommitColumns;
  using Tile = StateTile<K, C, W>;
  std::uint8_t* const shared = dynamic_shared();
  CommitShared<K, W>& sm = *reinterpret_cast<CommitShared<K, W>*>(shared + 16 * threadIdx.y);  // as in serial.cuh
  begin_after_previous_kernel();
  const Problem& p = params.problem;
  const int b = blockIdx.y + threadIdx.y;

  const DevicePlan& plan = plans[b];
  const PathRanks<32 * W> ranks(plan, p.nodes);
  const std::int64_t source = device_slot(p, p.slot_index, b);
  const int count = plan.count;
  int status = source < 0 ? 0 : plan.status | (source >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  const bool accepted = source >= 0 && status == 0 && live_leaf(params.leaf, b, count);
  const bool tracked = accepted && live_leaf(params.track_leaf, b, count);
  const std::int64_t target = params.dst_slot ? device_slot(p, params.dst_slot, b) : source;
  const std::int64_t track = tracked ? device_slot(p, params.track_slot, b) : -1;
  if (accepted && (target >= p.slots || track >= p.slots || (track >= 0 && track == target)))
    status |= CANOPY_ROW_BAD_SLOT;
  if (params.row_status && blockIdx.x == 0 && threadIdx.x == 0) params.row_status[b] = status;
  if (!accepted || status) return;

  const int parts = p.dim_v / Tile::kColumns, tiles = params.layers * p.heads_v * parts;
  const auto head_of = [&](const Step8& at, std::int64_t slot) {
    return head_state(p, at.layer, slot, at.hv, wide & kWideState);
  };
  // Both start from S0, so what overwrites the source goes last. (They never share a slot.)
  const bool track_last = track == source;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool second = (turn == 0) != track_last;  // whether this turn is the track's
    const std::int64_t to = second ? track : target;
    if (to < 0) continue;
    const int length = find_path(ranks, count, second ? params.track_leaf[b] : params.leaf[b], sm);
    const auto step_of = [&](int tile, int first) {
      const int head = tile / parts, layer = head / p.heads_v;
      return Step8{layer, head - layer * p.heads_v, (tile - head * parts) * Tile::kColumns, first,
                   min(kPathNodes, length - first)};
    };
    StepInputs<W> in{};
    int tile_index = blockIdx.x, side = 0;
    Step8 at = step_of(tile_index, 0);
    fetch_step<K, W, Method>(params, wide, b, at, sm, in);
    send_tile<K, C, W>(head_of(at, source), at.column0, sm.state[0]);
    end_copies();
#pragma unroll 1
    while (tile_index < tiles) {
      __syncthreads();  // the last step's keys may still be read
      deposit_step<K, W, Method>(params, in, at.nodes, sm);
      const bool ends = at.first + kPathNodes >= length;
      const int tile_after = ends ? tile_index + gridDim.x : tile_index;
      const Step8 after = step_of(tile_after, ends ? 0 : at.first + kPathNodes);
      if (tile_after < tiles) {
        fetch_step<K, W, Method>(params, wide, b, after, sm, in);
        if (ends) send_tile<K, C, W>(head_of(after, source), after.column0, sm.state[side ^ 1]);
      }
      end_copies();
      __syncthreads();
      Tile tile;  // between two steps it waits in shared memory
      if (at.first == 0) {
        wait_for_copies<1>();
        receive_tile(head_of(at, source), sm.state[side], tile);
      } else {
        elements_from(sm.state[side], tile);
      }
      if constexpr (Method == CANOPY_COMMIT_REPLAY)
        replay(at.nodes, sm, tile);
      else
        advance<K, C, W, Method>(at.nodes, sm, tile);
      if (ends) {
        store_tile(head_of(at, to), at.column0, sm.state[side], tile);
        side ^= 1;
      } else {
        __syncthreads();  // parked element by element, over what other warps may not have received yet
        elements_to(tile, sm.state[side]);
      }
      at = after, tile_index = tile_after;
    }
    wait_for_all_copies();
  }
}

}  // namespace canopy::cuda
