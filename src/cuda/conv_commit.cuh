// The commit of the tree convolution: the windows after the accepted nodes, every layer in one launch.
#pragma once

#include "cuda/conv_rows.cuh"
#include "cuda/dependent.cuh"
#include "cuda/row.cuh"

namespace canopy::cuda {

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
