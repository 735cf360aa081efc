// Serial verification: E1 node by node, the opponents of the fused kernel.
//
// Purpose    o [B,T,HV,V] (and U, l) of every node. One launch; a CTA is a sequence, a value head and 16 C of its
//            columns.
// Precision  fp32 throughout.
// Forms      resident: the state stays in registers from a node to its child; where a node has several children that
//            have children themselves, its state waits on a stack (serial_walk.cuh). A leaf needs no state of its own.
//            snapshot: every node's state is written to memory and its parent's read back, as the published serial
//            kernels do.
// Decay      The registers hold S / c, c the decay since the state was last scaled, so that a node's decay costs one
//            scalar and its update one multiply-add an element. c stays within 2^-16 .. 2^16: outside, the registers
//            are scaled and c is 1 again. Norms and scale of k and q are scalars of a node too; its rows stay raw.
// Flow       1. rows of the first 16 nodes (T <= 16) and the state on their way; 2. the walk from the plan; 3. 16 nodes
//            at a time: rows as fp32 in shared memory; each node: S.k and S.q in one pass over the registers, u, o, and
//            S += k u (E1).
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/launch.hpp"
#include "cuda/serial_walk.cuh"
#include "cuda/state_tile.cuh"
#include "cuda/tuning.hpp"
#include "two_float.hpp"

namespace canopy::cuda {

inline constexpr int kChunk = 16;      // nodes in shared memory; eight lanes prepare one
inline constexpr int kWarpNodes = 32;  // trees that one warp places
inline constexpr float kMostScaled = 65536.0f;

// Strides in bytes.
struct Strided {
  char* data;
  std::int64_t sequence, node, head;
  __device__ char* at(int b, int t, int h) const { return data + b * sequence + t * node + h * head; }
};

// VerifyParams as the kernel needs it: less than half of its bytes, since a CTA fetches each line of its parameters.
struct SerialArguments {
  const DevicePlan* plans;
  const void* slot_index;
  std::int64_t padding_slot, slots;
  char* state;
  std::int64_t state_slot, state_head, state_row;
  std::int32_t nodes, heads_v;
  float key_heads_each, scale, l2norm_eps;  // key_heads_each: H / HV
  std::int8_t input_dtype, state_dtype, gate_dtype, a_log_dtype, dt_bias_dtype, o_dtype;
  bool wide_keys, wide_values, wide_state, state_vk, long_slots, l2norm, raw_gates, beta_doubled;
  bool usual;                   // q, k, v of 16 bits, gates of fp32, an fp32 VK state, all aligned
  Strided k, q, v, gate, beta;  // gate, beta: a, b where the gates are raw
  const char *a_log, *dt_bias;
  std::int64_t a_log_step, dt_bias_step;
  Strided o, u, l;
  std::int32_t* row_status;
  float4* memory;  // snapshots [B,HV,V/columns,T] tiles, or the deeper levels of the stacks [B,HV,V/columns,deep] tiles
  std::int32_t shared_levels, deep_levels;
};

// A node in shared memory: k and q as they came, v; one address for all of it.
template <int K, int Columns>
struct SerialRow {
  float key[K], query[K], value[Columns];
  float4 scalars;                        // alpha, beta, what k is to be multiplied by, what q
  float key_query, log_gate, unused[2];  // key_query: of the raw rows
};

template <int K, int Columns>
struct alignas(16) SerialShared {
  union {
    SerialRow<K, Columns> rows[kChunk];
    WalkScratch scratch;  // until the walk is known, for trees of more than kWarpNodes
  };
  Stop walk[kNodes];
  TwoFloat<float> l[kNodes];
  int heavy[kWarpNodes];
  float level_scale[8][8];             // c of the waiting states, a copy a warp
  __device__ SerialShared() = delete;  // shared memory, used as it is
};

// One node's inputs on their way from memory; eight lanes have the node, each K / 8 keys, four elements of 16 bits a
// pair of words. Inputs of fp32 would take the registers twice: they are not fetched ahead but read by deposit_node.
template <int K, int Columns>
struct NodeInputs {
  uint2 key[K / 32], query[K / 32], value[Columns / 32];
  float gate[2];  // g and beta, or raw a and b
};

// Four elements each 32 elements, from `at` on; nothing for fp32.
template <int N>
__device__ inline void load_fours(int dtype, bool wide, const char* at, uint2 (&to)[N]) {
  if (dtype == CANOPY_F32) return;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const Four four = load_four(CANOPY_BF16, at, 32 * i, wide);
    to[i] = {four.bits.x, four.bits.y};
  }
}
// The same as fp32, x[4 i + e] from to[i].
template <int N>
__device__ inline void widen_fours(int dtype, bool wide, const char* at, const uint2 (&from)[N], float (&x)[4 * N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float4 four;
    if (dtype == CANOPY_F32)
      four = load_float4(CANOPY_F32, at, 32 * i, wide);
    else
      four = to_float4(dtype, {{from[i].x, from[i].y, 0, 0}});
    x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
  }
}

