// Renumbering a tree's nodes: any topological order describes the same tree.
#include <utility>

#include "canopy/tree.hpp"
#include "tree/random.hpp"

namespace canopy {

Result<Tree> relabel(const Tree& tree, std::span<const std::int32_t> new_label) {
  const int nodes = tree.size();
  if (static_cast<int>(new_label.size()) != nodes) {
    return Error::invalid("new_label has " + std::to_string(new_label.size()) + " entries: expected one for each of " +
                          std::to_string(nodes) + " nodes");
  }
  std::vector<std::int32_t> owner(nodes, -1);  // the node that has taken a label
  for (int i = 0; i < nodes; ++i) {
    const std::int32_t label = new_label[i];
    const std::string place = "new_label[" + std::to_string(i) + "] = " + std::to_string(label) + ": ";
    if (label < 0 || label >= nodes) {
      return Error::invalid(place + "expected a label 0.." + std::to_string(nodes - 1));
    }
    if (owner[label] >= 0) {
      return Error::invalid(place + "the label already belongs to node " + std::to_string(owner[label]) +
                            "; expected a permutation");
    }
    owner[label] = i;
  }
  if (nodes > 0 && new_label[0] != 0) {
    return Error::invalid("new_label[0] = " + std::to_string(new_label[0]) + ": the root keeps label 0");
  }
  std::vector<std::int32_t> parents(nodes, -1);
  for (int i = 1; i < nodes; ++i) {
    const std::int32_t parent = tree.parents()[i];
    if (new_label[parent] >= new_label[i]) {
      return Error::invalid("new_label[" + std::to_string(i) + "] = " + std::to_string(new_label[i]) +
                            ": a parent must precede its child, and node " + std::to_string(i) + "'s parent, node " +
                            std::to_string(parent) + ", is labelled " + std::to_string(new_label[parent]));
    }
    parents[new_label[i]] = new_label[parent];
  }
  return Tree::from_parents(parents);  // refuses the tree without nodes that Tree() is
}

std::vector<std::int32_t> random_topological_labels(const Tree& tree, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::vector<std::int32_t>> children(tree.size());
  for (int i = 1; i < tree.size(); ++i) children[tree.parents()[i]].push_back(i);
  std::vector<std::int32_t> labels(tree.size()), ready = {0};  // ready: unlabelled nodes whose parent has a label
  for (int label = 0; label < tree.size(); ++label) {
    std::swap(ready[random.below(ready.size())], ready.back());
    const std::int32_t node = ready.back();
    ready.pop_back();
    labels[node] = label;
    ready.insert(ready.end(), children[node].begin(), children[node].end());
  }
  return labels;
}

}  // namespace canopy
