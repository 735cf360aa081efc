// The plan of one tree as the kernels read it: the host Plan (canopy/plan.hpp) with bytes for ranks, plus what the
// streaming kernels need: root paths by block, push rows, and the list of steps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "canopy/problem.hpp"
#include "host_device.hpp"

namespace canopy::cuda {

inline constexpr int kNodes = CANOPY_MAX_NODES, kRows = CANOPY_BLOCK_ROWS, kBlocks = kNodes / kRows;
// Steps of one tree: a block counts once for every 16 path rows it needs, at least once. A chain of 255 with a last
// leaf under the root, which keeps it from being folded, has the most: 1 + (1 + 2 + ... + 15) = 121.
inline constexpr int kMaxSteps = 128;
// No rank: the parent of the root, and the push row of a node that no later block can have as an ancestor. The largest
// rank never is a parent, and a node of depth 255 never has a child.
inline constexpr int kNone = 255;

// One step of the streaming kernel. Usually 16 rows of a block against 16 rows of its root path: node and rank of block
// row r at r, of path row r (depth base + 16 tile + r) at 16 + r; entries at and past `rows` (`path_rows`) are not
// defined. A step that folds holds 32 path rows, depths base - 32 .. base - 1, that all later ranks descend from: they
// go into the state, and from there on paths start at depth `base` (docs/kernels.md, folding).
struct alignas(16) Step {
  std::uint8_t node[2 * kRows], rank[2 * kRows];
  std::uint8_t block, tile, rows, path_rows;
  std::uint8_t last;       // 1: the deepest path rows of the block, which the block's own triangle goes with
  std::uint8_t folds;      // 1: the other kind
  std::uint8_t base;       // nodes of the root path that are in the state, a multiple of kFoldRows; after the fold
  std::uint8_t base_rank;  // rank of the deepest of them before the fold, kNone if there is none
  std::uint8_t reserved[8];
};
static_assert(sizeof(Step) == 80);
inline constexpr int kFoldRows = 32;
// A path stack (tile/path_stack.cuh) has rows of 16 two-byte elements: kPathRows for the depths base .. base + 31,
// depth d at d % 32, and 16 for rows that are not kept there. Halves of a row are turned by its number for ldmatrix.
inline constexpr int kPathRows = kFoldRows, kPathBytes = 32 * (kPathRows + kRows);
CANOPY_HOST_DEVICE constexpr int turned_row(int row) { return 32 * row + (row / 4 % 2) * 16; }
CANOPY_HOST_DEVICE constexpr int path_row(int depth) { return turned_row(depth % kPathRows); }
CANOPY_HOST_DEVICE constexpr int passing_row(int row) { return 32 * kPathRows + turned_row(row); }
inline constexpr int kUp = 8;  // ancestors listed for each rank

// One sequence. Everything is by depth-first rank unless said otherwise, children in ascending node order (as on the
// host). Entries at and past `count` are not defined. `count` is 0 when `status` has CANOPY_ROW_BAD_COUNT; with
// CANOPY_ROW_BAD_TREE it is the live count, only `status` and `count` hold, and outputs are NaN. The plan does not
// depend on slots: a kernel looks at those itself (row.cuh).
// Aligned as canopy_plan's memory is, so that the plans of B sequences are B times the bytes of one: rows of a tensor.
struct alignas(64) DevicePlan {
  std::int32_t status, count, depth, blocks;
  std::int32_t steps, reserved[3];
  // 1,840 bytes that the fused kernels copy to shared memory as they are (tile/tables.cuh).
  std::uint16_t in_block[kNodes];  // bit j: rank (block first + j) is a strict ancestor
  std::uint16_t push_at[kNodes];   // where in a path stack r is pushed to, in bytes (path_row(), passing_row())
  std::uint8_t order[kNodes];      // node at rank r
  std::uint8_t prefix[kNodes];     // strict ancestors outside r's block: a prefix of the block's root path
  std::uint8_t push[kNodes];  // row of the path stack that r is pushed to: its depth if r is the last of that depth
                              // in its block, else kNone
  std::uint8_t ancestors[kBlocks];     // n_ext, length of the block's root path
  std::uint8_t base[kBlocks];          // how much of it is in the state by then
  std::uint8_t spills[kBlocks];        // 1: some of the block's depths are kPathRows or more above base
  std::uint8_t up[kNodes][kUp];        // rank of the parent, its parent and so on, kNone past the root
  std::uint8_t parent[kNodes];         // rank of the parent, kNone for the root
  std::uint8_t rank[kNodes];           // by node
  std::uint8_t depths[kNodes];         // strict ancestors
  std::uint8_t below[kNodes];          // nodes below r, r not included: its subtree is the ranks r .. r + below
  std::uint8_t path[kBlocks][kNodes];  // path[b][d]: rank of the depth-d strict ancestor of the block's first node
  Step step[kMaxSteps];                // block by block, the shallowest path rows first
};

// One plan a sequence into plans[0..B). Reads trees and counts of the problem; never reads past [B,T].
void launch_plan(const Problem& problem, DevicePlan* plans, cudaStream_t stream);

}  // namespace canopy::cuda
