// The families of trees that tests and benchmarks walk. docs/trees.md defines each; the definitions here are exact.
#include <algorithm>
#include <string>

#include "canopy/tree.hpp"
#include "tree/best_first.hpp"
#include "tree/random.hpp"

namespace canopy {
namespace {

using Parents = std::vector<std::int32_t>;

// A path of `depth` edges from the root, numbered 0..depth. A tree of n nodes is at most n - 1 deep, so the spine of a
// small tree is the whole tree.
Parents make_spine(const FamilySpec& spec) {
  Parents parents(std::min(spec.depth, spec.nodes - 1) + 1);
  for (std::size_t i = 0; i < parents.size(); ++i) parents[i] = static_cast<std::int32_t>(i) - 1;
  return parents;
}

Parents chain(const FamilySpec& spec) {
  Parents parents(spec.nodes);
  for (int i = 0; i < spec.nodes; ++i) parents[i] = i - 1;
  return parents;
}

Parents balanced(const FamilySpec& spec) {
  Parents parents(spec.nodes, -1);
  for (int i = 1; i < spec.nodes; ++i) parents[i] = (i - 1) / spec.top_k;
  return parents;
}

Parents star(const FamilySpec& spec) {
  Parents parents(spec.nodes, 0);
  parents[0] = -1;
  return parents;
}

// Odd nodes are the spine, the even node that follows is its leaf sibling.
Parents caterpillar(const FamilySpec& spec) {
  Parents parents(spec.nodes, -1);
  for (int i = 1; i < spec.nodes; ++i) parents[i] = i % 2 == 0 ? parents[i - 1] : std::max(i - 2, 0);
  return parents;
}

// Leaf j (from 0) of the remaining nodes hangs under spine node j mod depth.
Parents spine(const FamilySpec& spec) {
  Parents parents = make_spine(spec);
  const int depth = static_cast<int>(parents.size()) - 1;
  for (int j = 0; static_cast<int>(parents.size()) < spec.nodes; ++j) parents.push_back(j % depth);
  return parents;
}

// Side chain j (from 1) hangs under spine node (j-1) mod depth. Its length is the largest power of two that divides j,
// so half of the chains have one node, a quarter two and so on, cut where it would pass the spine's depth.
Parents skewed(const FamilySpec& spec) {
  Parents parents = make_spine(spec);
  const int depth = static_cast<int>(parents.size()) - 1;
  for (int j = 1; static_cast<int>(parents.size()) < spec.nodes; ++j) {
    int under = (j - 1) % depth;
    const int length = std::min({j & -j, depth - under, spec.nodes - static_cast<int>(parents.size())});
    for (int step = 0; step < length; ++step) {
      parents.push_back(under);
      under = static_cast<int>(parents.size()) - 1;
    }
  }
  return parents;
}

Parents random_tree(const FamilySpec& spec) {
  SplitMix64 random(spec.seed);
  Parents parents(spec.nodes, -1);
  for (int i = 1; i < spec.nodes; ++i) parents[i] = static_cast<std::int32_t>(random.below(i));
  return parents;
}

// The spine, then rounds over the levels 1..depth; each turn hangs one node under the earliest node of the level above
// that has fewer than top_k children. Levels grow together, as a beam's do.
Parents specla(const FamilySpec& spec) {
  Parents parents = make_spine(spec);
  const int depth = static_cast<int>(parents.size()) - 1;
  std::vector<Parents> level(depth + 1);
  std::vector<int> children(spec.nodes, 0);
  for (int d = 0; d <= depth; ++d) {
    level[d].push_back(d);
    children[d] = d < depth ? 1 : 0;
  }
  for (int turn = 0; static_cast<int>(parents.size()) < spec.nodes; ++turn) {
    const int d = turn % depth;
    const auto open = std::find_if(level[d].begin(), level[d].end(), [&](int i) { return children[i] < spec.top_k; });
    if (open == level[d].end()) continue;
    ++children[*open];
    level[d + 1].push_back(static_cast<std::int32_t>(parents.size()));
    parents.push_back(*open);
  }
  return parents;
}

struct Family {
  const char* name;
  Parents (*make)(const FamilySpec&);
  bool uses_top_k, uses_depth;
  bool bounded;  // at most top_k children and depth levels: holds 1 + k + k^2 + .. + k^depth nodes
};

constexpr Family kFamilies[] = {
    {"chain", chain, false, false, false},
    {"balanced", balanced, true, false, false},
    {"skewed", skewed, false, true, false},
    {"star", star, false, false, false},
    {"caterpillar", caterpillar, false, false, false},
    {"spine", spine, false, true, false},
    {"random", random_tree, false, false, false},
    {"best-first", best_first_parents, true, true, true},
    {"specla", specla, true, true, true},
};

// Nodes of the full top_k-ary tree of the given depth; counting stops once it passes kMaxNodes.
long capacity(int top_k, int depth) {
  long nodes = 1, level = 1;
  for (int d = 1; d <= depth && nodes <= kMaxNodes; ++d) nodes += level *= top_k;
  return nodes;
}

Error check_spec(const Family& family, const FamilySpec& spec) {
  const std::string place = std::string("family ") + family.name + ": ";
  if (spec.nodes < 1 || spec.nodes > kMaxNodes) {
    return Error::invalid(place + "nodes = " + std::to_string(spec.nodes) + ": expected 1 to " +
                          std::to_string(kMaxNodes));
  }
  if (family.uses_top_k && spec.top_k < 1) {
    return Error::invalid(place + "top_k = " + std::to_string(spec.top_k) + ": expected at least 1 child a node");
  }
  if (family.uses_depth && spec.depth < 1) {
    return Error::invalid(place + "depth = " + std::to_string(spec.depth) +
                          ": expected at least 1 level below the root");
  }
  if (family.bounded && capacity(spec.top_k, spec.depth) < spec.nodes) {
    return Error::invalid(place + "nodes = " + std::to_string(spec.nodes) + ": a tree of top_k " +
                          std::to_string(spec.top_k) + " and depth " + std::to_string(spec.depth) + " holds at most " +
                          std::to_string(capacity(spec.top_k, spec.depth)) +
                          " nodes; raise top_k or depth, or ask for fewer nodes");
  }
  return {};
}

}  // namespace

std::span<const char* const> family_names() {
  static constexpr const char* kNames[] = {"chain", "balanced", "skewed",     "star",  "caterpillar",
                                           "spine", "random",   "best-first", "specla"};
  static_assert(std::size(kNames) == std::size(kFamilies));
  return kNames;
}

Result<Tree> make_family(const FamilySpec& spec) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (spec.name == family.name) {
      if (Error error = check_spec(family, spec); !error.ok()) return error;
      return Tree::from_parents(family.make(spec));
    }
    known += std::string(known.empty() ? "" : ", ") + family.name;
  }
  return Error::invalid("family \"" + spec.name + "\" is unknown: expected one of " + known);
}

}  // namespace canopy
