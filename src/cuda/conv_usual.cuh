// The tree convolution (E9) where everything lies as models have it: x, o, weights, bias and state of one 16-bit type,
// rows on 16 bytes, weights and bias without gaps, whole slabs of channels. conv.cuh takes the rest; the bits before
// SiLU are the same, and so is the idea: rows of x pass through shared memory once, 8 lanes work on a node.
//
// What differs  No branch by type or layout, and a thread works on several nodes side by side, since what many CTAs
//               wait for is instructions: at B = 16, T = 64 a scheduler issues one in 53% of its cycles (H200).
// A CTA         is one warp where CTAs are many: all of them have a place on the GPU at once, nothing meets at a
//               barrier, and a thread's weights serve the most nodes. Where they are few it has up to 256 threads.
// Chunks        rows come in chunks of as many as a thread works on at once, kAhead chunks ahead. Not more: so stores
//               of the first nodes share the memory's time with loads of the last; asked for all at once, every
//               CTA's loads come first and its stores last, which took 2 us longer there (cold).
// Shared        256 + 144 T + 384 bytes.
#pragma once

#include "cuda/conv_rows.cuh"
#include "cuda/dependent.cuh"
#include "cuda/row.cuh"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

inline constexpr int kUsualConvChannels = kConvLanes * kConvEach<__half>;  // of a CTA
template <int W>
constexpr std::size_t usual_conv_bytes(int nodes) {
  return kNodes + (nodes + W - 1) * kConvBytes + nodes * sizeof(ConvTaps);
}

template <int kThreads>
__device__ __forceinline__ void meet_all() {
  if constexpr (kThreads == 32)
    __syncwarp();
  else
    __syncthreads();
}

// The committed window of a slot as rows of x, a channel (kThreads = 32: two) to a thread of 64.
template <int W, int kThreads>
__device__ __forceinline__ void load_usual_window(std::uint8_t* rows, const ConvProblem& p, std::int64_t slot,
                                                  int first) {
  constexpr int kEach = kThreads == 32 ? 2 : 1;
  if (kThreads > kUsualConvChannels && threadIdx.x >= kUsualConvChannels) return;
  const auto* const from = static_cast<const std::uint16_t*>(p.state.data) + slot * p.state.stride[1] +
                           (first + static_cast<int>(threadIdx.x)) * p.state.stride[2];
  std::uint16_t bits[kEach][W - 1];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int tap = 0; tap < W - 1; ++tap) bits[i][tap] = from[32 * i * p.state.stride[2] + tap * p.state.stride[3]];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int tap = 0; tap < W - 1; ++tap)
      reinterpret_cast<std::uint16_t*>(rows + tap * kConvBytes)[threadIdx.x + 32 * i] = bits[i][tap];
}

