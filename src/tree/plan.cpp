// The plan of one tree (docs/math.md, "Path compression"): built once per step, O(T), no allocation, no recursion, and
// safe on any bytes that a caller may pass as a tree.
#include "canopy/plan.hpp"

#include <algorithm>
#include <bit>

#include "tree/order.hpp"

namespace canopy {
namespace {

bool refuse(int* bad, int node) {
  if (bad) *bad = node;
  return false;
}

}  // namespace

bool build_plan(const std::int32_t* parents, int nodes, Plan& plan, int* bad) {
  plan.nodes = plan.depth = plan.blocks = 0;
  if (nodes < 0 || nodes > kMaxNodes) return refuse(bad, nodes < 0 ? 0 : kMaxNodes);
  for (int i = 1; i < nodes; ++i) {
    if (parents[i] < 0 || parents[i] >= i) return refuse(bad, i);
  }
  if (nodes == 0) return true;  // a row without live nodes is legal

  std::int16_t subtree[kMaxNodes];  // by node; the plan wants it by rank
  depth_first(parents, nodes, subtree, plan.rank);
  for (int i = 0; i < nodes; ++i) {
    const int r = plan.rank[i];
    plan.order[r] = static_cast<std::int16_t>(i);
    plan.subtree[r] = subtree[i];
    plan.parent[r] = i == 0 ? std::int16_t{-1} : plan.rank[parents[i]];
  }

  plan.depths[0] = plan.prefix[0] = 0;
  plan.in_block[0] = 0;
  for (int r = 1; r < nodes; ++r) {
    const int parent = plan.parent[r], first = r - r % kBlockRows;
    plan.depths[r] = static_cast<std::int16_t>(plan.depths[parent] + 1);
    plan.depth = std::max<std::int32_t>(plan.depth, plan.depths[r]);
    // A parent before the block has all its ancestors before the block too, so its bits stop here.
    plan.in_block[r] =
        parent < first ? std::uint16_t{0} : static_cast<std::uint16_t>(plan.in_block[parent] | 1u << (parent - first));
    plan.prefix[r] = static_cast<std::int16_t>(plan.depths[r] - std::popcount(plan.in_block[r]));
  }

  plan.nodes = nodes;
  for (int first = 0; first < nodes; first += kBlockRows) {
    plan.block[plan.blocks++] = {first, std::min(kBlockRows, nodes - first), plan.depths[first]};
  }
  return true;
}

bool parents_from_links(const std::int32_t* next_token, const std::int32_t* next_sibling, int nodes,
                        std::int32_t* parents, int* bad) {
  if (nodes < 0 || nodes > kMaxNodes) return refuse(bad, nodes < 0 ? 0 : kMaxNodes);
  if (nodes == 0) return true;
  // With at most one link into every node and none into the root, each sibling list below ends: a list that ran in a
  // circle would enter some node twice.
  bool linked[kMaxNodes] = {true};
  for (int i = 0; i < nodes; ++i) {
    for (const std::int32_t to : {next_token[i], next_sibling[i]}) {
      if (to == -1) continue;
      if (to < 0 || to >= nodes) return refuse(bad, i);
      if (linked[to]) return refuse(bad, to);
      linked[to] = true;
    }
  }
  if (next_sibling[0] != -1) return refuse(bad, next_sibling[0]);  // a second root
  std::fill(parents, parents + nodes, -1);
  for (int i = 0; i < nodes; ++i) {
    for (std::int32_t child = next_token[i]; child != -1; child = next_sibling[child]) parents[child] = i;
  }
  // Parents before children also rules out circles that never meet the root.
  for (int i = 1; i < nodes; ++i) {
    if (parents[i] < 0 || parents[i] >= i) return refuse(bad, i);
  }
  return true;
}

std::vector<Block> block_plan(const Tree& tree, int rows) {
  std::vector<Block> blocks;
  if (rows < 1) return blocks;
  for (int first = 0; first < tree.size(); first += rows) {
    blocks.push_back({first, std::min(rows, tree.size() - first), tree.depths()[tree.dfs_order()[first]]});
    if (rows >= tree.size()) break;  // first + rows may not fit an int
  }
  return blocks;
}

int dense_block_count(int nodes, int rows) {
  if (nodes < 1 || rows < 1) return 0;
  const int blocks = (nodes - 1) / rows + 1;
  return blocks * (blocks + 1) / 2;
}

int compressed_block_count(const Tree& tree, int rows) {
  int count = 0;
  for (const Block& block : block_plan(tree, rows)) count += 1 + (block.ancestors + rows - 1) / rows;
  return count;
}

}  // namespace canopy
