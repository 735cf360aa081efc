// The tree convolution (E9) and its commit.
//
// Purpose     y[b,t,c] = bias[c] + sum over taps j of weight[c,j] * input j of node t's window, and SiLU on request,
//             for all nodes of all trees in one launch. The window is the node's root path; past the root it goes on
//             in the committed window of the slot.
// Precision   fp32, one fused multiply-add a tap, the oldest first: the bits of the serial definition. SiLU in fp32.
// Tensors     x [B,T,C], o [B,T,C], weight [C,W], bias [C], state [slots,C,W-1]: any strides, channels of x and o
//             contiguous; 16 bytes at a time where their rows are aligned to that, else element by element.
// A CTA       has kConvBytes' worth of channels of a sequence, their weights in registers:
//             1. rows of x by cp.async into shared memory, as they are and in the order of the nodes, in groups of as
//                many as the CTA has threads for, kConvAhead groups ahead: each byte of x is read once, though up to
//                W nodes use it. Behind them the committed window, as W-1 rows more; if it is of another type, in fp32.
//             2. meanwhile a table of where the rows of each node's taps lie, from the plan.
//             3. nodes in their order, 8 lanes a node. Ancestors come before their descendants, so the work begins when
//                the first group is there and goes on while others are on their way.
// Shared      144 T + 1.4 K bytes: at most 38 KB.
// Bad rows    a malformed tree's outputs are NaN; padding rows and other flagged rows are left as they are.
#pragma once

#include <type_traits>

#include "conv_rows.hpp"
#include "cuda/dependent.cuh"
#include "cuda/plan.cuh"
#include "cuda/row.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

inline constexpr int kConvLanes = 8, kConvBytes = 16 * kConvLanes;  // of a node in a CTA
inline constexpr int kMostConvThreads = 256;
inline constexpr int kConvAhead = 4;  // groups of rows on their way

// Which tensors have rows that 16 bytes of x fit (`o`: as many elements), and whether weights and bias lie without
// gaps, in the 16-bit type of x.
enum : int { kConvWideX = 1, kConvWideO = 2, kConvPackedWeight = 4, kConvPackedBias = 8 };

template <class Input>
inline constexpr int kConvEach = 16 / static_cast<int>(sizeof(Input));  // channels a thread

