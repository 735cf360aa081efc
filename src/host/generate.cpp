// Problems from a seed: the trees, the ragged counts and the slots here, the numbers in generate_*.cpp.
#include "host/generate.hpp"

#include <algorithm>
#include <numeric>

#include "message.hpp"

namespace canopy::host {
namespace {

Error check_spec(const ProblemSpec& spec) {
  const auto bad = [](const auto&... pieces) { return Error::invalid(text(pieces...)); };
  if (spec.batch < 0) return bad("batch = ", spec.batch, ": expected 0 or more sequences");
  if (spec.heads_k < 1) return bad("heads = ", spec.heads_k, ": expected 1 or more key heads");
  if (spec.heads_v < 1 || spec.heads_v % spec.heads_k != 0) {
    return bad("heads-v = ", spec.heads_v, ": expected a positive multiple of heads = ", spec.heads_k);
  }
  if (spec.dim_k < 2) return bad("dim-k = ", spec.dim_k, ": expected 2 or more");
  if (spec.dim_v < 1) return bad("dim-v = ", spec.dim_v, ": expected 1 or more");
  for (const canopy_dtype dtype : {spec.input, spec.state}) {
    if (dtype != CANOPY_F32 && dtype != CANOPY_BF16 && dtype != CANOPY_F16) {
      return bad("input and state are ", dtype_name(spec.input), " and ", dtype_name(spec.state),
                 ": expected f32, bf16 or f16");
    }
  }
  if (!(spec.key_cosine >= 0 && spec.key_cosine <= 1)) {
    return bad("key-cosine = ", spec.key_cosine, ": expected 0 to 1");
  }
  if (!(spec.state_scale >= 0 && spec.state_scale <= 1e30)) {
    return bad("state-scale = ", spec.state_scale, ": expected 0 to 1e30");
  }
  if (spec.raw_gates && spec.gates == Gates::positive) {
    return bad("gates positive with raw gates: expected another kind, -exp(A_log) softplus(...) is never positive");
  }
  // 2^40 elements are far past any memory and keep every product below in 64 bits.
  const double state = 1.0 * (2.0 * spec.batch + 3) * spec.heads_v * spec.dim_k * spec.dim_v;
  const double rows = 1.0 * spec.batch * kMaxNodes * spec.heads_v * std::max(spec.dim_k, spec.dim_v);
  if (state > 0x1p40 || rows > 0x1p40)
    return bad("the problem would hold more than 2^40 elements: expected fewer sequences or heads");
  return {};
}

Result<std::vector<Tree>> trees_of(const ProblemSpec& spec) {
  if (!spec.trees.empty()) return spec.trees;
  std::vector<Tree> trees;
  FamilySpec family = spec.family;
  for (int b = 0; b < std::max(spec.batch, 1); ++b) {  // B = 0 still needs T
    family.seed = spec.family.seed + static_cast<std::uint64_t>(b);
    Result<Tree> tree = make_family(family);
    if (!tree) return tree.error();
    trees.push_back(*std::move(tree));
  }
  return trees;
}

// 0..size live nodes a sequence when ragged; the first sequence is full, the last of four or more is empty.
void fill_counts(const ProblemSpec& spec, Shapes& s, const std::vector<Tree>& trees, HostProblem& problem) {
  const Stream random = stream(spec, StreamId::count);
  bool full = true;
  for (std::int64_t b = 0; b < s.B; ++b) {
    const int size = trees[static_cast<std::size_t>(b) % trees.size()].size();
    int live = size;
    if (spec.ragged && b > 0) {
      live = static_cast<int>(random.below(static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(size) + 1));
      if (b == s.B - 1 && s.B >= 4) live = 0;
    }
    s.live.push_back(live);
    full &= live == s.T;
  }
  if (full && !spec.ragged) return;
  HostTensor count = HostTensor::make(CANOPY_I32, {s.B});
  std::copy(s.live.begin(), s.live.end(), count.i32());
  problem.tensors["count"] = std::move(count);
}

// Distinct slots of a pool larger than the batch, in random order; the second of three or more sequences is padding.
void fill_slots(const ProblemSpec& spec, const Shapes& s, HostProblem& problem) {
  const Stream random = stream(spec, StreamId::slot);
  std::vector<std::int32_t> order(static_cast<std::size_t>(s.slots));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  HostTensor slots = HostTensor::make(CANOPY_I32, {s.B});
  std::copy_n(order.begin(), s.B, slots.i32());
  if (s.B >= 3) slots.i32()[1] = -1;
  problem.tensors["slots"] = std::move(slots);
}

}  // namespace

Result<HostProblem> make_problem(const ProblemSpec& spec) {
  if (Error error = check_spec(spec); !error.ok()) return error;
  Result<std::vector<Tree>> trees = trees_of(spec);
  if (!trees) return trees.error();

  int nodes = 0;
  for (const Tree& tree : *trees) nodes = std::max(nodes, tree.size());
  Shapes s{spec.batch, nodes, spec.heads_k, spec.heads_v, spec.dim_k, spec.dim_v, spec.batch, {}};
  if (spec.slots) s.slots += spec.batch / 2 + 2;

  HostProblem problem;
  problem.layout = spec.layout;
  problem.l2norm = spec.l2norm;
  HostTensor parents = HostTensor::make(CANOPY_I32, {s.B, s.T});
  std::fill_n(parents.i32(), parents.elements(), -1);  // past a tree's end
  for (std::int64_t b = 0; b < s.B; ++b) {
    const auto from = (*trees)[static_cast<std::size_t>(b) % trees->size()].parents();
    std::copy(from.begin(), from.end(), parents.i32() + b * s.T);
  }
  problem.tensors["parents"] = std::move(parents);
  fill_counts(spec, s, *trees, problem);
  if (spec.slots) fill_slots(spec, s, problem);
  fill_keys(spec, s, problem);
  fill_values(spec, s, problem);
  fill_gates(spec, s, problem);
  return problem;
}

}  // namespace canopy::host
