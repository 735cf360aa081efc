// A tree drawn with box characters.
#include "canopy/tree.hpp"

namespace canopy {

std::string ascii_tree(const Tree& tree) {
  std::vector<std::int32_t> last_child(tree.size(), -1);
  for (int i = 1; i < tree.size(); ++i) last_child[tree.parents()[i]] = i;

  // Depth-first order meets a node right after the nodes that its indentation depends on: indent[d] is what a node of
  // depth d puts before its children's lines.
  std::vector<std::string> indent(tree.depth() + 1);
  std::string drawing;
  for (const std::int32_t node : tree.dfs_order()) {
    const int depth = tree.depths()[node];
    if (depth > 0) {
      const bool last = last_child[tree.parents()[node]] == node;
      drawing += indent[depth - 1] + (last ? "└─ " : "├─ ");
      indent[depth] = indent[depth - 1] + (last ? "   " : "│  ");
    }
    drawing += std::to_string(node) + "\n";
  }
  return drawing;
}

}  // namespace canopy