// Where a lane's part of a node's rows starts.
struct NodeAddress {
  const char *key, *query, *value, *gate, *beta;
  __device__ NodeAddress(const SerialArguments& args, int b, int node, int h, int hv, int column0) {
    const int bytes = args.input_dtype == CANOPY_F32 ? 4 : 2, first = threadIdx.x % 8 * 4 * bytes;
    key = args.k.at(b, node, h) + first, query = args.q.at(b, node, h) + first;
    value = args.v.at(b, node, hv) + column0 * bytes + first;
    gate = args.gate.at(b, node, hv), beta = args.beta.at(b, node, hv);
  }
};

template <int K, int Columns>
__device__ inline void fetch_node(const SerialArguments& args, const NodeAddress& at, NodeInputs<K, Columns>& in) {
  if (__builtin_expect(args.usual, 1)) {  // no branches between the loads, and their code in one piece
    load_fours(CANOPY_BF16, true, at.key, in.key);
    load_fours(CANOPY_BF16, true, at.query, in.query);
    load_fours(CANOPY_BF16, true, at.value, in.value);
    in.gate[0] = *reinterpret_cast<const float*>(at.gate), in.gate[1] = *reinterpret_cast<const float*>(at.beta);
    return;
  }
  load_fours(args.input_dtype, args.wide_keys, at.key, in.key);
  load_fours(args.input_dtype, args.wide_keys, at.query, in.query);
  load_fours(args.input_dtype, args.wide_values, at.value, in.value);
  if (threadIdx.x % 8 == 0) {
    in.gate[0] = load_float(at.gate, args.gate_dtype, 0);
    in.gate[1] = load_float(at.beta, args.gate_dtype, 0);
  }
}

template <int N>
__device__ inline void store_fours(float* at, const float (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; n += 4) *reinterpret_cast<float4*>(at + 8 * n) = {x[n], x[n + 1], x[n + 2], x[n + 3]};
}

// g and beta as they came, or raw a and b, to the log gate and beta of E1.
__device__ inline void resolve_gates(const SerialArguments& args, int hv, float& log_gate, float& beta) {
  if (args.raw_gates) {
    const auto of_head = [&](const char* data, int dtype, std::int64_t step) {
      return load_float(data + hv * step, dtype, 0);
    };
    log_gate = log_gate_from_raw(of_head(args.a_log, args.a_log_dtype, args.a_log_step),
                                 log_gate + of_head(args.dt_bias, args.dt_bias_dtype, args.dt_bias_step));
    beta = beta_from_raw(beta, args.beta_doubled);
  } else {
    log_gate = clamp_log_gate(log_gate);
  }
}

// A node's scalars into `row` from the lanes' parts of k.k, q.q and k.q; all lanes of a warp take part, those whose
// node is not `live` write nothing.
template <int K, int Columns>
__device__ inline void deposit_scalars(const SerialArguments& args, const float (&sums)[3], float log_gate, float beta,
                                       int hv, bool live, SerialRow<K, Columns>& row) {
  float key_norm = 1, query_norm = args.scale;
  if (args.l2norm) {
    key_norm = inverse_norm(lane_sum<8>(sums[0]), args.l2norm_eps);
    query_norm *= inverse_norm(lane_sum<8>(sums[1]), args.l2norm_eps);
  }
  const float key_query = lane_sum<8>(sums[2]);
  if (!live || threadIdx.x % 8 != 0) return;
  resolve_gates(args, hv, log_gate, beta);
  row.scalars = {expf(log_gate), beta, key_norm, query_norm};
  row.key_query = key_query;
  row.log_gate = log_gate;
}

