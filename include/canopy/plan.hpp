// The plan of one tree: depth-first order, ancestor masks and the blocks of the path-compressed solve. It has a fixed
// size and is built without allocation, once per step, and shared by all layers (docs/math.md, "Path compression").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "canopy/tree.hpp"

namespace canopy {

inline constexpr int kBlockRows = CANOPY_BLOCK_ROWS;
inline constexpr int kMaxBlocks = kMaxNodes / kBlockRows;

// A block: `rows` consecutive depth-first ranks from `first`; `ancestors` = |A(first)|, the length of the root path
// outside the block that its rows need. Row r needs the prefix of that path of length Plan::prefix[r].
struct Block {
  std::int32_t first = 0, rows = 0, ancestors = 0;
};

// Indices and values are depth-first ranks, but for the values of `order` and the index of `rank`, which are nodes.
struct Plan {
  std::int32_t nodes = 0, depth = 0, blocks = 0;
  std::int16_t order[kMaxNodes];    // node at rank r
  std::int16_t rank[kMaxNodes];     // rank of node i
  std::int16_t parent[kMaxNodes];   // rank of the parent of r; -1 for the root (r = 0)
  std::int16_t depths[kMaxNodes];   // strict ancestors of r
  std::int16_t subtree[kMaxNodes];  // nodes below r, r included: its ranks are r .. r + subtree - 1
  std::int16_t prefix[kMaxNodes];   // strict ancestors of r outside r's block
  std::uint16_t in_block[kMaxNodes];  // bit j: rank (block first + j) is a strict ancestor of r
  Block block[kMaxBlocks];
};

// Builds the plan of parents[0..nodes). What stands at parents[0] is not read. False when a parent of node i > 0 does
// not satisfy 0 <= parent < i; `bad` then names the first such node.
bool build_plan(const std::int32_t* parents, int nodes, Plan& plan, int* bad = nullptr);
// Fills parents from first-child / next-sibling links (SGLang's retrieve form), siblings in any order. False when a
// link leaves 0..nodes-1, reaches a node twice or not at all, or does not lead from parent to later child.
bool parents_from_links(const std::int32_t* next_token, const std::int32_t* next_sibling, int nodes,
                        std::int32_t* parents, int* bad = nullptr);

// The plans of a batch, for canopy_trees::plan: bytes of memory on the problem's device, and filling it. On the CPU one
// Plan a sequence, with no nodes for padding rows and rows that row_flags() flags.
std::size_t plans_bytes(const canopy_problem& problem);
Error make_plans(const canopy_problem& problem, void* plans, std::size_t bytes, void* stream = nullptr);

// Blocks of any size, for display and counting.
std::vector<Block> block_plan(const Tree& tree, int rows = kBlockRows);
// rows x rows products that the dense lower triangle and the path-compressed form compute.
int dense_block_count(int nodes, int rows = kBlockRows);
int compressed_block_count(const Tree& tree, int rows = kBlockRows);

}  // namespace canopy
