// The chain-decomposed hybrid: E1 along heavy chains, chains side by side.
//
// Purpose    o [B,T,HV,V] (and U, l) of every node. A warp takes a chain: the state of 16 value columns in registers
//            from node to node, as in serial.cuh. At a node with several children it leaves the state in the workspace;
//            the chains that begin below wait for that state and nothing else.
// Precision  fp32 throughout. The registers hold S / c, c the decay since the state was last scaled (serial.cuh).
// Grid       x: 16 value columns, y: value head, z: sequence. tuning.hpp says how many warps (threadIdx.y), each on all
//            16 columns.
// Order      Chains are taken in the order of their first node's depth, so whoever waits, waits for a chain that was
//            taken before and does not itself wait for a later one.
// Workspace  [B,HV,V/16,most_branches(T)] states of K x 16 floats, read by the warps of one CTA only.
// Keeps      a node's bits depend on its root path's numbers alone, and on where along it c is brought back to 1.
#pragma once

#include "cuda/chains.cuh"
#include "cuda/serial.cuh"
#include "cuda/tile/ops.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

inline constexpr int kHybridColumns = 16;

template <int K>
struct HybridShared {
  float state[K * kHybridColumns];  // of S0 on its way, where it is not aligned
  Chains chains;
  std::uint64_t ready[kNodes / 2];  // a branch's state is there
  float scale[kNodes / 2];          // c of a branch's state
  TwoFloat<float> l[kNodes / 2];
  __device__ HybridShared() = delete;  // shared memory, used as it is
};

// A node's inputs on their way from memory; fp32 rows are read when they are needed (load_fours()).
template <int K>
struct ChainInputs {
  uint2 key[K / 32], query[K / 32];
  std::uint32_t value;  // of the lane's own column, as it lies in memory
  float gate, beta;
};
template <int K>
struct ChainNode {
  float key[K / 8], query[K / 8];
  float value, decay, beta, key_norm, query_norm, key_query, log_gate;
};

template <int K>
__device__ inline void fetch_chain_node(const SerialArguments& args, const NodeAddress& at, const char* value,
                                        ChainInputs<K>& in) {
  load_fours(args.input_dtype, args.wide_keys, at.key, in.key);
  load_fours(args.input_dtype, args.wide_keys, at.query, in.query);
  in.value = args.input_dtype == CANOPY_F32 ? *reinterpret_cast<const std::uint32_t*>(value)
                                            : *reinterpret_cast<const std::uint16_t*>(value);
  in.gate = load_float(at.gate, args.gate_dtype, 0), in.beta = load_float(at.beta, args.gate_dtype, 0);
}

template <int K>
__device__ inline void take_chain_node(const SerialArguments& args, const NodeAddress& at, int hv,
                                       const ChainInputs<K>& in, ChainNode<K>& x) {
  widen_fours(args.input_dtype, args.wide_keys, at.key, in.key, x.key);
  widen_fours(args.input_dtype, args.wide_keys, at.query, in.query, x.query);
  x.value = args.input_dtype == CANOPY_F32 ? __uint_as_float(in.value) : widen(args.input_dtype, in.value);
  x.log_gate = in.gate, x.beta = in.beta;
  resolve_gates(args, hv, x.log_gate, x.beta);
  x.decay = expf(x.log_gate);
  float even[3]{}, odd[3]{};
#pragma unroll
  for (int n = 0; n < K / 8; n += 4) add_products(x.key + n, x.query + n, even, odd);
  x.key_norm = 1, x.query_norm = args.scale;
  if (args.l2norm) {
    x.key_norm = inverse_norm(lane_sum<8>(even[0] + odd[0]), args.l2norm_eps);
    x.query_norm *= inverse_norm(lane_sum<8>(even[1] + odd[1]), args.l2norm_eps);
  }
  x.key_query = x.key_norm * lane_sum<8>(even[2] + odd[2]);
}

