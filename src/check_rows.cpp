// Rows of a CPU problem: the first bad slot, count, tree or destination, with the sequence and the values.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "message.hpp"

namespace canopy {
namespace {

Error bad_slot(const char* name, const Problem& problem, std::int64_t slot, int b) {
  return Error::invalid(text(name, "[b=", b, "] = ", slot, ": expected less than slots = ", problem.slots,
                             "; indices at or below ", "padding_slot = ", problem.padding_slot, " mark a padding row"));
}

Error bad_tree(const Problem& problem, int b, int node) {
  if (problem.trees.parents) {
    const std::int32_t parent = problem.trees.parents[b * problem.trees.row_stride + node];
    const char* why = parent < 0 ? "a second root, only node 0 has none" : "a parent must precede its child";
    return Error::invalid(text("trees.parents[b=", b, "][", node, "] = ", parent, ": ", why,
                               " (expected 0 <= parent < ", node, "); renumber the nodes parents first"));
  }
  const std::int64_t at = b * problem.trees.row_stride + node;
  return Error::invalid(text("trees.next_token, trees.next_sibling at [b=", b, "][", node,
                             "] = ", problem.trees.next_token[at], ", ", problem.trees.next_sibling[at],
                             ": expected links that reach each of the ", count_of(problem, b),
                             " live nodes once, from a parent to later children, and -1 for none"));
}

}  // namespace

Error check_rows(const Problem& problem) {
  for (int b = 0; b < problem.batch; ++b) {
    const std::int32_t flags = row_flags(problem, b);
    if (flags == 0) continue;
    if (flags & CANOPY_ROW_BAD_SLOT) {
      const std::int64_t slot = slot_of(problem, problem.slot_index, b);
      return bad_slot("slot_index", problem, slot, b);
    }
    if (flags & CANOPY_ROW_BAD_COUNT) {
      return Error::invalid(text("trees.count[b=", b, "] = ", problem.trees.count[b],
                                 ": expected 0 <= count <= nodes = ", problem.nodes,
                                 "; give row_status to have such a row flagged and the others run"));
    }
    std::int32_t parents[CANOPY_MAX_NODES];
    int bad = 0;
    row_parents(problem, b, parents, &bad);
    return bad_tree(problem, b, bad);
  }
  return {};
}

Error check_rows(const CommitParams& params) {
  const Problem& problem = params.problem;
  if (Error error = check_rows(problem); !error.ok()) return error;

  // A slot that a row writes may be touched by that row alone: rows run in any order.
  struct Touch {
    std::int64_t slot;
    int row;
    const char* as;  // "slot_index" when only read
    bool written;
  };
  constexpr int kFewRows = 64;  // whose touches need no allocation
  Touch few[3 * kFewRows];
  std::vector<Touch> many(problem.batch > kFewRows ? 3 * static_cast<std::size_t>(problem.batch) : 0);
  Touch* const touches = many.empty() ? few : many.data();
  std::size_t count = 0;
  for (int b = 0; b < problem.batch; ++b) {
    const std::int64_t source = slot_of(problem, problem.slot_index, b);
    if (source < 0 || !leaf_live(problem, params.leaf, b)) continue;
    const std::int64_t dst = params.dst_slot ? slot_of(problem, params.dst_slot, b) : source;
    if (dst >= problem.slots) return bad_slot("dst_slot", problem, dst, b);
    if (dst != source) touches[count++] = {source, b, "slot_index", false};
    if (dst >= 0) touches[count++] = {dst, b, params.dst_slot ? "dst_slot" : "slot_index", true};
    if (!leaf_live(problem, params.track_leaf, b)) continue;
    const std::int64_t track = slot_of(problem, params.track_slot, b);
    if (track >= problem.slots) return bad_slot("track_slot", problem, track, b);
    if (track >= 0 && track == dst) {
      return Error::invalid(text("track_slot[b=", b, "] = ", track,
                                 ": expected another slot than the row's destination ", dst,
                                 ", two states cannot go to one slot; give it a slot of its own or a padding index"));
    }
    if (track >= 0) touches[count++] = {track, b, "track_slot", true};
  }
  std::sort(touches, touches + count,
            [](const Touch& x, const Touch& y) { return x.slot != y.slot ? x.slot < y.slot : x.row < y.row; });
  for (std::size_t first = 0, end = 0; first < count; first = end) {
    bool written = false;
    for (end = first; end < count && touches[end].slot == touches[first].slot; ++end) written |= touches[end].written;
    const Touch &x = touches[first], &y = touches[end - 1];  // of different rows if any two are
    if (!written || x.row == y.row) continue;
    return Error::invalid(text(y.as, "[b=", y.row, "] = ", y.slot, ": sequence ", x.row, " uses the same slot (its ",
                               x.as,
                               ") and one of them writes it; expected each written slot to belong to one sequence; "
                               "give one of them another"));
  }
  return {};
}

}  // namespace canopy
