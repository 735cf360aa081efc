// libFuzzer: any bytes as a tree in every form. What is accepted must survive writing and reading again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "canopy/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace canopy;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  for (const TreeFormat format : {TreeFormat::detect, TreeFormat::parents, TreeFormat::choices, TreeFormat::tuples,
                                  TreeFormat::retrieve, TreeFormat::successors, TreeFormat::mask, TreeFormat::widths}) {
    const auto parsed = parse_trees(source, format, "input");
    if (!parsed) {
      if (parsed.error().ok() || parsed.error().message.rfind("input: ", 0) != 0) std::abort();
      continue;
    }
    if (parsed->trees.empty()) std::abort();
    for (const Tree& tree : parsed->trees) {
      const auto written = format_tree(tree, TreeFormat::retrieve);
      const auto again = parse_trees(*written);
      if (!again || again->trees.size() != 1) std::abort();
      for (int i = 0; i < tree.size(); ++i) {
        if (again->trees[0].parents()[i] != tree.parents()[i]) std::abort();
      }
      Plan plan;
      if (!build_plan(tree.parents().data(), tree.size(), plan) || plan.depth != tree.depth()) std::abort();
    }
  }
  return 0;
}