// Adds the products of four keys and queries, in two chains each.
__device__ inline void add_products(const float* k, const float* q, float (&even)[3], float (&odd)[3]) {
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    even[0] = fmaf(k[n], k[n], even[0]), odd[0] = fmaf(k[n + 1], k[n + 1], odd[0]);
    even[1] = fmaf(q[n], q[n], even[1]), odd[1] = fmaf(q[n + 1], q[n + 1], odd[1]);
    even[2] = fmaf(k[n], q[n], even[2]), odd[2] = fmaf(k[n + 1], q[n + 1], odd[2]);
  }
}

// What was fetched into `row`.
template <int K, int Columns>
__device__ inline void deposit_node(const SerialArguments& args, const NodeAddress& at,
                                    const NodeInputs<K, Columns>& in, int hv, bool live, SerialRow<K, Columns>& row) {
  const int lane = threadIdx.x % 8;
  float k[K / 8], q[K / 8], v[Columns / 8], even[3]{}, odd[3]{};
  widen_fours(args.input_dtype, args.wide_keys, at.key, in.key, k);
  widen_fours(args.input_dtype, args.wide_keys, at.query, in.query, q);
  widen_fours(args.input_dtype, args.wide_values, at.value, in.value, v);
  if (live) {
    store_fours(&row.key[lane * 4], k);
    store_fours(&row.query[lane * 4], q);
    store_fours(&row.value[lane * 4], v);
  }
#pragma unroll
  for (int n = 0; n < K / 8; n += 4) add_products(k + n, q + n, even, odd);
  const float sums[3] = {even[0] + odd[0], even[1] + odd[1], even[2] + odd[2]};
  deposit_scalars(args, sums, in.gate[0], in.gate[1], hv, live, row);
}

// The same from memory, four keys at a time: where the state takes up the registers.
template <int K, int Columns>
__device__ inline void carry_node(const SerialArguments& args, const NodeAddress& at, int hv, bool live,
                                  SerialRow<K, Columns>& row) {
  const int lane = threadIdx.x % 8, bytes = args.input_dtype == CANOPY_F32 ? 4 : 2;
  float even[3]{}, odd[3]{};
#pragma unroll 1
  for (int n = 0; n < K; n += 32) {
    const float4 k = load_float4(args.input_dtype, at.key + n * bytes, 0, args.wide_keys);
    const float4 q = load_float4(args.input_dtype, at.query + n * bytes, 0, args.wide_keys);
    const float keys[4] = {k.x, k.y, k.z, k.w}, queries[4] = {q.x, q.y, q.z, q.w};
    add_products(keys, queries, even, odd);
    if (live) {
      *reinterpret_cast<float4*>(&row.key[n + lane * 4]) = k;
      *reinterpret_cast<float4*>(&row.query[n + lane * 4]) = q;
    }
  }
#pragma unroll 1
  for (int n = 0; live && n < Columns; n += 32)
    *reinterpret_cast<float4*>(&row.value[n + lane * 4]) =
        load_float4(args.input_dtype, at.value + n * bytes, 0, args.wide_values);
  const float sums[3] = {even[0] + odd[0], even[1] + odd[1], even[2] + odd[2]};
  deposit_scalars(args, sums, lane == 0 ? load_float(at.gate, args.gate_dtype, 0) : 0,
                  lane == 0 ? load_float(at.beta, args.gate_dtype, 0) : 0, hv, live, row);
}

__device__ inline void store_one(char* at, int dtype, float x) {
  if (dtype == CANOPY_F32)
    *reinterpret_cast<float*>(at) = x;
  else
    *reinterpret_cast<unsigned short*>(at) = narrow(dtype, x);
}
// The same without a branch.
__device__ inline void store_straight(char* at, int dtype, float x) {
  const unsigned short halves = dtype == CANOPY_BF16 ? narrow(CANOPY_BF16, x) : narrow(CANOPY_F16, x);
  store_float_or_half(at, dtype == CANOPY_F32, x, halves);
}

