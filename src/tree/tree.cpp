// A validated parent array and what follows from it.
#include "canopy/tree.hpp"

#include <algorithm>

#include "tree/check.hpp"
#include "tree/order.hpp"

namespace canopy {

Result<Tree> Tree::from_parents(std::span<const std::int32_t> parents) {
  if (Error error = parents_error(parents, "parents"); !error.ok()) return error;
  const int nodes = static_cast<int>(parents.size());

  Tree tree;
  tree.parents_.assign(parents.begin(), parents.end());
  for (auto* column : {&tree.depths_, &tree.dfs_order_, &tree.dfs_rank_, &tree.level_order_, &tree.level_rank_,
                       &tree.subtree_sizes_}) {
    column->assign(nodes, 0);
  }
  tree.ancestors_.assign(nodes, NodeSet{});

  depth_first(tree.parents_.data(), nodes, tree.subtree_sizes_.data(), tree.dfs_rank_.data());
  for (int i = 0; i < nodes; ++i) tree.dfs_order_[tree.dfs_rank_[i]] = i;

  for (int i = 1; i < nodes; ++i) {
    const int parent = tree.parents_[i];
    tree.depths_[i] = tree.depths_[parent] + 1;
    tree.depth_ = std::max(tree.depth_, tree.depths_[i]);
    tree.ancestors_[i] = tree.ancestors_[parent];
    tree.ancestors_[i][parent / 64] |= std::uint64_t{1} << (parent % 64);
  }

  // Counting sort by depth keeps node numbers ascending inside a level.
  std::vector<std::int32_t> level_start(tree.depth_ + 2, 0);
  for (int i = 0; i < nodes; ++i) ++level_start[tree.depths_[i] + 1];
  for (int d = 1; d <= tree.depth_; ++d) level_start[d] += level_start[d - 1];
  for (int i = 0; i < nodes; ++i) {
    const int rank = level_start[tree.depths_[i]]++;
    tree.level_rank_[i] = rank;
    tree.level_order_[rank] = i;
  }
  return tree;
}

std::vector<std::int32_t> Tree::path(int node) const {
  std::vector<std::int32_t> path(depths_[node] + 1);
  for (int at = depths_[node]; at >= 0; --at, node = parents_[node]) path[at] = node;
  return path;
}

}  // namespace canopy
