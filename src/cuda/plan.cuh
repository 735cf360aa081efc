// The plan of one tree as the kernels read it: the host Plan (canopy/plan.hpp) with bytes for ranks, plus what the
// streaming kernels need: root paths by block, push rows, and the list of steps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "canopy/problem.hpp"

namespace canopy::cuda {

inline constexpr int kNodes = CANOPY_MAX_NODES, kRows = CANOPY_BLOCK_ROWS, kBlocks = kNodes / kRows;
// Steps of one tree: a block counts once for every 16 path rows it needs, at least once. A chain of 256 has the most:
// 1 + (1 + 2 + ... + 15) = 121.
inline constexpr int kMaxSteps = 128;
// No rank: the parent of the root, and the push row of a node that no later block can have as an ancestor. The largest
// rank never is a parent, and a node of depth 255 never has a child.
inline constexpr int kNone = 255;

// One step of the streaming kernel: 16 rows of a block against 16 rows of its root path. Byte arrays of 16 are by row
// of the step; entries at and past `rows` (`path_rows`) are not defined.
struct alignas(16) Step {
  std::uint8_t node[kRows];       // node of block row r
  std::uint8_t path_node[kRows];  // node of path row r, depth 16 tile + r
  std::uint8_t path_rank[kRows];  // its rank
  std::uint8_t block, tile, rows, path_rows;
  std::uint8_t last;  // 1: the deepest path rows of the block, which the block's own triangle goes with
  std::uint8_t reserved[11];
};
static_assert(sizeof(Step) == 64);

// One sequence. Everything is by depth-first rank unless said otherwise, children in ascending node order (as on the
// host). Entries at and past `count` are not defined. `count` is 0 when `status` has CANOPY_ROW_BAD_COUNT; with
// CANOPY_ROW_BAD_TREE it is the live count, only `status` and `count` hold, and outputs are NaN. The plan does not
// depend on slots: a kernel looks at those itself (row.cuh).
struct alignas(16) DevicePlan {
  std::int32_t status, count, depth, blocks;
  std::int32_t steps, reserved[3];
  // 1,552 bytes that the fused kernels copy to shared memory as they are (tile/tables.cuh).
  std::uint16_t in_block[kNodes];  // bit j: rank (block first + j) is a strict ancestor
  std::uint8_t order[kNodes];      // node at rank r
  std::uint8_t parent[kNodes];     // rank of the parent, kNone for the root
  std::uint8_t prefix[kNodes];     // strict ancestors outside r's block: a prefix of the block's root path
  std::uint8_t push[kNodes];  // row of the path stack that r is pushed to: its depth if r is the last of that depth
                              // in its block, else kNone
  std::uint8_t ancestors[kBlocks];     // n_ext, length of the block's root path
  std::uint8_t rank[kNodes];           // by node
  std::uint8_t depths[kNodes];         // strict ancestors
  std::uint8_t below[kNodes];          // nodes below r, r not included: its subtree is the ranks r .. r + below
  std::uint8_t path[kBlocks][kNodes];  // path[b][d]: rank of the depth-d strict ancestor of the block's first node
  Step step[kMaxSteps];                // block by block, the shallowest path rows first
};
static_assert(sizeof(DevicePlan) % 16 == 0);

// One plan a sequence into plans[0..B). Reads trees and counts of the problem; never reads past [B,T].
void launch_plan(const Problem& problem, DevicePlan* plans, cudaStream_t stream);

}  // namespace canopy::cuda
