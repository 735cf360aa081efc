// Trees for the page: read, made, written, and their plan.
#include <algorithm>
#include <cstring>

#include "module.hpp"

namespace canopy::wasm {
namespace {

constexpr TreeFormat kFormats[] = {TreeFormat::detect, TreeFormat::parents,  TreeFormat::choices,
                                   TreeFormat::tuples, TreeFormat::retrieve, TreeFormat::successors,
                                   TreeFormat::mask,   TreeFormat::widths};
constexpr int kFormatCount = sizeof kFormats / sizeof *kFormats;

// Bytes of memory from verification until commit, a layer and sequence: HV value heads of a V x K state in fp32.
constexpr double kHeadsV = 32, kDimK = 128, kDimV = 128, kLayers = 24;  // Qwen3.5-9B (README)

std::vector<std::int32_t> numbers;  // what the last array call returned

template <class Range>
const std::int32_t* give(const Range& values) {
  numbers.assign(values.begin(), values.end());
  return numbers.data();
}

}  // namespace

Session& session() {
  static Session one;
  return one;
}

int fail(const Error& error) {
  session().text = error.message;
  return kFailed;
}

void set_tree(Tree tree) {
  Session& s = session();
  s.tree = std::move(tree);
  build_plan(s.tree.parents().data(), s.tree.size(), s.plan);
}

// Room for `bytes` bytes of text, which the caller fills in; also where every answer in words stands.
CANOPY_WASM(canopy_room) char* canopy_room(int bytes) {
  session().text.assign(static_cast<std::size_t>(std::max(bytes, 0)), '\0');
  return session().text.data();
}
CANOPY_WASM(canopy_text) const char* canopy_text() { return session().text.data(); }
CANOPY_WASM(canopy_text_bytes) int canopy_text_bytes() { return static_cast<int>(session().text.size()); }

// The text as trees of a form (an index of canopy_format_name): how many; the first one becomes the tree.
CANOPY_WASM(canopy_read) int canopy_read(int format) {
  if (format < 0 || format >= kFormatCount)
    return fail(Error::invalid("format: expected an index of canopy_format_name"));
  Result<ParsedTrees> parsed = parse_trees(session().text, kFormats[format], "the text");
  if (!parsed) return fail(parsed.error());
  if (parsed->trees.empty()) return fail(Error::invalid("the text: expected a tree, found an empty list"));
  session().found = std::move(parsed->trees);
  set_tree(session().found[0]);
  return static_cast<int>(session().found.size());
}
CANOPY_WASM(canopy_pick) int canopy_pick(int index) {
  if (index < 0 || index >= static_cast<int>(session().found.size()))
    return fail(Error::invalid("the text holds " + std::to_string(session().found.size()) +
                               " trees; asked for number " + std::to_string(index)));
  set_tree(session().found[static_cast<std::size_t>(index)]);
  return 0;
}

CANOPY_WASM(canopy_family)
int canopy_family(int index, int nodes, int top_k, int depth, std::uint32_t seed_low, std::uint32_t seed_high) {
  const auto names = family_names();
  if (index < 0 || index >= static_cast<int>(names.size()))
    return fail(Error::invalid("family: expected an index of canopy_family_name"));
  Result<Tree> tree = make_family({.name = names[static_cast<std::size_t>(index)],
                                   .nodes = nodes,
                                   .top_k = top_k,
                                   .depth = depth,
                                   .seed = std::uint64_t{seed_high} << 32 | seed_low});
  if (!tree) return fail(tree.error());
  set_tree(std::move(*tree));
  return 0;
}

// Names by index, in canopy_text; -1 past the last.
CANOPY_WASM(canopy_family_name) int canopy_family_name(int index) {
  const auto names = family_names();
  if (index < 0 || index >= static_cast<int>(names.size())) return kFailed;
  session().text = names[static_cast<std::size_t>(index)];
  return 0;
}
CANOPY_WASM(canopy_format_name) int canopy_format_name(int index) {
  if (index < 0 || index >= kFormatCount) return kFailed;
  session().text = std::string(name_of(kFormats[index]));
  return 0;
}

// The tree written out in a form, in canopy_text.
CANOPY_WASM(canopy_write) int canopy_write(int format) {
  if (format <= 0 || format >= kFormatCount)
    return fail(Error::invalid("format: expected an index of canopy_format_name, not detect"));
  Result<std::string> written = format_tree(session().tree, kFormats[format]);
  if (!written) return fail(written.error());
  session().text = std::move(*written);
  return 0;
}

CANOPY_WASM(canopy_nodes) int canopy_nodes() { return session().tree.size(); }
CANOPY_WASM(canopy_depth) int canopy_depth() { return session().tree.depth(); }

// [T] int32 by node: 0 parents, 1 depths, 2 depth-first ranks, 3 level ranks, 4 subtree sizes;
// by depth-first rank: 5 the node, 6 ancestors outside its 16-row block.
CANOPY_WASM(canopy_tree_array) const std::int32_t* canopy_tree_array(int which) {
  const Session& s = session();
  switch (which) {
    case 0:
      return give(s.tree.parents());
    case 1:
      return give(s.tree.depths());
    case 2:
      return give(s.tree.dfs_rank());
    case 3:
      return give(s.tree.level_rank());
    case 4:
      return give(s.tree.subtree_sizes());
    case 5:
      return give(s.tree.dfs_order());
    case 6:
      return give(std::span(s.plan.prefix, static_cast<std::size_t>(s.plan.nodes)));
  }
  return nullptr;
}

// [T][kMaxNodes / 32] the strict ancestors of each node, bit j of word j / 32 for node j.
CANOPY_WASM(canopy_ancestors) const std::uint32_t* canopy_ancestors() {
  static std::vector<std::uint32_t> words;
  const Tree& tree = session().tree;
  words.clear();
  for (int i = 0; i < tree.size(); ++i) {
    for (const std::uint64_t word : tree.ancestors(i)) {
      words.push_back(static_cast<std::uint32_t>(word));
      words.push_back(static_cast<std::uint32_t>(word >> 32));
    }
  }
  return words.data();
}

// The blocks of `rows` depth-first ranks: how many, then first, rows, ancestors of each.
CANOPY_WASM(canopy_blocks) const std::int32_t* canopy_blocks(int rows) {
  const std::vector<Block> blocks = block_plan(session().tree, rows);
  numbers = {static_cast<std::int32_t>(blocks.size())};
  for (const Block& block : blocks) numbers.insert(numbers.end(), {block.first, block.rows, block.ancestors});
  return numbers.data();
}
CANOPY_WASM(canopy_dense_block_count) int canopy_dense_block_count(int rows) {
  return dense_block_count(session().tree.size(), rows);
}
CANOPY_WASM(canopy_compressed_block_count) int canopy_compressed_block_count(int rows) {
  return compressed_block_count(session().tree, rows);
}

// Bytes kept from verification until commit, one layer and sequence: 0 a state a node (snapshots), 1 U [T,HV,V] and
// l [T,HV] (pseudo-values), 2 nothing (resolve).
CANOPY_WASM(canopy_kept_bytes) double canopy_kept_bytes(int method) {
  const double rows = session().tree.size() * kHeadsV;
  return sizeof(float) * rows * (method == 0 ? kDimK * kDimV : method == 1 ? kDimV + 1 : 0);
}
// 0 HV, 1 K, 2 V, 3 GDN layers of the model that canopy_kept_bytes counts.
CANOPY_WASM(canopy_model) double canopy_model(int which) {
  const double facts[] = {kHeadsV, kDimK, kDimV, kLayers};
  return which >= 0 && which < 4 ? facts[which] : 0;
}

}  // namespace canopy::wasm
