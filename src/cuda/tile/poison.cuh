// Values that are not finite as operands (NaN, Inf, or out of fp16's range) must reach the node's subtree and nothing
// else. Nodes are columns of B operands, where that holds by itself; as rows of A they would meet the zeros of other
// nodes, and 0 * NaN is NaN. So the warp takes such nodes out of its A operands and writes NaN to their subtrees.
#pragma once

#include "cuda/tile/ops.cuh"
#include "cuda/tile/tables.cuh"

namespace canopy::cuda {

// 0 * x summed over a fragment: bits 0 when all of it is finite.
template <class Op>
__device__ __forceinline__ std::uint32_t spoilt_by(const std::uint32_t (&x)[4]) {
  using Pair = std::conditional_t<std::is_same_v<Op, __half>, __half2, __nv_bfloat162>;
  std::uint32_t sum = 0;
  const std::uint32_t zero = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<Pair*>(&sum) = __hfma2(*reinterpret_cast<const Pair*>(&x[i]),
                                             *reinterpret_cast<const Pair*>(&zero), *reinterpret_cast<Pair*>(&sum));
  return sum;
}
__device__ __forceinline__ bool any_spoilt(std::uint32_t sum) { return __any_sync(~0u, (sum & 0x7fff7fffu) != 0); }

// Bit j: some value of node j in the A fragment is not finite.
template <class Op>
__device__ __forceinline__ unsigned spoilt_nodes(const std::uint32_t (&x)[4], int lane) {
  constexpr unsigned low = std::is_same_v<Op, __half> ? 0x7c00u : 0x7f80u, high = low << 16;
  unsigned nodes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned at = 8 * (i / 2) + 2 * (lane % 4);
    if ((x[i] & low) == low) nodes |= 1u << at;
    if ((x[i] & high) == high) nodes |= 2u << at;
  }
  return __reduce_or_sync(~0u, nodes);
}
template <int kParts>
__device__ __forceinline__ void clear_nodes(std::uint32_t (&x)[kParts][4], unsigned nodes, int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned at = 8 * (i / 2) + 2 * (lane % 4);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (nodes >> at & 1) x[p][i] &= 0xffff0000u;
      if (nodes >> at & 2) x[p][i] &= 0x0000ffffu;
    }
  }
}
__device__ __forceinline__ void fill_nan(float (&x)[2][4], unsigned nodes, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (nodes >> (8 * (i / 4) + 2 * (lane % 4) + i % 2) & 1) x[i / 4][i % 4] = __int_as_float(0x7fffffff);
}

// Depths of the path stack that hold a node taken out: lane i has depths 8 i .. 8 i + 7.
struct SpoiltPath {
  unsigned depths = 0;

  __device__ __forceinline__ bool any() const { return __any_sync(~0u, depths != 0); }

  // The subtree closure inside the block: nodes with a spoilt ancestor on the path or in the block, or spoilt
  // themselves.
  __device__ __forceinline__ unsigned below(unsigned spoilt, const NodeTables& tables, int first, int lane) const {
    const unsigned mine = depths ? 8 * lane + __ffs(depths) - 1 : kNodes;
    const unsigned shallowest = __reduce_min_sync(~0u, mine);
    const bool on_path = lane < 16 && shallowest < tables.prefix[first + lane % 16];
    spoilt |= __ballot_sync(~0u, on_path);
    const bool in_block = lane < 16 && (tables.in_block[first + lane % 16] & spoilt);
    return spoilt | __ballot_sync(~0u, in_block);
  }

  __device__ __forceinline__ void push(unsigned spoilt, const NodeTables& tables, int first, int lane) {
    for (int r = 0; r < 16; ++r) {
      const int depth = tables.push[first + r];
      if (depth == kNone || depth / 8 != lane) continue;
      const unsigned bit = 1u << (depth % 8);
      depths = spoilt >> r & 1 ? depths | bit : depths & ~bit;
    }
  }
};

}  // namespace canopy::cuda
