// The memory floor: the fused kernel's grid, loads and stores without its mathematics. It reads every live row of q, k,
// v, the gates and the state, and writes every live row of o, with v. For bf16 inputs and outputs and an f32 VK state.
//
// The grid is the narrow one (32 columns a CTA), so K and Q are read by V / 32 CTAs of a key head, from the L2 mostly.
#pragma once

#include "cuda/dependent.cuh"
#include "cuda/tile/shape.cuh"

namespace canopy::cuda {

inline constexpr int kFloorThreads = 256, kFloorColumns = 32;

template <int K>
__global__ void __launch_bounds__(kFloorThreads) floor_kernel(const __grid_constant__ FusedArguments arguments) {
  constexpr int row_vectors = 2 * K / 16, value_vectors = 2 * kFloorColumns / 16;
  // Everything but V lands in one place, a vector a thread: only the traffic counts.
  __shared__ uint4 anywhere[kFloorThreads], values[kNodes * value_vectors];
  __shared__ std::uint32_t gates[2][kNodes];
  const int b = blockIdx.z, head = blockIdx.y, column = blockIdx.x * kFloorColumns;
  const int key_head = key_head_of(head, arguments.key_heads_each);
  begin_after_previous_kernel();
  std::int64_t slot = b;
  if (arguments.slot_index)
    slot = arguments.long_slots ? static_cast<const std::int64_t*>(arguments.slot_index)[b]
                                : static_cast<const std::int32_t*>(arguments.slot_index)[b];
  const int count = arguments.plans[b].count;
  if (arguments.slot_index && slot <= arguments.padding_slot) return;

  auto at = [&](const Rows& t, int h, int node, int byte) { return t.of(b, h) + std::int64_t{node} * t.node + byte; };
  const char* state = arguments.state.of(0, head) + slot * arguments.state.sequence;
#pragma unroll
  for (int i = threadIdx.x; i < kFloorColumns * K / 4; i += kFloorThreads)
    copy_async(&anywhere[threadIdx.x],
               state + (column + i / (K / 4)) * std::int64_t{arguments.state.node} + i % (K / 4) * 16, true);
  for (int i = threadIdx.x; i < count * value_vectors; i += kFloorThreads)
    copy_async(&values[i], at(arguments.v, head, i / value_vectors, 2 * column + i % value_vectors * 16), true);
  for (int i = threadIdx.x; i < count * row_vectors; i += kFloorThreads) {
    copy_async(&anywhere[threadIdx.x], at(arguments.k, key_head, i / row_vectors, i % row_vectors * 16), true);
    copy_async(&anywhere[threadIdx.x], at(arguments.q, key_head, i / row_vectors, i % row_vectors * 16), true);
  }
  if (threadIdx.x < count) {
    copy_async<4>(&gates[0][threadIdx.x], at(arguments.g, head, threadIdx.x, 0));
    copy_async<4>(&gates[1][threadIdx.x], at(arguments.beta, head, threadIdx.x, 0));
  }
  end_copies();
  wait_for_copies<0>();
  __syncthreads();
  for (int i = threadIdx.x; i < count * value_vectors; i += kFloorThreads)
    *reinterpret_cast<uint4*>(at(arguments.o, head, i / value_vectors, 2 * column + i % value_vectors * 16)) =
        values[i];
}

}  // namespace canopy::cuda
