// Heavy-light decomposition: the tree as few root-ward chains, each extended through the child with most nodes below.
#include "canopy/tree.hpp"

namespace canopy {

ChainDecomposition decompose_chains(const Tree& tree) {
  std::vector<std::int32_t> heavy(tree.size(), -1);  // heaviest child; the lowest node number where subtrees tie
  for (int i = 1; i < tree.size(); ++i) {
    std::int32_t& best = heavy[tree.parents()[i]];
    if (best < 0 || tree.subtree_sizes()[i] > tree.subtree_sizes()[best]) best = i;
  }
  ChainDecomposition result;
  result.chain_of.assign(tree.size(), -1);
  for (const std::int32_t top : tree.dfs_order()) {
    if (top > 0 && heavy[tree.parents()[top]] == top) continue;  // inside the chain that started above
    std::vector<std::int32_t> chain;
    for (std::int32_t node = top; node >= 0; node = heavy[node]) {
      result.chain_of[node] = static_cast<std::int32_t>(result.chains.size());
      chain.push_back(node);
    }
    result.chains.push_back(std::move(chain));
  }
  return result;
}

}  // namespace canopy
