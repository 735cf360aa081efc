// The demo's page: about 110 columns, quiet colours on a terminal only.
#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "demo.hpp"
#include "parity.hpp"

namespace canopy::cli {
namespace {

constexpr int kDrawnNodes = 12;  // trees up to this size are drawn node by node
constexpr std::size_t kPageColumns = 108;

// Columns on the screen: code points, as nothing here is wide or combining.
std::size_t columns(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<int> level_widths(const Tree& tree) {
  std::vector<int> widths(tree.depth() + 1, 0);
  for (const int depth : tree.depths()) ++widths[depth];
  return widths;
}

// "1 4 8 9 3 1" and a bar a level.
std::string profile(const Tree& tree) {
  static const char* const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto widths = level_widths(tree);
  const int widest = *std::max_element(widths.begin(), widths.end());
  std::string drawing, numbers;
  for (const int width : widths) {
    drawing += bars[(width * 8 - 1) / widest];
    numbers += fmt::format(" {}", width);
  }
  return drawing + "  nodes a level:" + numbers;
}

std::string milliseconds(double seconds) {
  const double ms = seconds * 1e3;
  return fmt::format("{:.{}f}", ms, ms < 1 ? 3 : ms < 100 ? 2 : 0);
}

void print_beside(const std::vector<const DemoRow*>& group, const std::vector<std::vector<std::string>>& drawings,
                  const std::vector<std::size_t>& widths) {
  std::size_t height = 0;
  for (const auto& drawing : drawings) height = std::max(height, drawing.size());
  for (std::size_t line = 0; line < height; ++line) {
    std::string text = "  ";
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::string cell = line < drawings[i].size() ? drawings[i][line] : "";
      text += cell + std::string(widths[i] - columns(cell), ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
  fmt::print("\n");
}

}  // namespace

std::string DemoView::dim(const std::string& text) const { return colour ? "\033[2m" + text + "\033[0m" : text; }

std::string DemoView::verdict(bool passed) const {
  if (!colour) return passed ? "ok" : "FAILED";
  return passed ? "\033[32mok\033[0m" : "\033[1;31mFAILED\033[0m";
}

void DemoView::heading(const std::string& machine, const std::string& layer) const {
  fmt::print("\ncanopy {}: draft trees verified in one triangular solve\n", canopy_version());
  fmt::print("{}\n{}\n\n", dim(layer), dim(machine));
}

void DemoView::shapes(const std::vector<DemoRow>& rows) const {
  fmt::print("The trees, as their projects publish them\n\n");
  for (const DemoRow& row : rows)
    if (row.tree.size() > kDrawnNodes)
      fmt::print("  {:<28}{:>4} nodes   {}\n", row.name, row.tree.size(), profile(row.tree));
  fmt::print("\n");
  std::vector<const DemoRow*> group;
  std::vector<std::vector<std::string>> drawings;
  std::vector<std::size_t> widths;
  std::size_t used = 2;
  for (const DemoRow& row : rows) {
    if (row.tree.size() > kDrawnNodes) continue;
    std::vector<std::string> drawing = lines_of(ascii_tree(row.tree));
    drawing.insert(drawing.begin(), row.name);
    std::size_t width = 0;
    for (const auto& line : drawing) width = std::max(width, columns(line) + 3);
    if (used + width > kPageColumns && !group.empty()) {
      print_beside(group, drawings, widths);
      group.clear(), drawings.clear(), widths.clear();
      used = 2;
    }
    group.push_back(&row), drawings.push_back(drawing), widths.push_back(width);
    used += width;
  }
  if (!group.empty()) print_beside(group, drawings, widths);
}

void DemoView::times(const std::vector<DemoRow>& rows) const {
  fmt::print("Verification: every node's output, time in ms\n");
  fmt::print(
      "{}\n",
      dim("  snapshot: node by node, a state kept a node. resident: node by node, states kept only along the path.\n"
          "  one solve: the path-compressed closed form. blocks: 16 x 16 products, dense triangle -> compressed."));
  fmt::print("  {:<26}{:>4}{:>7}  {:>10} {:>10} {:>10} {:>10}  {:>7} {:>7}  {:>9}  check\n", "tree", "T", "depth",
             "blocks", "snapshot", "resident", "one solve", "vs snap", "vs res", "error");
  for (const DemoRow& row : rows) {
    const double solve = row.verify_seconds[kClosedForm];
    fmt::print("  {:<26}{:>4}{:>7}  {:>10} {:>10} {:>10} {:>10}  {:>6.1f}x {:>6.1f}x  {:>9.1e}  {}\n", row.name,
               row.tree.size(), row.tree.depth(), fmt::format("{} -> {}", row.dense_blocks, row.compressed_blocks),
               milliseconds(row.verify_seconds[kSnapshot]), milliseconds(row.verify_seconds[kResident]),
               milliseconds(solve), row.verify_seconds[kSnapshot] / solve, row.verify_seconds[kResident] / solve,
               *std::max_element(row.verify_error, row.verify_error + kDemoVerifies), verdict(row.passed));
  }
  fmt::print("\n");
}

void DemoView::memory(const std::vector<DemoRow>& rows) const {
  fmt::print("Commit: the state after the deepest path, time in ms; memory kept from verification until commit\n");
  fmt::print("{}\n",
             dim(fmt::format("  of a layer and of the model's {} layers. Resolve solves the accepted path again, stash "
                             "reads U and l, replay is the recurrence.",
                             kDemoLayers)));
  const std::string many = fmt::format("x {}", kDemoLayers);
  fmt::print("  {:<26}{:>10} {:>10}  {:>10} {:>10}  {:>7}  {:>8}{:>8}{:>8}  {:>9}\n", "tree", "snapshots", many,
             "stash", many, "resolve", "resolve", "stash", "replay", "error");
  for (const DemoRow& row : rows)
    fmt::print("  {:<26}{:>10} {:>10}  {:>10} {:>10}  {:>7}  {:>8}{:>8}{:>8}  {:>9.1e}\n", row.name,
               bytes_text(row.snapshot_bytes), bytes_text(row.snapshot_bytes * kDemoLayers),
               bytes_text(row.stash_bytes), bytes_text(row.stash_bytes * kDemoLayers), bytes_text(0),
               milliseconds(row.commit_seconds[kResolve]), milliseconds(row.commit_seconds[kStash]),
               milliseconds(row.commit_seconds[kReplay]),
               *std::max_element(row.commit_error, row.commit_error + kDemoCommits));
  double workspace = 0;
  for (const DemoRow& row : rows) workspace = std::max(workspace, row.workspace_bytes);
  fmt::print("{}\n\n", dim(fmt::format("  One solve also needs a workspace of at most {}, one for all layers.",
                                       bytes_text(workspace))));
}

void DemoView::closing(const std::vector<DemoRow>& rows) const {
  int failed = 0;
  double slowest = 0, fastest = 0, error = 0;
  for (const DemoRow& row : rows) {
    failed += !row.passed;
    const double ratio = row.verify_seconds[kSnapshot] / row.verify_seconds[kClosedForm];
    slowest = slowest == 0 ? ratio : std::min(slowest, ratio);
    fastest = std::max(fastest, ratio);
    error = std::max({error, *std::max_element(row.verify_error, row.verify_error + kDemoVerifies),
                      *std::max_element(row.commit_error, row.commit_error + kDemoCommits)});
  }
  if (failed) {
    fmt::print("{}: {} of {} trees do not agree with the fp64 oracle.\n", verdict(false), failed, rows.size());
    return;
  }
  fmt::print(
      "{}: all checks passed. {} trees, every output three ways and the accepted state three ways, the farthest\n"
      "{:.1e} (relative) from the fp64 oracle; one solve was {:.1f} to {:.1f} times faster than snapshots node by "
      "node.\n",
      verdict(true), rows.size(), error, slowest, fastest);
}

}  // namespace canopy::cli