// Rows of a malformed tree: NaN wherever a result was due.
template <int Columns, int Threads>
__device__ void poison_row(const SerialArguments& args, int b, int hv, int column0, int count) {
  const float nan = __uint_as_float(0x7fc00000u);
  for (int i = threadIdx.x; i < count * Columns; i += Threads) {
    const int t = i / Columns, column = column0 + i % Columns;
    store_one(args.o.at(b, t, hv) + column * (args.o_dtype == CANOPY_F32 ? 4 : 2), args.o_dtype, nan);
    if (args.u.data) store_one(args.u.at(b, t, hv) + column * 4, CANOPY_F32, nan);
    if (args.l.data && column == 0) store_one(args.l.at(b, t, hv), CANOPY_F32, nan);
  }
}

// A tile's place in memory: thread-private float4, so that the same thread reads back what it wrote.
template <int K, int C, int W>
__device__ inline void keep(const StateTile<K, C, W>& tile, float4* at) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; n += 4)
      at[(r * K / 32 + n / 4) * 32 * W + threadIdx.x] = {tile.s[r][n], tile.s[r][n + 1], tile.s[r][n + 2],
                                                         tile.s[r][n + 3]};
}
template <int K, int C, int W>
__device__ inline void recall(StateTile<K, C, W>& tile, const float4* at) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; n += 4) {
      const float4 four = at[(r * K / 32 + n / 4) * 32 * W + threadIdx.x];
      tile.s[r][n] = four.x, tile.s[r][n + 1] = four.y, tile.s[r][n + 2] = four.z, tile.s[r][n + 3] = four.w;
    }
}

// What a thread needs of a node besides the state.
template <int K, int Values>
struct NodeRow {
  float key[K / 8], query[K / 8];
  float4 scalars;
  float key_query, value[Values];
};

// What a node's products are multiplied by, where the registers hold S / decayed.
struct NodeFactors {
  float beta, query_norm, decayed_norm, key_query, onto;  // onto: an innovation to what the keys are added with
  template <int K, int Values>
  __device__ NodeFactors(const NodeRow<K, Values>& x, float decayed)
      : beta(x.scalars.y),
        query_norm(x.scalars.w),
        decayed_norm(decayed * x.scalars.z),
        key_query(x.scalars.z * x.key_query),
        onto(x.scalars.y * x.scalars.z * reciprocal_fast(decayed)) {}
};