template <class Input, int W>
struct alignas(16) ConvShared {
  static constexpr int kChannels = kConvLanes * kConvEach<Input>;
  alignas(16) std::uint8_t order[kNodes];  // of the plan
  float window[W - 1][kChannels];          // where its type is not Input
  uint4 x[W - 1][kConvLanes];              // [T + W - 1][lane], dynamic: by node, then the window
};
// Behind it, by node: where the rows of its taps begin, in bytes, the oldest first.
using ConvTaps = uint4;
// An element's bits, so that the load does not wait for the conversion.
__device__ __forceinline__ std::uint32_t load_bits(const Tensor& from, std::int64_t at) {
  return from.dtype == CANOPY_F32 ? static_cast<const std::uint32_t*>(from.data)[at]
                                  : static_cast<const std::uint16_t*>(from.data)[at];
}
__device__ __forceinline__ float from_bits(int dtype, std::uint32_t bits) {
  if (dtype == CANOPY_F32) return __uint_as_float(bits);
  if (dtype == CANOPY_BF16) return __uint_as_float(bits << 16);
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ __forceinline__ std::uint32_t to_bits(int dtype, float value) {
  if (dtype == CANOPY_F32) return __float_as_uint(value);
  if (dtype == CANOPY_BF16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ void store_bits(const Tensor& to, std::int64_t at, std::uint32_t bits) {
  if (to.dtype == CANOPY_F32)
    static_cast<std::uint32_t*>(to.data)[at] = bits;
  else
    static_cast<std::uint16_t*>(to.data)[at] = static_cast<std::uint16_t>(bits);
}

// 16 bytes of Input as fp32, and back.
template <class Input, int N = kConvEach<Input>>
__device__ __forceinline__ void widen_16(uint4 bits, float (&out)[N]) {
  const std::uint32_t words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<Input, float>) {
      out[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<Input, __nv_bfloat16>) {
      out[2 * i] = __uint_as_float(words[i] << 16), out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      out[2 * i] = pair.x, out[2 * i + 1] = pair.y;
    }
  }
}
template <class Input, int N = kConvEach<Input>>
__device__ __forceinline__ uint4 narrow_16(const float (&in)[N]) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<Input, float>) {
      words[i] = __float_as_uint(in[i]);
    } else if constexpr (std::is_same_v<Input, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    } else {
      const __half2 pair = __floats2half2_rn(in[2 * i], in[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// y / (1 + exp(-y)) by the approximations of the special function unit: five instructions, within 3e-7 of |y|. exp
// overflows to infinity and its reciprocal is 0, as it should be.
__device__ __forceinline__ float silu(float y) {
  return y * reciprocal_fast(1.0f + exp2_fast(y * -1.44269504088896341f));
}

template <int N>
__device__ __forceinline__ void read_floats(const float* from, float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
  }
}

// A thread's weights or bias as they lie in memory when they are packed, so that other loads need not wait for them.
template <class Input, int kNumbers>
struct alignas(kNumbers % 8 == 0 ? 16 : 8) Packed {
  std::uint32_t word[kNumbers / 2];
  __device__ __forceinline__ float operator[](int i) const {
    constexpr int dtype = std::is_same_v<Input, __nv_bfloat16> ? CANOPY_BF16 : CANOPY_F16;
    return from_bits(dtype, word[i / 2] >> (16 * (i % 2)) & 0xffff);
  }
};

// The committed window of a slot: every load before the first store. For 64 threads or more.
inline constexpr int kLeastConvThreads = 64;

template <class Input, int W, bool kMixed>
__device__ __forceinline__ void load_window(const ConvProblem& p, std::int64_t slot, int first,
                                            ConvShared<Input, W>& sm) {
  constexpr int kChannels = ConvShared<Input, W>::kChannels, kEach = ((W - 1) * kChannels + 63) / kLeastConvThreads;
  const Tensor& pool = p.state;
  const int channels = min(kChannels, p.channels - first);
  const std::int64_t origin = slot * pool.stride[1] + first * pool.stride[2];
  std::uint32_t bits[kEach] = {};
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = threadIdx.x + k * blockDim.x, c = i / (W - 1), tap = i % (W - 1);
    if (c < channels) {
      const std::int64_t at = origin + c * pool.stride[2] + tap * pool.stride[3];
      bits[k] = kMixed || sizeof(Input) == 4 ? load_bits(pool, at) : static_cast<const std::uint16_t*>(pool.data)[at];
    }
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = threadIdx.x + k * blockDim.x, c = i / (W - 1), tap = i % (W - 1);
    if (c >= kChannels) continue;
    if constexpr (kMixed)
      sm.window[tap][c] = from_bits(pool.dtype, bits[k]);
    else if constexpr (sizeof(Input) == 4)
      reinterpret_cast<float*>(sm.x[p.nodes + tap])[c] = from_bits(pool.dtype, bits[k]);  // exact
    else
      reinterpret_cast<std::uint16_t*>(sm.x[p.nodes + tap])[c] = static_cast<std::uint16_t>(bits[k]);
  }
}

// This thread's channels of one node: `y` in the type of o.
template <class Input, int N = kConvEach<Input>>
__device__ __forceinline__ void store_outputs(const ConvVerifyParams& params, std::int64_t row, int channel, bool wide,
                                              const float (&y)[N]) {
  const Tensor& o = params.o;
  if (wide) {
    if (o.dtype == CANOPY_F32) {
#pragma unroll
      for (int i = 0; i < N; i += 4)
        *reinterpret_cast<float4*>(static_cast<float*>(o.data) + row + channel + i) = {y[i], y[i + 1], y[i + 2],
                                                                                       y[i + 3]};
    } else {
      *reinterpret_cast<uint4*>(static_cast<Input*>(o.data) + row + channel) = narrow_16<Input>(y);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (channel + i < params.problem.channels) store_bits(o, row + channel + i, to_bits(o.dtype, y[i]));
}

// kMixed: the window is of another type than x, and does not fit among its rows.
template <class Input, int W, bool kMixed>
__global__ void __launch_bounds__(kMostConvThreads, tuning_of(CANOPY_THIS_ARCHITECTURE).conv_ctas)
    conv_kernel(const __grid_constant__ ConvVerifyParams params, const DevicePlan* plans, int layout) {
  using Shared = ConvShared<Input, W>;
  constexpr int N = kConvEach<Input>;
  std::uint8_t* const shared = dynamic_shared();
  Shared& sm = *reinterpret_cast<Shared*>(shared);
  touch(fetch_parameters(params, threadIdx.x / 32));
  begin_after_previous_kernel();
  const ConvProblem& p = params.problem;
  const Tensor &weights = params.weight, &biases = params.bias;
  ConvTaps* const taps = reinterpret_cast<ConvTaps*>(shared + sizeof(Shared) + p.nodes * kConvBytes);
  const int b = blockIdx.y, first = blockIdx.x * Shared::kChannels;
  const int lane = threadIdx.x % kConvLanes, row = threadIdx.x / kConvLanes, rows = blockDim.x / kConvLanes;
  const int channel = first + lane * N;
  const bool all_channels = channel + N <= p.channels;
  const bool wide_x = (layout & kConvWideX) && all_channels, wide_o = (layout & kConvWideO) && all_channels;

  using Weights = Packed<Input, W * N>;
  using Bias = Packed<Input, N>;
  Weights packed{};
  Bias packed_bias{};
  const bool is_packed = sizeof(Input) == 2 && (layout & kConvPackedWeight) && all_channels,
             bias_is_packed = sizeof(Input) == 2 && (layout & kConvPackedBias) && all_channels;
  if (is_packed)
    packed = *reinterpret_cast<const Weights*>(static_cast<const std::uint16_t*>(weights.data) + channel * W);
  if (bias_is_packed)
    packed_bias = *reinterpret_cast<const Bias*>(static_cast<const std::uint16_t*>(biases.data) + channel);

  // Asked for before the answer how many rows there are: the plan, and the first groups of rows, of T if need be.
  const DevicePlan& plan = plans[b];
  const std::int64_t slot = device_slot(p, p.slot_index, b);
  const int count = plan.count, plan_status = plan.status;
  const std::uint32_t up = threadIdx.x < p.nodes ? *reinterpret_cast<const std::uint32_t*>(plan.up[threadIdx.x]) : 0;
  if (threadIdx.x < kNodes / 16) copy_async<16>(&sm.order[16 * threadIdx.x], &plan.order[16 * threadIdx.x]);
  end_copies();

  // Rows of x, in groups of as many as the CTA has threads for.
  int sent = row;
  const std::int64_t step = rows * p.x.stride[2];
  const Input* from = static_cast<const Input*>(p.x.data) + b * p.x.stride[1] + row * p.x.stride[2] + channel;
  const auto send = [&](int end) {
    if (sent < end) {
      if (wide_x) {
        copy_async<16>(&sm.x[sent][lane], from);
      } else {
        Input each[N];
#pragma unroll
        for (int i = 0; i < N; ++i) each[i] = channel + i < p.channels ? from[i] : Input{};
        sm.x[sent][lane] = *reinterpret_cast<const uint4*>(each);
      }
    }
    sent += rows, from += step;
    end_copies();
  };
#pragma unroll 1
  for (int i = 0; i < kConvAhead; ++i) send(p.nodes);

  const int status = slot < 0 ? 0 : plan_status | (slot >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (params.row_status && blockIdx.x == 0 && threadIdx.x == 0) params.row_status[b] = status;
  const std::int64_t out = b * params.o.stride[1];
  if (status == CANOPY_ROW_BAD_TREE) {
    float nan[N];
#pragma unroll
    for (float& x : nan) x = __int_as_float(0x7fc00000);
    for (int node = row; node < count; node += rows)
      store_outputs<Input>(params, out + node * params.o.stride[2], channel, wide_o, nan);
  }
  if (slot < 0 || status) return wait_for_all_copies();
  load_window<Input, W, kMixed>(p, slot, first, sm);

  // Once for each, not once a number: every thread does this, for all of its few nodes.
  float weight[W][N], start[N] = {};
  if (is_packed) {
#pragma unroll
    for (int i = 0; i < W * N; ++i) weight[i % W][i / W] = packed[i];
  } else {
#pragma unroll
    for (int i = 0; i < W * N; ++i)
      weight[i % W][i / W] = channel + i / W < p.channels
                                 ? load_float(weights.data, weights.dtype,
                                              (channel + i / W) * weights.stride[1] + i % W * weights.stride[2])
                                 : 0.0f;
  }
  if (bias_is_packed) {
#pragma unroll
    for (int i = 0; i < N; ++i) start[i] = packed_bias[i];
  } else if (biases.data) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (channel + i < p.channels) start[i] = load_float(biases.data, biases.dtype, (channel + i) * biases.stride[1]);
  }

  wait_for_copies<kConvAhead>();
  __syncthreads();  // the order
  for (int rank = threadIdx.x; rank < count; rank += blockDim.x) {
    const std::uint32_t above =
        rank == static_cast<int>(threadIdx.x) ? up : *reinterpret_cast<const std::uint32_t*>(plan.up[rank]);
    std::uint32_t at[kConvTaps] = {};
    int outside = 0;
#pragma unroll
    for (int back = 1; back < W; ++back) {
      const int ancestor = above >> (8 * (back - 1)) & 255;
      const bool past = outside || ancestor == kNone;
      at[W - 1 - back] = past ? p.nodes + W - 2 - outside : static_cast<int>(sm.order[ancestor]);
      outside += past;
    }
    const int node = at[W - 1] = sm.order[rank];
    taps[node] = {at[0] * kConvBytes, at[1] * kConvBytes, at[2] * kConvBytes, at[3] * kConvBytes};
  }

  const std::uint8_t* const mine = reinterpret_cast<const std::uint8_t*>(sm.x[0] + lane);
#pragma unroll 1
  for (int node = row; node - row < count; node += rows) {
    wait_for_copies<kConvAhead - 1>();
    __syncthreads();  // these rows, and at first the table and the window
    send(count);
    if (node >= count) continue;
    const ConvTaps begins = taps[node];
    const std::uint32_t at[] = {begins.x, begins.y, begins.z, begins.w};
    float y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = start[i];
#pragma unroll
    for (int j = 0; j < W; ++j) {
      float input[N];
      if (kMixed && at[j] >= static_cast<std::uint32_t>(p.nodes) * kConvBytes)
        read_floats(&sm.window[at[j] / kConvBytes - p.nodes][lane * N], input);
      else
        widen_16<Input>(*reinterpret_cast<const uint4*>(mine + at[j]), input);
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] = fmaf(weight[j][i], input[i], y[i]);
    }
    if (params.silu) {
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] = silu(y[i]);
    }
    store_outputs<Input>(params, out + node * params.o.stride[2], channel, wide_o, y);
  }
}

// ---- commit ------------------------------------------------------------------------------------------------------
inline constexpr int kConvCommitChannels = 128;  // a CTA, as many threads
inline constexpr int kConvCommitLayers = 4;      // whose inputs are on their way together

// The windows after the accepted nodes, every layer in one launch: a CTA has some channels of a sequence, and every
// gridDim.z-th layer. All of a channel is read before any of it is written, since a destination may be the source.
// kTargets: 2 where there are track slots.
template <int W, int kTargets>
__global__ void __launch_bounds__(kConvCommitChannels)
    conv_commit_kernel(const __grid_constant__ ConvCommitParams params, const DevicePlan* plans) {
  constexpr int kWindow = W - 1;
  __shared__ __align__(16) std::uint8_t order[kNodes], parent[kNodes], rank[kNodes];
  touch(fetch_parameters(params, threadIdx.x / 32));
  begin_after_previous_kernel();
  const ConvProblem& p = params.problem;
  const int b = blockIdx.y, first = blockIdx.x * kConvCommitChannels;
  const DevicePlan& plan = plans[b];
  if (threadIdx.x < kNodes / 16) {
    copy_async<16>(&order[16 * threadIdx.x], &plan.order[16 * threadIdx.x]);
    copy_async<16>(&parent[16 * threadIdx.x], &plan.parent[16 * threadIdx.x]);
    copy_async<16>(&rank[16 * threadIdx.x], &plan.rank[16 * threadIdx.x]);
  }
  const std::int64_t source = device_slot(p, p.slot_index, b);
  const auto live = [&](const std::int32_t* leaf) { return leaf && leaf[b] >= 0 && leaf[b] < plan.count; };
  int status = source < 0 ? 0 : plan.status | (source >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  const bool accepted = source >= 0 && status == 0 && live(params.leaf);
  const bool tracked = kTargets == 2 && accepted && live(params.track_leaf);
  const std::int64_t slot[2] = {params.dst_slot ? device_slot(p, params.dst_slot, b) : source,
                                tracked ? device_slot(p, params.track_slot, b) : -1};
  if (accepted && (slot[0] >= p.slots || slot[1] >= p.slots || (slot[1] >= 0 && slot[1] == slot[0])))
    status |= CANOPY_ROW_BAD_SLOT;
  if (params.row_status && blockIdx.x == 0 && blockIdx.z == 0 && threadIdx.x == 0) params.row_status[b] = status;
  wait_for_all_copies();
  __syncthreads();
  if (!accepted || status) return;

  // This thread's entries of the windows in the order in which they lie in memory: taps of a channel side by side, or
  // channels of a tap. Offsets in elements, without the layer's.
  struct Entry {
    std::int64_t from, to;
    bool on, node;  // of x, not of the old window
  } entries[kTargets][kWindow];
  const bool by_tap = p.state.stride[2] == 1 && p.state.stride[3] != 1;
#pragma unroll
  for (int which = 0; which < kTargets; ++which) {
    const int leaf = slot[which] < 0 ? 0 : which == 0 ? params.leaf[b] : params.track_leaf[b];
#pragma unroll
    for (int k = 0; k < kWindow; ++k) {
      const int i = threadIdx.x + k * kConvCommitChannels;
      const int tap = by_tap ? i / kConvCommitChannels : i % kWindow;
      const int channel = first + (by_tap ? i % kConvCommitChannels : i / kWindow);
      int at = rank[leaf], back = kWindow - 1 - tap;  // steps up from the leaf
      while (back > 0 && parent[at] != kNone) at = parent[at], --back;
      Entry& e = entries[which][k];
      e.on = slot[which] >= 0 && channel < p.channels;
      e.node = back == 0;
      e.from = e.node ? b * p.x.stride[1] + order[at] * p.x.stride[2] + channel
                      : source * p.state.stride[1] + channel * p.state.stride[2] + (kWindow - back) * p.state.stride[3];
      e.to = slot[which] * p.state.stride[1] + channel * p.state.stride[2] + tap * p.state.stride[3];
    }
  }
  const bool same_type = p.x.dtype == p.state.dtype;
#pragma unroll 1
  for (int layer0 = blockIdx.z; layer0 < params.layers; layer0 += gridDim.z * kConvCommitLayers) {
    std::uint32_t bits[kConvCommitLayers][kTargets][kWindow];
    const auto walk = [&](auto visit) {
#pragma unroll
      for (int l = 0; l < kConvCommitLayers; ++l) {
        const std::int64_t layer = layer0 + l * gridDim.z;
        if (layer >= params.layers) continue;
#pragma unroll
        for (int which = 0; which < kTargets; ++which) {
#pragma unroll
          for (int k = 0; k < kWindow; ++k)
            if (entries[which][k].on) visit(layer, entries[which][k], bits[l][which][k]);
        }
      }
    };
    walk([&](std::int64_t layer, const Entry& e, std::uint32_t& value) {
      const Tensor& from = e.node ? p.x : p.state;
      value = load_bits(from, layer * from.stride[0] + e.from);
      if (!same_type && e.node) value = to_bits(p.state.dtype, from_bits(p.x.dtype, value));
    });
    __syncthreads();
    walk([&](std::int64_t layer, const Entry& e, std::uint32_t& value) {
      store_bits(p.state, layer * p.state.stride[0] + e.to, value);
    });
  }
}

}  // namespace canopy::cuda
