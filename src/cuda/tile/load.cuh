// The rows of a step, K and Q or path rows, into a slot.
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/rows.hpp"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

template <class Input>
inline constexpr bool kAsync = sizeof(Input) == 2;  // f32 has to be converted on the way

// A step as it comes from memory, a lane a row, and as a warp works on it: lane r has the node and rank of row r; node
// -1 past the end.
struct StepLoad {
  uint2 header;
  std::uint8_t node, rank;
};
__device__ __forceinline__ StepLoad load_step(const DevicePlan& plan, int index, int lane) {
  const Step& step = plan.step[index];
  return {*reinterpret_cast<const uint2*>(&step.block), step.node[lane], step.rank[lane]};
}
struct StepRows {
  int node, rank;
  int block, tile, base_rank, base;
  bool last, folds;

  StepRows() = default;
  __device__ __forceinline__ StepRows(const StepLoad& step, int lane) {
    const uint2 header = step.header;
    node = step.node, rank = step.rank;
    block = header.x & 0xff, tile = header.x >> 8 & 0xff;
    last = header.y & 0xff, folds = header.y >> 8 & 0xff;
    base = header.y >> 16 & 0xff, base_rank = header.y >> 24;
    if (lane % 16 >= static_cast<int>(lane < 16 ? header.x >> 16 & 0xff : header.x >> 24)) node = -1;
  }
};
// The path rows of a step that does not fold.
__device__ __forceinline__ int path_rows(const StepRows& rows) {
  return __popc(__ballot_sync(~0u, rows.node >= 0) >> 16);
}

// Where K and Q of a (sequence, key head) lie.
struct KeySource {
  const char *keys, *queries;
  std::uint32_t key_step, query_step;
};

// Starts the copies of 16-bit inputs; `loaded` is passed when they are there. Rows past the end are zeros; but of a
// path of at most 8 rows the second half is left as it is: each column of a product depends on its own row alone and is
// masked.
template <class Slot>
__device__ __forceinline__ void start_rows(Slot& slot, const KeySource& from, const StepRows& rows,
                                           std::uint64_t* loaded, int lane) {
  constexpr int K = Slot::K, kLanes = 8, kAtOnce = 32 / kLanes;  // 128 bytes of a row at a time
  const int row = lane / kLanes, chunk = 16 * (lane % kLanes);
  std::uint8_t* const to = slot.keys + row * kPitch<K> + chunk;
  const auto copy = [&](int tile, int row_of_tile, const char* source, std::uint32_t step, int node) {
    const char* const at = source + chunk + std::uint64_t{static_cast<std::uint32_t>(max(node, 0))} * step;
#pragma unroll
    for (int i = 0; i < K / (8 * kLanes); ++i)
      copy_async(to + (16 * tile + row_of_tile) * kPitch<K> + 16 * kLanes * i, at + 16 * kLanes * i, node >= 0);
  };
  const bool folds = rows.folds;
  const char* const second = folds ? from.keys : from.queries;
  const std::uint32_t second_step = folds ? from.key_step : from.query_step;
#pragma unroll
  for (int i = 0; i < 16; i += kAtOnce) {
    const int node = __shfl_sync(~0u, rows.node, row + i), high = __shfl_sync(~0u, rows.node, 16 + row + i);
    copy(0, i, from.keys, from.key_step, node);
    copy(1, i, second, second_step, folds ? high : node);
  }
#pragma unroll
  for (int half = 0; half < 16; half += 8) {
    if (folds || __shfl_sync(~0u, rows.node, 16 + half) < 0) break;
#pragma unroll
    for (int i = half; i < half + 8; i += kAtOnce)
      copy(2, i, from.keys, from.key_step, __shfl_sync(~0u, rows.node, 16 + row + i));
  }
  barrier_arrive_async(loaded);
}

__device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((127 + exponent) << 23); }

