// Rows of a problem on the host: the slot, the tree and the health of one sequence.
#include "canopy/problem.hpp"

#include "canopy/plan.hpp"

namespace canopy {
namespace {

std::int64_t raw_index(const Problem& problem, const void* index, int b) {
  if (problem.slot_index_dtype == CANOPY_I64) return static_cast<const std::int64_t*>(index)[b];
  return static_cast<const std::int32_t*>(index)[b];
}

}  // namespace

std::int64_t slot_of(const Problem& problem, const void* index, int b) {
  if (!index) return b;
  const std::int64_t slot = raw_index(problem, index, b);
  return slot <= problem.padding_slot ? -1 : slot;
}

bool row_parents(const Problem& problem, int b, std::int32_t* out, int* bad) {
  const int nodes = count_of(problem, b);
  const std::int64_t row = b * problem.trees.row_stride;
  if (!problem.trees.parents) {
    if (nodes == 0) return true;
    return parents_from_links(problem.trees.next_token + row, problem.trees.next_sibling + row, nodes, out, bad);
  }
  for (int i = 0; i < nodes; ++i) {
    const std::int32_t parent = i == 0 ? -1 : problem.trees.parents[row + i];
    if (i > 0 && (parent < 0 || parent >= i)) {
      if (bad) *bad = i;
      return false;
    }
    out[i] = parent;
  }
  return true;
}

std::int32_t row_flags(const Problem& problem, int b) {
  const std::int64_t slot = slot_of(problem, problem.slot_index, b);
  if (slot < 0) return 0;
  std::int32_t flags = slot >= problem.slots ? CANOPY_ROW_BAD_SLOT : 0;
  const int count = count_of(problem, b);
  if (count < 0 || count > problem.nodes) return flags | CANOPY_ROW_BAD_COUNT;
  std::int32_t parents[CANOPY_MAX_NODES];
  return row_parents(problem, b, parents) ? flags : flags | CANOPY_ROW_BAD_TREE;
}

bool leaf_live(const Problem& problem, const std::int32_t* leaf, int b) {
  return leaf && leaf[b] >= 0 && leaf[b] < count_of(problem, b);
}

std::int32_t row_flags(const CommitParams& params, int b) {
  const Problem& problem = params.problem;
  std::int32_t flags = row_flags(problem, b);
  if (flags || slot_of(problem, problem.slot_index, b) < 0 || !leaf_live(problem, params.leaf, b)) return flags;
  const void* destination = params.dst_slot ? params.dst_slot : problem.slot_index;
  const std::int64_t dst = slot_of(problem, destination, b);
  if (dst >= problem.slots) flags |= CANOPY_ROW_BAD_SLOT;
  if (leaf_live(problem, params.track_leaf, b)) {
    const std::int64_t track = slot_of(problem, params.track_slot, b);
    if (track >= problem.slots || (track >= 0 && track == dst)) flags |= CANOPY_ROW_BAD_SLOT;
  }
  return flags;
}

}  // namespace canopy
