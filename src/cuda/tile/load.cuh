// Block and path rows of K and Q into a slot.
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/rows.hpp"
#include "cuda/tile/slot.cuh"

namespace canopy::cuda {

template <class Input>
inline constexpr bool kAsync = sizeof(Input) == 2;  // f32 has to be converted on the way
// The type of the tensor-core operands that the inputs become.
template <class Input>
using Operand = std::conditional_t<sizeof(Input) == 2, Input, __half>;

// A step as a warp holds it: lane r < 16 has the node of block row r, lane 16 + r that of path row r, -1 past the end;
// lanes r and 16 + r have the rank of path row r (any rank past the end).
struct StepRows {
  int node, path_rank;
  int block, tile;
  bool last;
};
__device__ __forceinline__ StepRows read_step(const DevicePlan& plan, int index, int lane) {
  const Step& step = plan.step[index];
  const std::uint32_t header = *reinterpret_cast<const std::uint32_t*>(&step.block);
  StepRows rows{step.node[lane], step.path_rank[lane % 16], static_cast<int>(header & 0xff),
                static_cast<int>(header >> 8 & 0xff), step.last != 0};  // node[16] and path_node[16] are neighbours
  const int valid = lane < 16 ? header >> 16 & 0xff : header >> 24;
  if (lane % 16 >= valid) rows.node = -1;
  return rows;
}

// Starts the copies of 16-bit inputs; `keys` and `queries` point at the head of the sequence. Path rows past the end
// are left as they are: each column of a product depends on its own row alone and is masked.
template <int K>
__device__ __forceinline__ void start_rows(Slot<K>& slot, const char* keys, std::uint32_t key_step, const char* queries,
                                           std::uint32_t query_step, const StepRows& rows, int lane) {
  constexpr int chunks = K / 8, at_once = 32 / chunks;
  const int chunk = lane % chunks;
  keys += 16 * chunk, queries += 16 * chunk;
#pragma unroll
  for (int i = 0; i < 16 / at_once; ++i) {
    const int row = lane / chunks + i * at_once, node = __shfl_sync(~0u, rows.node, row);
    const std::uint32_t safe = static_cast<std::uint32_t>(max(node, 0));
    copy_async(slot.keys + tile_byte<K>(row, chunk), keys + std::uint64_t{safe} * key_step, node >= 0);
    copy_async(slot.queries + tile_byte<K>(row, chunk), queries + std::uint64_t{safe} * query_step, node >= 0);
  }
#pragma unroll
  for (int i = 0; i < 16 / at_once; ++i) {
    const int row = lane / chunks + i * at_once, node = __shfl_sync(~0u, rows.node, 16 + row);
    if (node >= 0)
      copy_async(slot.path + tile_byte<K>(row, chunk),
                 keys + std::uint64_t{static_cast<std::uint32_t>(node)} * key_step, true);
  }
}

// The power of two that a row is divided by on its way to fp16, from its sum of squares: 0 where it needs no help,
// |row| within 1/16 .. 16, or not finite, or zero.
__device__ __forceinline__ int row_exponent(float sum_of_squares) {
  const int exponent = static_cast<int>(__float_as_uint(sum_of_squares) >> 23) - 127;
  if (!(sum_of_squares > 0.f) || exponent > 127 || (exponent >= -8 && exponent < 8)) return 0;
  return exponent >> 1;
}
__device__ __forceinline__ float power_of_two(int exponent) { return __uint_as_float((127 + exponent) << 23); }

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
    // The squares of tiny or huge elements leave fp32, so the largest element sets the scale, not their sum.
    const float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    const std::uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
    const int exponent = static_cast<int>(bits >> 23) - 127;
    const bool as_it_is = bits == 0 || bits >= 0x7f800000u || (exponent >= -8 && exponent < 4);
    const int shift = as_it_is ? 0 : max(-100, min(100, exponent));
    const float scale = power_of_two(-shift);
    if (lane < K / 4) {
      *reinterpret_cast<uint2*>(tile + tile_byte<K>(row, lane / 2) + 8 * (lane % 2)) = {
          pack_half(x.x * scale, x.y * scale), pack_half(x.z * scale, x.w * scale)};
    }
    if (lane == 0) factor[row] = power_of_two(shift);
  }
}

}  // namespace canopy::cuda