// Row `row` of a tile in fp16, divided by a power of two that brings its largest element near 1; the lane has elements
// 4 lane .. + 3. Returns what undoes the division: 1 for rows that need no help, are zero, or not finite.
template <int K>
__device__ __forceinline__ float store_in_range(std::uint8_t* tile, int row, float4 x, int lane) {
  const float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
  const std::uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const bool as_it_is = bits == 0 || bits >= 0x7f800000u || (exponent >= -8 && exponent < 4);
  const int shift = as_it_is ? 0 : max(-100, min(100, exponent));
  const float scale = power_of_two(-shift);
  if (lane < K / 4)
    *reinterpret_cast<uint2*>(tile + row * kPitch<K> + 8 * lane) = {pack_half(x.x * scale, x.y * scale),
                                                                    pack_half(x.z * scale, x.w * scale)};
  return power_of_two(shift);
}

// f32 rows, converted to fp16 as they are read; lane `from_lane` + r has the node of row r; factor[r] undoes the power
// of two that row r was divided by.
template <int K>
__device__ __forceinline__ void read_f32_rows(std::uint8_t* tile, float* factor, const char* from, std::uint32_t step,
                                              int nodes, int from_lane, int lane) {
  for (int row = 0; row < 16; ++row) {
    const int node = __shfl_sync(~0u, nodes, from_lane + row);
    float4 x{};
    if (node >= 0 && lane < K / 4)
      x = reinterpret_cast<const float4*>(from + std::uint64_t{static_cast<std::uint32_t>(node)} * step)[lane];
    const float undo = store_in_range<K>(tile, row, x, lane);
    if (lane == 0) factor[row] = undo;
  }
}

// The rows of `which`, a bit a row, read again from bf16, because fp16 cannot hold their elements as they are.
// factor[r]: as above, 1 for the other rows.
template <int K>
__device__ __forceinline__ void read_bf16_rows_in_range(std::uint8_t* tile, float* factor, std::uint32_t which,
                                                        const char* from, std::uint32_t step, int nodes, int from_lane,
                                                        int lane) {
  if (lane < 16) factor[lane] = 1;
  __syncwarp();
  for (int row = 0; row < 16; ++row) {
    const int node = __shfl_sync(~0u, nodes, from_lane + row);
    if (node < 0 || !(which >> row & 1)) continue;
    float4 x{};
    if (lane < K / 4) {
      const uint2 y =
          reinterpret_cast<const uint2*>(from + std::uint64_t{static_cast<std::uint32_t>(node)} * step)[lane];
      const float2 low = unpack<__nv_bfloat16>(y.x), high = unpack<__nv_bfloat16>(y.y);
      x = {low.x, low.y, high.x, high.y};
    }
    const float undo = store_in_range<K>(tile, row, x, lane);
    if (lane == 0) factor[row] = undo;
  }
}

// Rows of a tile that fp16 holds badly, each judged by itself, so that no row's bits depend on another's. `bad`: of
// rows lane / 4 and lane / 4 + 8, bits 0 and 1, from any of the row's four lanes; lane `from_lane` + r has the node of
// row r.
template <int K>
__device__ __noinline__ void bring_in_range(std::uint8_t* tile, float* factor, const char* from, std::uint32_t step,
                                            int nodes, int from_lane, unsigned bad, int lane) {
  std::uint32_t rows = 0;
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t lanes = __ballot_sync(~0u, bad >> half & 1);
    for (int r = 0; r < 8; ++r)
      if (lanes >> (4 * r) & 0xf) rows |= 1u << (8 * half + r);
  }
  __syncwarp();  // the rows as they were stored
  read_bf16_rows_in_range<K>(tile, factor, rows, from, step, nodes, from_lane, lane);
  __syncwarp();
}
// Those of a step. Bits 2 and 3 of `bad`: of query rows. Leaves what undoes the scaling in of[0].of_key and of_query.
template <int K, class Slot>
__device__ __forceinline__ void bring_in_range(Slot& slot, const KeySource& from, int nodes, bool folds, unsigned bad,
                                               int lane) {
  bring_in_range<K>(slot.keys, slot.of[0].of_key, from.keys, from.key_step, nodes, 0, bad, lane);
  bring_in_range<K>(slot.queries, slot.of[0].of_query, folds ? from.keys : from.queries,
                    folds ? from.key_step : from.query_step, nodes, folds ? 16 : 0, bad >> 2, lane);
}

}  // namespace canopy::cuda
