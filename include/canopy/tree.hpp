// Draft trees: a validated parent array and everything that follows from it, the families used in tests and
// benchmarks, and the text forms people write trees in.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canopy/result.hpp"

namespace canopy {

inline constexpr int kMaxNodes = CANOPY_MAX_NODES;

// One bit a node, any T up to kMaxNodes.
using NodeSet = std::array<std::uint64_t, kMaxNodes / 64>;
inline bool contains(const NodeSet& set, int node) { return (set[node / 64] >> (node % 64)) & 1u; }

// A tree of 1..256 nodes; node 0 is the root and every parent precedes its child. Immutable once made.
class Tree {
 public:
  // parents[0] = -1, 0 <= parents[i] < i for i > 0; otherwise an error with the index and the values.
  static Result<Tree> from_parents(std::span<const std::int32_t> parents);

  int size() const { return static_cast<int>(parents_.size()); }
  int depth() const { return depth_; }  // the largest number of strict ancestors
  std::span<const std::int32_t> parents() const { return parents_; }
  std::span<const std::int32_t> depths() const { return depths_; }
  std::span<const std::int32_t> dfs_order() const { return dfs_order_; }  // node at each depth-first (pre-order) rank
  std::span<const std::int32_t> dfs_rank() const { return dfs_rank_; }    // its inverse
  std::span<const std::int32_t> level_order() const { return level_order_; }  // by depth, then by node number
  std::span<const std::int32_t> level_rank() const { return level_rank_; }
  std::span<const std::int32_t> subtree_sizes() const { return subtree_sizes_; }
  const NodeSet& ancestors(int node) const { return ancestors_[node]; }  // strict
  std::vector<std::int32_t> path(int node) const;                        // root .. node

 private:
  std::vector<std::int32_t> parents_, depths_, dfs_order_, dfs_rank_, level_order_, level_rank_, subtree_sizes_;
  std::vector<NodeSet> ancestors_;
  int depth_ = 0;
};

// The tree renumbered: node i becomes new_label[i]. new_label must be a permutation that keeps parents first.
Result<Tree> relabel(const Tree& tree, std::span<const std::int32_t> new_label);
// A random permutation that keeps parents before children (for relabelling), from a seed.
std::vector<std::int32_t> random_topological_labels(const Tree& tree, std::uint64_t seed);

// Heavy-light decomposition: chain_of[i] is the chain of node i, chains[c] its nodes from the top down. Chains are
// ordered by their top's depth-first rank, so a chain's parent chain comes first.
struct ChainDecomposition {
  std::vector<std::int32_t> chain_of;
  std::vector<std::vector<std::int32_t>> chains;
};
ChainDecomposition decompose_chains(const Tree& tree);

// ---- families --------------------------------------------------------------------------------------------------
// The same (family, parameters, seed) gives the same tree on every platform.
struct FamilySpec {
  std::string name = "best-first";  // one of family_names()
  int nodes = 64;
  int top_k = 4;           // balanced, best-first, specla
  int depth = 8;           // limit of best-first; spine of skewed, spine, specla (nodes - 1 if that is less)
  std::uint64_t seed = 0;  // random, best-first
};
std::span<const char* const> family_names();
Result<Tree> make_family(const FamilySpec& spec);

// ---- text forms (docs/trees.md) ---------------------------------------------------------------------------------
enum class TreeFormat { detect, parents, choices, tuples, retrieve, successors, mask, widths };
Result<TreeFormat> tree_format_from_name(std::string_view name);
std::string_view name_of(TreeFormat format);

// A text may hold several trees (retrieve rows, a list of tuple strings).
struct ParsedTrees {
  TreeFormat format = TreeFormat::parents;
  std::vector<Tree> trees;
};
// `origin` (a file name or "<text>") starts every message: origin, place, what was expected, what was found.
Result<ParsedTrees> parse_trees(std::string_view text, TreeFormat format = TreeFormat::detect,
                                std::string_view origin = "<text>");
// JSON that parse_trees reads back, in any form but detect; widths is an error for a tree whose levels are not uniform.
Result<std::string> format_tree(const Tree& tree, TreeFormat format);
// A drawing with box characters, one node a line, depth-first.
std::string ascii_tree(const Tree& tree);

}  // namespace canopy
