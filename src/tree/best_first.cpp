#include "tree/best_first.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

#include "tree/random.hpp"

namespace canopy {
namespace {

// Costs are -log2 of a probability in units of 1/1024 bit. A child list starts with a candidate of probability 1 to
// 0.35 (uniform cost up to 1.5 bits) and every next candidate is 0.5 to 2.5 bits less likely, as peaked draft
// distributions are. Sums of costs are joint probabilities, compared exactly.
constexpr std::int64_t kBit = 1024;
constexpr std::int64_t kFirst = 3 * kBit / 2, kStepMin = kBit / 2, kStepRange = 2 * kBit;

struct Candidate {
  std::int64_t cost;  // of the whole path from the root
  std::int32_t parent, rank, depth;
  // Ties are broken by parent, then by rank among the siblings.
  bool operator>(const Candidate& other) const {
    return std::tie(cost, parent, rank) > std::tie(other.cost, other.parent, other.rank);
  }
};

}  // namespace

std::vector<std::int32_t> best_first_parents(const FamilySpec& spec) {
  SplitMix64 random(spec.seed);
  std::vector<std::int32_t> parents = {-1};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  // A candidate is taken after its elder siblings, so ranks past kMaxNodes are never reached.
  const std::int32_t children = std::min(spec.top_k, kMaxNodes);
  const auto expand = [&](std::int32_t node, std::int64_t cost, std::int32_t depth) {
    if (depth == spec.depth) return;
    cost += static_cast<std::int64_t>(random.below(kFirst + 1));
    for (std::int32_t rank = 0; rank < children; ++rank) {
      heap.push({cost, node, rank, depth + 1});
      cost += kStepMin + static_cast<std::int64_t>(random.below(kStepRange + 1));
    }
  };
  expand(0, 0, 0);
  while (static_cast<int>(parents.size()) < spec.nodes) {
    const Candidate best = heap.top();
    heap.pop();
    parents.push_back(best.parent);
    expand(static_cast<std::int32_t>(parents.size()) - 1, best.cost, best.depth);
  }
  return parents;
}

}  // namespace canopy
