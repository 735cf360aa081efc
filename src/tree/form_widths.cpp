// SpecInfer's level widths.
#include "message.hpp"
#include "tree/forms.hpp"

namespace canopy::forms {

// <k1, .., km>: every node of level i-1 has k_i children; the root, level 0, is implied.
Result<Parents> parents_from_widths(const Numbers& widths, const std::string& label) {
  Parents parents = {-1};
  std::size_t level_first = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] < 1) {
      return Error::invalid(
          text(at(label, i), ": expected at least 1 child for every node of level ", i, ", found ", widths[i]));
    }
    const std::size_t level_end = parents.size(), level = level_end - level_first;
    if (static_cast<std::uint64_t>(widths[i]) > (kMaxNodes - level_end) / level) {
      return Error::invalid(text(at(label, i), " = ", widths[i], ": ", level, " nodes with ", widths[i],
                                 " children each make more than ", kMaxNodes, " nodes (", level_end,
                                 " before this level); use smaller widths"));
    }
    for (std::size_t parent = level_first; parent < level_end; ++parent) {
      parents.insert(parents.end(), static_cast<std::size_t>(widths[i]), static_cast<std::int32_t>(parent));
    }
    level_first = level_end;
  }
  return parents;
}

Result<Forest> read_widths(json::Value value, const std::string& label) {
  const Result<Numbers> widths = read_integers(value, label, "children of each node of a level");
  if (!widths) return widths.error();
  Result<Parents> parents = parents_from_widths(*widths, label);
  if (!parents) return parents.error();
  return Forest{std::move(*parents)};
}

}  // namespace canopy::forms