template <class Input, int W, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == 32 ? tuning_of(CANOPY_THIS_ARCHITECTURE).conv_warp_ctas
                                                           : tuning_of(CANOPY_THIS_ARCHITECTURE).conv_ctas)
    usual_conv_kernel(const __grid_constant__ ConvVerifyParams params, const DevicePlan* plans) {
  constexpr int N = kConvEach<Input>, kNodesEach = kThreads == 32 ? 4 : 2, kAhead = kThreads == 32 ? 1 : 2;
  touch(fetch_parameters(params, threadIdx.x / 32));
  begin_after_previous_kernel();
  const ConvProblem& p = params.problem;
  const int rows = kThreads == 32 ? 32 / kConvLanes : blockDim.x / kConvLanes, chunk_rows = kNodesEach * rows;
  std::uint8_t* const order = dynamic_shared();  // [kNodes], of the plan
  std::uint8_t* const x = order + kNodes;        // [T + W - 1][kConvBytes]: by node, then the window
  ConvTaps* const taps = reinterpret_cast<ConvTaps*>(x + (p.nodes + W - 1) * kConvBytes);  // [T]
  const int b = blockIdx.y, first = blockIdx.x * kUsualConvChannels;
  const int lane = threadIdx.x % kConvLanes, row = threadIdx.x / kConvLanes, channel = first + lane * N;

  // Asked for before the answer how many rows there are: weights, the plan, and the first chunks, of T if need be.
  const auto packed = *reinterpret_cast<const Packed<Input, W * N>*>(
      static_cast<const std::uint16_t*>(params.weight.data) + channel * W);
  Packed<Input, N> packed_bias{};
  if (params.bias.data)
    packed_bias =
        *reinterpret_cast<const Packed<Input, N>*>(static_cast<const std::uint16_t*>(params.bias.data) + channel);
  const DevicePlan& plan = plans[b];
  const std::int64_t slot = device_slot(p, p.slot_index, b);
  const int count = plan.count, plan_status = plan.status;
  const std::uint32_t up = threadIdx.x < p.nodes ? *reinterpret_cast<const std::uint32_t*>(plan.up[threadIdx.x]) : 0;
  if (threadIdx.x < kNodes / 16) copy_async<16>(order + 16 * threadIdx.x, &plan.order[16 * threadIdx.x]);
  end_copies();

  std::uint8_t* const mine = x + 16 * lane;
  const Input* from = static_cast<const Input*>(p.x.data) + b * p.x.stride[1] + row * p.x.stride[2] + channel;
  const std::int64_t step = rows * p.x.stride[2];
  int sent = row;
  const auto send_chunk = [&](int end) {
#pragma unroll
    for (int i = 0; i < kNodesEach; ++i) {
      if (sent < end) copy_async<16>(mine + sent * kConvBytes, from);
      sent += rows, from += step;
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i * chunk_rows < p.nodes) send_chunk(p.nodes);
    end_copies();
  }

  const int status = slot < 0 ? 0 : plan_status | (slot >= p.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (params.row_status && blockIdx.x == 0 && threadIdx.x == 0) params.row_status[b] = status;
  Input* out = static_cast<Input*>(params.o.data) + b * params.o.stride[1] + row * params.o.stride[2] + channel;
  const std::int64_t out_step = rows * params.o.stride[2];
  if (slot < 0 || status) {
    if (status == CANOPY_ROW_BAD_TREE) {
      float nan[N];
#pragma unroll
      for (float& y : nan) y = __int_as_float(0x7fc00000);
#pragma unroll 1
      for (int node = row; node < count; node += rows, out += out_step)
        *reinterpret_cast<uint4*>(out) = narrow_16<Input>(nan);
    }
    return wait_for_all_copies();
  }
  load_usual_window<W, kThreads>(x + p.nodes * kConvBytes, p, slot, first);
  wait_for_copies<kAhead>();
  meet_all<kThreads>();  // the order
  make_taps<W>(taps, order, plan, up, count, p.nodes);
  float weight[W][N], bias[N];
#pragma unroll
  for (int i = 0; i < W * N; ++i) weight[i % W][i / W] = packed[i];
#pragma unroll
  for (int i = 0; i < N; ++i) bias[i] = packed_bias[i];

  const auto work_on = [&](auto how_many, int node) {  // node, node + rows, ...
    constexpr int kMany = decltype(how_many)::value;
    std::uint32_t at[kMany][kConvTaps];
    float y[kMany][N];
#pragma unroll
    for (int m = 0; m < kMany; ++m) {
      const ConvTaps begins = taps[kMany == 1 ? node : min(node + m * rows, count - 1)];
      at[m][0] = begins.x, at[m][1] = begins.y, at[m][2] = begins.z, at[m][3] = begins.w;
#pragma unroll
      for (int i = 0; i < N; ++i) y[m][i] = bias[i];
    }
#pragma unroll
    for (int j = 0; j < W; ++j) {
#pragma unroll
      for (int m = 0; m < kMany; ++m) {
        float input[N];
        widen_16<Input>(*reinterpret_cast<const uint4*>(mine + at[m][j]), input);
#pragma unroll
        for (int i = 0; i < N; ++i) y[m][i] = fmaf(weight[j][i], input[i], y[m][i]);
      }
    }
    if (params.silu) {
#pragma unroll
      for (int m = 0; m < kMany; ++m) silu(y[m]);
    }
#pragma unroll
    for (int m = 0; m < kMany; ++m)
      if (m == 0 || node + m * rows < count) *reinterpret_cast<uint4*>(out + m * out_step) = narrow_16<Input>(y[m]);
  };
#pragma unroll 1
  for (int chunk = 0; chunk < count; chunk += chunk_rows, out += kNodesEach * out_step) {
    wait_for_copies<kAhead - 1>();
    meet_all<kThreads>();  // these rows, and at first the table and the window
    if (chunk + kAhead * chunk_rows < count) send_chunk(count);
    end_copies();
    const int node = chunk + row;
    if (node >= count) continue;
    if (kNodesEach > 2 && chunk + 2 * rows < count)
      work_on(std::integral_constant<int, kNodesEach>(), node);
    else if (chunk + rows < count)
      work_on(std::integral_constant<int, 2>(), node);
    else
      work_on(std::integral_constant<int, 1>(), node);
  }
}

}  // namespace canopy::cuda