template <int K>
__global__ void __launch_bounds__(32 * tuning_of(CANOPY_THIS_ARCHITECTURE).hybrid_warps,
                                  tuning_of(CANOPY_THIS_ARCHITECTURE).hybrid_ctas)
    hybrid_kernel(const __grid_constant__ SerialArguments args) {
  constexpr int kWarps = tuning_of(CANOPY_THIS_ARCHITECTURE).hybrid_warps;
  constexpr int kThreads = 32 * kWarps, kTileFours = K * kHybridColumns / 4;
  using Tile = StateTile<K, 4, 1>;  // threadIdx.x is the lane
  static_assert(Tile::kColumns == kHybridColumns && sizeof(HybridShared<K>) <= 101376);
  HybridShared<K>& sm = *reinterpret_cast<HybridShared<K>*>(dynamic_shared());
  const int warp = threadIdx.y, lane = threadIdx.x, thread = 32 * warp + lane;
  const int column0 = blockIdx.x * kHybridColumns, hv = blockIdx.y, b = blockIdx.z;
  const int h = key_head_of(hv, args.key_heads_each);
  if (thread < kNodes / 2) barrier_init(&sm.ready[thread], kWarpArrivals);
  begin_after_previous_kernel();
  const DevicePlan& plan = args.plans[b];
  const int4 header = *reinterpret_cast<const int4*>(&plan);  // status, count
  std::int64_t slot = b;
  if (args.slot_index)
    slot = args.long_slots ? static_cast<const std::int64_t*>(args.slot_index)[b]
                           : static_cast<const std::int32_t*>(args.slot_index)[b];
  const bool padding = args.slot_index && slot <= args.padding_slot;
  const bool in_pool = !padding && slot >= 0 && slot < args.slots;
  const int count = header.y, status = header.x | (!padding && !in_pool ? CANOPY_ROW_BAD_SLOT : 0);
  if (args.row_status && blockIdx.x == 0 && hv == 0 && thread == 0) args.row_status[b] = padding ? 0 : status;
  if (!in_pool || status || count == 0) {
    if (warp == 0 && in_pool && status == CANOPY_ROW_BAD_TREE)
      poison_row<kHybridColumns, 32>(args, b, hv, column0, count);
    return;
  }

  Tile tile;
  if (warp == 0) {  // it takes the first chain
    const HeadState head{args.state + slot * args.state_slot + hv * args.state_head, args.state_row, args.state_dtype,
                         args.state_vk, args.wide_state};
    load_tile(head, column0, sm.state, tile);
  }
  if (thread == 0) sm.chains.taken = kWarps;
  find_chains<kThreads>(sm.chains, plan, count, thread);
  if (warp == 0) to_slots(tile);

  float4* const states =
      args.memory + ((std::int64_t{b} * args.heads_v + hv) * gridDim.x + blockIdx.x) * args.deep_levels * kTileFours;
  const int column = column0 + Tile::column(0), o_bytes = args.o_dtype == CANOPY_F32 ? 4 : 2;
  const int input_bytes = args.input_dtype == CANOPY_F32 ? 4 : 2;
  const bool writes = lane % 8 < 4, writes_l = args.l.data && column0 == 0 && lane == 0;
  const auto value_of = [&](int node) { return args.v.at(b, node, hv) + column * input_bytes; };
  const auto address = [&](int node) { return NodeAddress(args, b, node, h, hv, column0); };

  float c = 1;  // the state is c times the registers
  TwoFloat<float> l{};
  for (int chain = warp; chain < sm.chains.chains;) {
    int rank = sm.chains.head[chain];
    ChainInputs<K> coming;
    NodeAddress at = address(sm.chains.node[rank]);
    fetch_chain_node<K>(args, at, value_of(sm.chains.node[rank]), coming);
    if (chain > 0) {
      const int branch = sm.chains.branch[sm.chains.parent[rank]];
      barrier_wait(&sm.ready[branch], 0);
      recall(tile, states + std::int64_t{branch} * kTileFours);
      c = sm.scale[branch], l = sm.l[branch];
    }
    ChainNode<K> x;
    for (;;) {
      const int node = sm.chains.node[rank], heavy = sm.chains.heavy[rank], branch = sm.chains.branch[rank];
      take_chain_node<K>(args, at, hv, coming, x);
      if (heavy >= 0) {
        const int after = sm.chains.node[heavy & 255];
        at = address(after);
        fetch_chain_node<K>(args, at, value_of(after), coming);
      }
      float decayed = c * x.decay;  // the node's c; a leaf's state is not needed
      if (heavy >= 0 && !(decayed >= 1 / kMostScaled && decayed <= kMostScaled)) {
        scale_tile(tile, decayed);
        decayed = 1;
      }
      float recalled[4], asked[4], update[4];
      dot(tile, x.key, recalled);
      dot(tile, x.query, asked);
      const float own_u = x.beta * fmaf(-decayed * x.key_norm, sum_lanes<4>(recalled), x.value);
      const float own_o = x.query_norm * fmaf(own_u, x.key_query, decayed * sum_lanes<4>(asked));
      l = add(l, x.log_gate);
      if (heavy >= 0) {
        spread<4>(own_u * (x.key_norm * reciprocal_fast(decayed)), update);
        add_outer(tile, x.key, update);
        c = decayed;
        if (branch != kNone) {
          keep(tile, states + std::int64_t{branch} * kTileFours);
          if (lane == 0) sm.scale[branch] = c, sm.l[branch] = l;
          warp_arrive(&sm.ready[branch], lane);
        }
      }
      if (writes) {
        store_one(args.o.at(b, node, hv) + column * o_bytes, args.o_dtype, own_o);
        if (args.u.data) store_one(args.u.at(b, node, hv) + column * 4, CANOPY_F32, own_u);
      }
      if (writes_l) store_one(args.l.at(b, node, hv), CANOPY_F32, l.hi + l.lo);
      if (heavy < 0) break;
      rank = heavy & 255;
    }
    int next = 0;
    if (lane == 0) next = atomicAdd(&sm.chains.taken, 1);
    chain = __shfl_sync(~0u, next, 0);
  }
}

}  // namespace canopy::cuda
