// The C interface of trees.
#include "canopy/plan.hpp"
#include "canopy/tree.hpp"
#include "capi.hpp"
#include "message.hpp"

using namespace canopy;

namespace {

void copy(std::span<const std::int32_t> from, std::int32_t* to) {
  if (to) std::copy(from.begin(), from.end(), to);
}

}  // namespace

extern "C" {

canopy_status canopy_tree_from_parents(const int32_t* parents, int32_t nodes, canopy_tree_arrays* out,
                                       canopy_error* error) {
  if (!out) return null_argument("out", error);
  if (!parents && nodes > 0) return null_argument("parents", error);
  if (nodes < 0) return report(Error::invalid(text("nodes = ", nodes, ": expected 1 to ", CANOPY_MAX_NODES)), error);
  const Result<Tree> tree = Tree::from_parents({parents, static_cast<std::size_t>(nodes)});
  if (!tree) return report(tree.error(), error);
  out->nodes = tree->size();
  out->depth = tree->depth();
  out->dense_blocks = dense_block_count(tree->size());
  out->compressed_blocks = compressed_block_count(*tree);
  copy(tree->parents(), out->parents);
  copy(tree->depths(), out->depths);
  copy(tree->dfs_order(), out->dfs_order);
  copy(tree->level_order(), out->level_order);
  copy(tree->subtree_sizes(), out->subtree_sizes);
  for (int i = 0; out->ancestors && i < tree->size(); ++i) {
    const NodeSet& set = tree->ancestors(i);
    std::copy(set.begin(), set.end(), out->ancestors + static_cast<std::size_t>(i) * set.size());
  }
  return report({}, error);
}

canopy_status canopy_tree_parse(const char* source, size_t length, const char* format, int32_t index, int32_t* parents,
                                int32_t* nodes, canopy_error* error) {
  if (!source && length > 0) return null_argument("text", error);
  TreeFormat form = TreeFormat::detect;
  if (format) {
    const Result<TreeFormat> named = tree_format_from_name(format);
    if (!named) return report(named.error(), error);
    form = *named;
  }
  const Result<ParsedTrees> parsed = parse_trees({source, length}, form);
  if (!parsed) return report(parsed.error(), error);
  if (index < 0 || static_cast<std::size_t>(index) >= parsed->trees.size()) {
    return report(
        Error::invalid(text("index = ", index, ": expected 0 to ", parsed->trees.size() - 1, ", the text holds ",
                            parsed->trees.size(), parsed->trees.size() == 1 ? " tree" : " trees")),
        error);
  }
  const Tree& tree = parsed->trees[static_cast<std::size_t>(index)];
  copy(tree.parents(), parents);
  if (nodes) *nodes = tree.size();
  return report({}, error);
}

canopy_status canopy_tree_write(const int32_t* parents, int32_t nodes, const char* format, char* text, size_t capacity,
                                size_t* needed, canopy_error* error) {
  if (!format) return null_argument("format", error);
  if (!text && capacity > 0) return null_argument("text", error);
  if (!parents && nodes > 0) return null_argument("parents", error);
  const Result<Tree> tree = Tree::from_parents({parents, static_cast<std::size_t>(std::max(nodes, 0))});
  if (!tree) return report(tree.error(), error);
  if (std::string_view(format) == "drawing") {
    copy_text(ascii_tree(*tree), text, capacity, needed);
    return report({}, error);
  }
  const Result<TreeFormat> form = tree_format_from_name(format);
  if (!form) return report(form.error(), error);
  const Result<std::string> written = format_tree(*tree, *form);
  if (!written) return report(written.error(), error);
  copy_text(*written, text, capacity, needed);
  return report({}, error);
}

canopy_status canopy_tree_family(const char* family, int32_t nodes, int32_t top_k, int32_t depth, uint64_t seed,
                                 int32_t* parents, canopy_error* error) {
  if (!family) return null_argument("family", error);
  const Result<Tree> tree = make_family({.name = family, .nodes = nodes, .top_k = top_k, .depth = depth, .seed = seed});
  if (!tree) return report(tree.error(), error);
  copy(tree->parents(), parents);
  return report({}, error);
}
}
