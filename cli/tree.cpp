// canopy tree: read a draft tree in any form, or make one, and show it or write it in another form.
#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <memory>

#include "command.hpp"

namespace canopy::cli {
namespace {

using nlohmann::ordered_json;

struct TreeOptions {
  std::string file, from = "detect", to;
  FamilySpec family;
  int index = -1;
  bool json = false, generated = false;
};

ordered_json describe(const Tree& tree) {
  const auto list = [](std::span<const std::int32_t> values) {
    return ordered_json(std::vector(values.begin(), values.end()));
  };
  ordered_json blocks = ordered_json::array();
  for (const Block& block : block_plan(tree)) {
    blocks.push_back({{"first", block.first}, {"rows", block.rows}, {"ancestors", block.ancestors}});
  }
  return {{"nodes", tree.size()},
          {"depth", tree.depth()},
          {"parents", list(tree.parents())},
          {"depths", list(tree.depths())},
          {"dfs_order", list(tree.dfs_order())},
          {"level_order", list(tree.level_order())},
          {"subtree_sizes", list(tree.subtree_sizes())},
          {"blocks", blocks},
          {"dense_blocks", dense_block_count(tree.size())},
          {"compressed_blocks", compressed_block_count(tree)}};
}

std::string summary(const Tree& tree) {
  const auto leaves = std::count(tree.subtree_sizes().begin(), tree.subtree_sizes().end(), 1);
  return fmt::format("{} {}, depth {}, {} {}; {} x {} blocks of the solve: {} dense -> {} path-compressed\n", tree.size(),
                     tree.size() == 1 ? "node" : "nodes", tree.depth(), leaves, leaves == 1 ? "leaf" : "leaves", kBlockRows, kBlockRows,
                     dense_block_count(tree.size()), compressed_block_count(tree));
}

Result<std::vector<Tree>> load(const TreeOptions& options) {
  if (options.generated) {
    Result<Tree> tree = make_family(options.family);
    if (!tree) return tree.error();
    return std::vector<Tree>{std::move(*tree)};
  }
  const Result<TreeFormat> from = tree_format_from_name(options.from);
  if (!from) return Error::invalid("--from: " + from.error().message);
  const Result<std::string> source = read_text(options.file);
  if (!source) return source.error();
  Result<ParsedTrees> parsed = parse_trees(*source, *from, options.file == "-" ? "<stdin>" : options.file);
  if (!parsed) return parsed.error();
  return std::move(parsed->trees);
}

// The whole of standard output, so that a late error leaves nothing there.
Result<std::string> render(const TreeOptions& options, const std::vector<Tree>& trees) {
  const bool several = trees.size() > 1;
  std::string out;
  if (options.to == "ascii" || (options.to.empty() && !options.json)) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (several) out += fmt::format("{}tree {} of {}\n", i ? "\n" : "", i, trees.size());
      if (options.to.empty()) out += summary(trees[i]);
      out += ascii_tree(trees[i]);
    }
    return out;
  }
  std::vector<std::string> objects;
  if (options.to.empty()) {
    for (const Tree& tree : trees) objects.push_back(describe(tree).dump());
  } else {
    const Result<TreeFormat> to = tree_format_from_name(options.to);
    if (!to) return Error::invalid("--to: " + to.error().message + " (detect is for --from, ascii for --to)");
    for (const Tree& tree : trees) {
      Result<std::string> written = format_tree(tree, *to);
      if (!written) return Error::invalid("--to " + options.to + ": " + written.error().message);
      objects.push_back(std::move(*written));
    }
  }
  for (std::size_t i = 0; i < objects.size(); ++i) out += (i ? ",\n" : "") + objects[i];
  return (several ? "{\"trees\": [\n" + out + "\n]}" : out) + "\n";
}

int run(const TreeOptions& options) {
  if (options.generated == !options.file.empty()) {
    return fail(options.generated ? "tree: --family makes a tree and FILE reads one: give one of the two"
                                  : "tree: expected FILE (\"-\" for standard input) or --family NAME");
  }
  if (options.json && options.to == "ascii") return fail("tree: --to ascii is no JSON: drop --json or --to ascii");
  Result<std::vector<Tree>> trees = load(options);
  if (!trees) return fail(trees.error().message);
  if (options.index >= 0) {
    if (options.index >= static_cast<int>(trees->size())) {
      return fail(fmt::format("--index {}: expected 0..{}, {} holds {} tree{}", options.index, trees->size() - 1,
                              options.generated ? "the family" : options.file, trees->size(),
                              trees->size() == 1 ? "" : "s"));
    }
    trees = std::vector<Tree>{(*trees)[options.index]};
  }
  const Result<std::string> text = render(options, *trees);
  if (!text) return fail(text.error().message);
  std::fwrite(text->data(), 1, text->size(), stdout);
  return kGood;
}

}  // namespace

void add_tree_command(CLI::App& app, int& status) {
  const auto options = std::make_shared<TreeOptions>();
  CLI::App* command = app.add_subcommand("tree", "show a draft tree, or write it in another form (docs/trees.md)");
  command->add_option("FILE", options->file, "a tree in any form; - reads standard input");
  command
      ->add_option("--from", options->from,
                   "form of FILE: detect, parents, choices, tuples, retrieve, successors, mask, widths")
      ->capture_default_str();
  command->add_option("--to", options->to,
                      "write parents, choices, tuples, retrieve, successors, mask, widths (JSON) or ascii (a drawing)");
  command->add_option("--index", options->index, "only this tree of FILE, from 0")->check(CLI::Range(0, INT_MAX));
  command->add_flag("--json", options->json, "orders, subtree sizes and blocks as JSON");
  add_family_options(*command, options->family);
  command->callback([command, options, &status] {
    options->generated = command->count("--family") > 0;
    for (const char* flag : {"--nodes", "--top-k", "--depth", "--seed"}) {
      if (options->generated || command->count(flag) == 0) continue;
      status = fail(fmt::format("tree: {} shapes a family: add --family NAME", flag));
      return;
    }
    if (options->generated && command->count("--from") > 0) {
      status = fail("tree: --from is the form of a FILE: drop it, --family makes the tree");
      return;
    }
    status = run(*options);
  });
}

}  // namespace canopy::cli
