// Block and path rows of K and Q into a slot.
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/slot.cuh"
#include "cuda/tile/tables.cuh"

namespace canopy::cuda {

template <class Input>
inline constexpr bool kAsync = sizeof(Input) == 2;  // f32 has to be converted on the way
// The type of the tensor-core operands that the inputs become.
template <class Input>
using Operand = std::conditional_t<sizeof(Input) == 2, Input, __half>;

// The step's rows as nodes: lane r < 16 holds the node of block row r and of path row 16 tile + r, -1 past the end.
struct StepRows {
  int block_node, path_node;
};
__device__ __forceinline__ StepRows step_rows(const NodeTables& tables, const DevicePlan& plan, int step, int count,
                                              int lane) {
  const int block = tables.step_block[step], at = 16 * tables.step_tile[step] + lane % 16;
  const int rank = 16 * block + lane % 16;
  StepRows rows{rank < count ? tables.order[rank] : -1, -1};
  if (at < tables.ancestors[block]) rows.path_node = tables.order[plan.path[block][at]];
  return rows;
}

// Starts the copies of 16-bit inputs. Path rows past the end are left as they are: each column of a product depends on
// its own row alone and is masked.
template <class Input, int K>
__device__ __forceinline__ void start_rows(Slot<K>& slot, const Problem& p, StepRows rows, int b, int head, int lane) {
  constexpr int chunks = K / 8, at_once = 32 / chunks;
  const Input* keys = static_cast<const Input*>(p.k.data) + b * p.k.stride[1] + head * p.k.stride[3];
  const Input* queries = static_cast<const Input*>(p.q.data) + b * p.q.stride[1] + head * p.q.stride[3];
  const int chunk = lane % chunks;
#pragma unroll
  for (int i = 0; i < 16 / at_once; ++i) {
    const int row = lane / chunks + i * at_once, node = __shfl_sync(~0u, rows.block_node, row);
    const std::int64_t safe = max(node, 0);
    copy_async(slot.keys + tile_byte<K>(row, chunk), keys + safe * p.k.stride[2] + 8 * chunk, node >= 0);
    copy_async(slot.queries + tile_byte<K>(row, chunk), queries + safe * p.q.stride[2] + 8 * chunk, node >= 0);
  }
#pragma unroll
  for (int i = 0; i < 16 / at_once; ++i) {
    const int row = lane / chunks + i * at_once, node = __shfl_sync(~0u, rows.path_node, row);
    if (node >= 0)
      copy_async(slot.path + tile_byte<K>(row, chunk), keys + std::int64_t{node} * p.k.stride[2] + 8 * chunk, true);
  }
}

// 2^-e with sum of squares about 4^e, 1 where the row needs no help: |row| within 1/16 .. 16, or not finite, or zero.
__device__ __forceinline__ float row_scale(float sum_of_squares) {
  const int exponent = static_cast<int>(__float_as_uint(sum_of_squares) >> 23) - 127;
  if (!(sum_of_squares > 0.f) || exponent > 127 || (exponent >= -8 && exponent < 8)) return 1.f;
  return __uint_as_float((127 - (exponent >> 1)) << 23);
}

// f32 rows, converted to fp16 as they are read; factor[row] undoes the power of two they were scaled by.
template <int K>
__device__ __forceinline__ void read_f32_rows(std::uint8_t* tile, float* factor, const float* from, std::int64_t step,
                                              int my_node, int lane) {
  for (int row = 0; row < 16; ++row) {
    const int node = __shfl_sync(~0u, my_node, row);
    float4 x{};
    if (node >= 0 && lane < K / 4) x = reinterpret_cast<const float4*>(from + node * step)[lane];
    // The squares of tiny or huge elements leave fp32, so the largest element sets the scale, not their sum.
    const float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    const std::uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(largest));
    const int exponent = static_cast<int>(bits >> 23) - 127;
    const bool as_it_is = bits == 0 || bits >= 0x7f800000u || (exponent >= -8 && exponent < 4);
    const int shift = as_it_is ? 0 : max(-100, min(100, exponent));
    const float scale = __uint_as_float((127 - shift) << 23);
    if (lane < K / 4) {
      *reinterpret_cast<uint2*>(tile + tile_byte<K>(row, lane / 2) + 8 * (lane % 2)) = {
          pack_half(x.x * scale, x.y * scale), pack_half(x.z * scale, x.w * scale)};
    }
    if (lane == 0) factor[row] = __uint_as_float((127 + shift) << 23);
  }
}

}  // namespace canopy::cuda