// grid (V / (16 C), HV, B). `Early`: the next node's row is read while this one is worked on, and the next chunk's rows
// are on their way during a chunk: where few CTAs share a multiprocessor and registers are plenty.
template <int K, int C, int W, bool Early, bool Snapshot>
__global__ void __launch_bounds__(32 * W, Early ? 1 : tuning_of(CANOPY_THIS_ARCHITECTURE).serial_wide_ctas)
    serial_kernel(const __grid_constant__ SerialArguments args) {
  using Tile = StateTile<K, C, W>;
  constexpr int kThreads = 32 * W, kColumns = Tile::kColumns, kTileFours = K * kColumns / 4;
  std::uint8_t* const shared = dynamic_shared();
  using Shared = SerialShared<K, kColumns>;
  // threadIdx.y is 0, which the compiler does not know: with it in an address that all lanes share, the address is
  // worked out in ordinary registers. The uniform ones have several times the latency, and nothing here would hide it.
  Shared& sm = *reinterpret_cast<Shared*>(shared + 16 * threadIdx.y);
  float* const stack = reinterpret_cast<float*>(shared + sizeof(Shared));

  // Everything that needs no memory comes before the wait for the kernel before, where it costs nothing.
  const int column0 = blockIdx.x * kColumns, hv = blockIdx.y + threadIdx.y, b = blockIdx.z + threadIdx.y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = threadIdx.x / 8;
  const bool prepares = mine < kChunk;  // eight lanes for each row
  const int h = key_head_of(hv, args.key_heads_each);
  const bool whole = args.nodes <= kChunk;  // rows by node, fetched before the plan is known
  const auto address = [&](int node) { return NodeAddress(args, b, node, h, hv, column0); };
  // A lane without a node of its own takes the row's node 0, and deposits nothing.
  NodeAddress of_first = address(whole && mine < args.nodes ? mine : 0);
  std::int64_t of_column[C];  // within a slot
  const std::int64_t own_slot = b * args.state_slot;
#pragma unroll
  for (int r = 0; r < C; ++r) {
    of_column[r] = hv * args.state_head + (column0 + Tile::first_column() + r) * args.state_row + lane % 8 * 16;
    hold(of_column[r]);
  }
  hold(of_first.key), hold(of_first.query), hold(of_first.value), hold(of_first.gate), hold(of_first.beta);
  const DevicePlan* const plan_at = held(args.plans + b);
  const int fetched = fetch_parameters(args, warp);
  touch(fetched);
  begin_after_previous_kernel();
  const DevicePlan& plan = *plan_at;
  const int4 header = *reinterpret_cast<const int4*>(&plan);  // status, count, depth
  const auto usual_state = [&](std::int64_t in_pool, Tile& tile) {
    const char* at[C];
#pragma unroll
    for (int r = 0; r < C; ++r) at[r] = args.state + in_pool + of_column[r];
    if constexpr (Early)
      load_columns(at, tile);
    else
      send_columns<K, C, W>(at, stack);
  };
  Tile tile;
  NodeInputs<K, kColumns> ahead;
  // Where no slot has to come from memory first, the state is sent for first; else after the rows.
  const bool at_once = args.usual && !args.slot_index && b < args.slots;
  if (__builtin_expect(at_once, 1)) usual_state(own_slot, tile);
  std::int64_t slot = b;
  if (args.slot_index)
    slot = args.long_slots ? static_cast<const std::int64_t*>(args.slot_index)[b]
                           : static_cast<const std::int32_t*>(args.slot_index)[b];
  if (whole && prepares) fetch_node(args, of_first, ahead);
  const bool padding = args.slot_index && slot <= args.padding_slot;
  const bool placed_by_warp = args.nodes <= kWarpNodes;
  const bool in_pool = !padding && slot >= 0 && slot < args.slots;
  const HeadState head{args.state + slot * args.state_slot + hv * args.state_head, args.state_row, args.state_dtype,
                       args.state_vk, args.wide_state};
  if (__builtin_expect(in_pool && !at_once, 0)) {
    if (args.usual)
      usual_state(slot * args.state_slot, tile);
    else if constexpr (Early)
      load_tile(head, column0, stack, tile);
    else
      send_tile<K, C, W>(head, column0, stack);
  }
  const int count = header.y, status = header.x | (!padding && !in_pool ? CANOPY_ROW_BAD_SLOT : 0);
  if (args.row_status && blockIdx.x == 0 && hv == 0 && threadIdx.x == 0) args.row_status[b] = padding ? 0 : status;
  if (!in_pool || status || count == 0) {
    if (in_pool && status == CANOPY_ROW_BAD_TREE) poison_row<kColumns, kThreads>(args, b, hv, column0, count);
    return;
  }
  if (header.z + 1 == count) {
    walk_chain<kThreads>(count, sm.walk);
  } else if (placed_by_warp) {
    if (warp == W - 1)
      walk_of_warp(WalkRanks<1, 32>(plan, lane, args.nodes), header.z, count, !Snapshot, sm.heavy, sm.walk);
  } else {
    const WalkRanks<kNodes / kThreads, kThreads> ranks(plan, threadIdx.x, args.nodes);
    walk_of_block(ranks, header.z, count, !Snapshot, sm.scratch, sm.walk);
  }
  if (!whole) __syncthreads();
  if (!whole) {
    of_first = address(mine < count ? sm.walk[mine].node() : 0);
    if (prepares) fetch_node(args, of_first, ahead);
  }
  if (prepares) deposit_node(args, of_first, ahead, hv, mine < count, sm.rows[mine]);
  __syncthreads();
  if constexpr (Early) {
    to_slots(tile);
  } else {
    wait_for_all_copies();
    receive_tile(head, stack, tile);
    __syncthreads();  // the stack's first state lies where other warps' may still be
  }

  const std::int64_t cta = (std::int64_t{b} * args.heads_v + hv) * gridDim.x + blockIdx.x;
  float4* const own = args.memory + cta * (Snapshot ? args.nodes : args.deep_levels) * kTileFours;
  const auto level = [&](int i) {
    return i < args.shared_levels ? reinterpret_cast<float4*>(stack) + i * kTileFours
                                  : own + (i - args.shared_levels) * kTileFours;
  };
  // u of each column in every lane, or only of the own column, which the lanes then trade.
  constexpr int kValues = Early ? C : 1;
  const int column = Tile::column(0), o_bytes = args.o_dtype == CANOPY_F32 ? 4 : 2;
  const bool writes = lane % 8 < C;
  char* o = args.o.at(b, 0, hv) + (column0 + column) * o_bytes;
  char* u = args.u.data ? args.u.at(b, 0, hv) + (column0 + column) * 4 : nullptr;
  std::int64_t o_step = args.o.node, u_step = args.u.node;
  int o_dtype = args.o_dtype, writes_l = args.l.data && column0 == 0 && threadIdx.x == 0;
  // Worked out and fetched once, not at every node.
  hold(o), hold(u), hold(o_step), hold(u_step), hold(o_dtype), hold(writes_l);
  const bool plain_call = !u && !args.l.data;
  const auto read_scalars = [&](int row, NodeRow<K, kValues>& x) {
    x.scalars = sm.rows[row].scalars, x.key_query = sm.rows[row].key_query;
#pragma unroll
    for (int r = 0; r < kValues; ++r) x.value[r] = sm.rows[row].value[Tile::column(r)];
  };

  int current = -1, top = 0;  // position whose state is in the registers; states on the stack
  std::uint64_t kept = 0;     // their positions, a byte each, the top one lowest
  float c = 1;                // the state is c times the registers
  for (int first = 0; first < count; first += kChunk) {
    const int nodes = min(kChunk, count - first), next = first + kChunk + mine;
    if (Early && prepares && first + kChunk < count)
      fetch_node(args, address(sm.walk[min(next, count - 1)].node()), ahead);
    Stop stop = sm.walk[first], after = sm.walk[min(first + 1, count - 1)];
    int row = whole ? stop.node() : 0;
    NodeRow<K, kValues> x;
    read_keys(sm.rows[row].key, x.key), read_keys(sm.rows[row].query, x.query);
    read_scalars(row, x);
    const auto onto_columns = [](float onto, const float(&innovation)[kValues], float(&update)[C]) {
      if constexpr (Early) {
#pragma unroll
        for (int r = 0; r < C; ++r) update[r] = onto * innovation[r];
      } else {
        spread<C>(onto * innovation[0], update);
      }
    };
    // The usual step, without a branch: an only child that is no leaf, no scaling, nothing stored but o.
    const auto straight = [&](int i, float decayed) {
      const int position = first + i;
      float recalled[C], asked[C], innovation[kValues], update[C];
      dot(tile, x.key, recalled);
      const Stop later = sm.walk[min(position + 2, count - 1)];
      const int row_after = i + 1 == nodes ? row : whole ? after.node() : i + 1;
      NodeRow<K, kValues> coming;
      if constexpr (Early) {
        read_keys(sm.rows[row_after].key, coming.key), read_scalars(row_after, coming);
        sum_lanes_of_each<C>(recalled);
      } else {
        sum_lanes<C>(recalled);
      }
      dot(tile, x.query, asked);
      const NodeFactors by(x, decayed);
      read_keys(sm.rows[row_after].query, x.query);
#pragma unroll
      for (int r = 0; r < kValues; ++r) innovation[r] = fmaf(-by.decayed_norm, recalled[r], x.value[r]);
      sum_lanes<C>(asked);
      onto_columns(by.onto, innovation, update);
      add_outer(tile, x.key, update);
      store_straight(o + stop.node() * o_step, o_dtype,
                     by.query_norm * fmaf(by.beta * innovation[0], by.key_query, decayed * asked[0]));
      if constexpr (Early) {
#pragma unroll
        for (int n = 0; n < K / 8; ++n) x.key[n] = coming.key[n];
        x.scalars = coming.scalars, x.key_query = coming.key_query;
#pragma unroll
        for (int r = 0; r < kValues; ++r) x.value[r] = coming.value[r];
      } else {
        read_keys(sm.rows[row_after].key, x.key), read_scalars(row_after, x);
      }
      c = decayed, current = position, row = row_after, stop = after, after = later;
    };
    const auto step = [&](int i) {
      if constexpr (!Snapshot) {
        const float decayed = c * x.scalars.x;
        if (stop.plain() && plain_call && decayed >= 1 / kMostScaled && decayed <= kMostScaled)
          return straight(i, decayed);
      }
      const int parent = stop.parent(), position = first + i;
      const bool leaf = !Snapshot && stop.leaf();
      if constexpr (Snapshot) {
        if (parent >= 0) recall(tile, own + parent * kTileFours);
      } else if (!stop.only()) {
        const bool waiting = top > 0 && static_cast<int>(kept & 255) == parent;
        if (current != parent) {
          recall(tile, level(top - 1));
          c = sm.level_scale[warp][top - 1];
        }
        if (stop.last() && waiting) {
          kept >>= 8, --top;
        } else if (!stop.last() && !leaf && !waiting) {
          keep(tile, level(top));
          __syncwarp();  // another state's c at this level may still be read
          if (lane == 0) sm.level_scale[warp][top] = c;
          __syncwarp();
          kept = kept << 8 | parent, ++top;
        }
      }
      float decayed = c * x.scalars.x;  // the node's c. A leaf's state is not needed, its parent's may be.
      if (Snapshot || (!leaf && !(decayed >= 1 / kMostScaled && decayed <= kMostScaled))) {
        scale_tile(tile, decayed);
        decayed = 1;
      }
      float recalled[C], asked[C];
      dot(tile, x.key, recalled);
      const Stop later = sm.walk[min(position + 2, count - 1)];
      const int row_after = i + 1 == nodes ? row : whole ? after.node() : i + 1;
      if constexpr (Early)
        sum_lanes_of_each<C>(recalled);
      else
        sum_lanes<C>(recalled);
      dot(tile, x.query, asked);
      const NodeFactors by(x, decayed);
      float innovation[kValues], update[C];
#pragma unroll
      for (int r = 0; r < kValues; ++r) innovation[r] = fmaf(-by.decayed_norm, recalled[r], x.value[r]);
      read_keys(sm.rows[row_after].query, x.query);
      NodeRow<K, kValues> coming;
      if constexpr (Early) read_keys(sm.rows[row_after].key, coming.key);
      read_scalars(row_after, x);
      sum_lanes<C>(asked);
      onto_columns(by.onto, innovation, update);
      if (!leaf) add_outer(tile, x.key, update);
      const float own_u = by.beta * innovation[0];
      if (writes) {
        store_one(o + stop.node() * o_step, o_dtype, by.query_norm * fmaf(own_u, by.key_query, decayed * asked[0]));
        if (__builtin_expect(u != nullptr, 0)) store_one(u + stop.node() * u_step, CANOPY_F32, own_u);
      }
      if (writes_l) {  // E2
        const TwoFloat<float> l = add(parent >= 0 ? sm.l[parent] : TwoFloat<float>{}, sm.rows[row].log_gate);
        sm.l[position] = l;
        store_one(args.l.at(b, stop.node(), hv), CANOPY_F32, l.hi + l.lo);
      }
      if constexpr (Early) {
#pragma unroll
        for (int n = 0; n < K / 8; ++n) x.key[n] = coming.key[n];
      } else {
        read_keys(sm.rows[row_after].key, x.key);
      }
      if constexpr (Snapshot) keep(tile, own + position * kTileFours);
      if (!leaf) c = decayed;
      current = leaf ? parent : position;
      row = row_after, stop = after, after = later;
    };
#pragma unroll 1
    for (int i = 0; i < nodes; ++i) step(i);
    if (first + kChunk >= count) break;
    __syncthreads();
    const NodeAddress of_next = address(sm.walk[min(next, count - 1)].node());
    if (prepares) {
      if constexpr (Early)
        deposit_node(args, of_next, ahead, hv, next < count, sm.rows[mine]);
      else
        carry_node(args, of_next, hv, next < count, sm.rows[mine]);
    }
    __syncthreads();
  }
}

}  // namespace canopy::cuda
