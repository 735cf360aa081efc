// Between kernels 1 and 2 of squaring: the powers (-G)^2, (-G)^4, ... of one (sequence, value head), as far as its
// depth asks for them, from blocks to blocks in the workspace.
//
// A product of two blocks needs the second one transposed as an operand. So each power is kept both ways, and both ways
// are made from the same operands: P P, and its transpose as P^T P^T. Of a power that is squared no more the transpose
// is written all the same.
#pragma once

#include "cuda/blocks.cuh"
#include "cuda/tile/solve.cuh"

namespace canopy::cuda {

inline constexpr int kPowerWarps = 8;

// Fragments of a block that store_block() stored, as B operand of its transpose, and as A operand of itself.
template <int kParts>
struct BlockOperand {
  std::uint32_t b[kParts][4], a[1][kParts][4];
  __device__ __forceinline__ explicit BlockOperand(const std::uint8_t* from, int lane) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const uint4 x = load_shared(from + 512 * p + 16 * lane);
      b[p][0] = x.x, b[p][1] = x.y, b[p][2] = x.z, b[p][3] = x.w;
      a[0][p][0] = x.x, a[0][p][1] = x.z, a[0][p][2] = x.y, a[0][p][3] = x.w;
    }
  }
};

template <int kParts>
__global__ void __launch_bounds__(32 * kPowerWarps, 1)
    block_power_kernel(const __grid_constant__ BlockArguments arguments) {
  __shared__ unsigned touched[kBlocks];
  const FusedArguments& of = arguments.fused;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int fetched = fetch_parameters(arguments, threadIdx.x / 32);
  FusedWork work = work_of_cta(of, 0);
  const DevicePlan& plan = of.plans[work.b];
  touch(fetched);
  begin_after_previous_kernel();
  const FusedRow row(of, plan, work.b);
  row.give(work);
  if (!row.computes()) return;
  for (int i = warp; i < work.blocks; i += kPowerWarps) {
    const unsigned bits = touched_blocks(plan, i, lane);
    if (lane == 0) touched[i] = bits;
  }
  const std::int64_t first = arguments.pair(work.b, work.head, 0, 0);
  constexpr int kBytes = 512 * kParts;
  std::uint8_t* const powers = arguments.g + first * kBytes;
  std::uint8_t* const turned[2] = {arguments.transposed[0] + first * kBytes, arguments.transposed[1] + first * kBytes};
  for (int power = 1; 1 << power <= plan.depth; ++power) {
    const std::uint8_t *const from = powers + (power - 1) * arguments.power * kBytes, *const from_turned =
                                                                                          turned[(power - 1) % 2];
    std::uint8_t *const to = powers + power * arguments.power * kBytes, *const to_turned = turned[power % 2];
    __syncthreads();  // the power before is there, and `touched`
    int pair = 0;     // of the blocks that are there, which warps take in turn
    for (int i = 0; i < work.blocks; ++i)
      for (unsigned left = touched[i]; left; left &= left - 1) {
        if (pair++ % kPowerWarps != warp) continue;
        const int j = __ffs(left) - 1;
        float product[1][2][4], transpose[1][2][4];
        clear(product[0]), clear(transpose[0]);
        for (unsigned between = left & touched[i]; between; between &= between - 1) {  // l from j to i
          const int l = __ffs(between) - 1;
          if (!(touched[l] >> j & 1)) continue;
          const BlockOperand<kParts> upper(from + block_index(i, l) * kBytes, lane),
              lower(from_turned + block_index(l, j) * kBytes, lane);
          accumulate<__half>(product, upper.a, lower.b);
          accumulate<__half>(transpose, lower.a, upper.b);
        }
        const unsigned bad = take_out_large(product[0], lane);
        take_out_large(transpose[0], lane);
        store_block<kParts>(to + block_index(i, j) * kBytes, product[0], lane);
        store_block<kParts>(to_turned + block_index(i, j) * kBytes, transpose[0], lane);
        if (lane == 0) arguments.marks[power * arguments.power + first + block_index(i, j)] = bad;
      }
  }
}

}  // namespace canopy::cuda
