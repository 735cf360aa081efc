// The tree convolution (E9), any type and layout; conv_usual.cuh is for what models have.
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

#include "cuda/conv_rows.cuh"
#include "cuda/dependent.cuh"
#include "cuda/row.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

inline constexpr int kConvAhead = 4;  // groups of rows on their way

// Which tensors have rows that 16 bytes of x fit (`o`: as many elements), and whether weights and bias lie without
// gaps, in the 16-bit type of x.
enum : int { kConvWideX = 1, kConvWideO = 2, kConvPackedWeight = 4, kConvPackedBias = 8 };

template <class Input, int W>
struct alignas(16) ConvShared {
  static constexpr int kChannels = kConvLanes * kConvEach<Input>;
  alignas(16) std::uint8_t order[kNodes];  // of the plan
  float window[W - 1][kChannels];          // where its type is not Input
  uint4 x[W - 1][kConvLanes];              // [T + W - 1][lane], dynamic: by node, then the window
};
template <int N>
__device__ __forceinline__ void read_floats(const float* from, float (&out)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
  }
}

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
  make_taps<W>(taps, sm.order, plan, up, count, p.nodes);

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
    if (params.silu) silu(y);
    store_outputs<Input>(params, out + node * params.o.stride[2], channel, wide_o, y);
  }
}

}  // namespace canopy::cuda
