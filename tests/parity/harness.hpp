// A case: a problem with its memory and the oracle's answer. A run of a contender on it, between fences, with workspace
// and outputs poisoned, checked for everything that holds on every run.
#pragma once

#include "parity/compare.hpp"
#include "parity/contenders.hpp"

namespace canopy::parity {

using VerifyContender = Contender<VerifyParams>;
using host::HostTensor;
using host::ProblemSpec;

inline std::string describe(const ProblemSpec& s) {
  static constexpr const char* kTypes[] = {"f32", "bf16", "f16"};
  static constexpr const char* kKeys[] = {"random", "equal", "similar", "alternating", "opposite", "zero", "tiny"};
  static constexpr const char* kGates[] = {"natural",    "zero",     "all_strong", "root_strong",
                                           "root_912",   "eighth",   "half_half",  "inf_root",
                                           "inf_middle", "inf_leaf", "tiny",       "positive"};
  static constexpr const char* kBetas[] = {"natural", "zero", "one", "mixed"};
  const auto number = [](auto x) { return std::to_string(x); };
  std::string out =
      s.trees.empty() ? s.family.name + " T=" + number(s.family.nodes) : "broom T=" + number(s.trees[0].size());
  out += " B=" + number(s.batch) + " H=" + number(s.heads_k) + " HV=" + number(s.heads_v) + " K=" + number(s.dim_k) +
         " V=" + number(s.dim_v) + " " + kTypes[s.input] + "/" + kTypes[s.state] +
         (s.layout == CANOPY_STATE_VK ? " vk" : " kv");
  out +=
      std::string(" keys ") + kKeys[int(s.keys)] + " gates " + kGates[int(s.gates)] + " betas " + kBetas[int(s.betas)];
  if (s.raw_gates) out += " raw";
  if (s.l2norm) out += " l2norm";
  if (s.ragged) out += " ragged";
  if (s.slots) out += " slots";
  if (s.state_scale != 1) out += " state x " + number(s.state_scale);
  return out + " seed " + number(s.seed);
}

inline Tree tree_of(const ProblemSpec& spec) { return spec.trees.empty() ? *make_family(spec.family) : spec.trees[0]; }

// A chain of `handle` nodes, a random tree of `bristles` nodes under its end: every later node descends from the
// handle.
inline Tree broom(int handle, int bristles) {
  std::vector<std::int32_t> parents;
  for (int i = 0; i < handle; ++i) parents.push_back(i - 1);
  const Tree random = *make_family({.name = "random", .nodes = bristles});
  for (const std::int32_t parent : random.parents()) parents.push_back(handle + parent);
  return *Tree::from_parents(parents);
}

// The oracle's o, u [B,T,HV,V] and l [B,T,HV]; zeros in rows that are not live.
struct Truth {
  std::vector<double> o, u, l;
};
inline Truth solve(const VerifyParams& params) {
  const Problem& p = params.problem;
  const std::size_t rows = std::size_t(p.batch) * p.nodes * p.heads_v;
  Truth truth{std::vector<double>(rows * p.dim_v), std::vector<double>(rows * p.dim_v), std::vector<double>(rows)};
  canopy_error error;
  EXPECT_EQ(canopy_oracle_verify(&params, truth.o.data(), truth.u.data(), truth.l.data(), &error), CANOPY_OK)
      << error.message;
  return truth;
}

inline int live_nodes(const Problem& p, int b) { return slot_of(p, p.slot_index, b) < 0 ? 0 : count_of(p, b); }

struct Case {
  std::string name;
  host::HostProblem problem;
  VerifyParams params{};  // views of `problem`
  Truth truth;

  explicit Case(const ProblemSpec& spec) : name(describe(spec)) {
    auto made = host::make_problem(spec);
    if (!made) throw std::runtime_error(name + ": " + made.error().message);
    problem = *std::move(made);
    refresh();
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  HostTensor& tensor(const char* name) { return problem.tensors.at(name); }
  // After tensors were changed: new views (options set on `params` are kept), and the oracle's answer to them.
  void refresh() {
    auto view = problem.verify();
    if (!view) throw std::runtime_error(name + ": " + view.error().message);
    const Problem old = params.problem;
    params = *view;
    if (old.abi_version == 0) return;  // the first time
    params.problem.padding_slot = old.padding_slot;
    params.problem.l2norm_eps = old.l2norm_eps;
    params.problem.scale = old.scale;
  }
  Case& solved() {
    refresh();
    truth = solve(params);
    return *this;
  }
};

// o, u [B,T,HV,V], l [B,T,HV]. Bytes that a run left alone are still 0xff (a NaN in every type).
struct Outputs {
  HostTensor o, u, l;
  std::vector<std::int32_t> status;
  Error error;
};
inline HostTensor poisoned(canopy_dtype dtype, std::vector<std::int64_t> shape) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0xff});
  return tensor;
}

struct RunOptions {
  canopy_dtype output = CANOPY_F32;
  bool stash = true, status = true;
  unsigned char workspace_fill = 0xff;
};
// Through the public call, in a workspace of exactly the bytes asked for.
inline Outputs run(const VerifyContender& contender, VerifyParams params, const RunOptions& options = {}) {
  const InUse use(contender.set);
  const Problem& p = params.problem;
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  Outputs out;
  out.o = poisoned(options.output, {B, T, HV, V});
  out.u = poisoned(CANOPY_F32, {B, T, HV, V}), out.l = poisoned(CANOPY_F32, {B, T, HV});
  params.o = out.o.view();
  params.stash_u = options.stash ? out.u.view() : canopy_tensor{};
  params.stash_l = options.stash ? out.l.view() : canopy_tensor{};
  out.status.assign(std::size_t(B), -1);
  params.row_status = options.status ? out.status.data() : nullptr;
  const auto bytes = verify_workspace(params, contender.implementation->name);
  if (!bytes) {
    out.error = bytes.error();
    return out;
  }
  Fenced workspace(*bytes, options.workspace_fill);
  out.error = verify(params, contender.implementation->name, workspace.data(), *bytes);
  EXPECT_TRUE(workspace.intact()) << contender.name() << " wrote outside its workspace of " << *bytes << " bytes";
  return out;
}

inline bool same_bits(const HostTensor& x, const HostTensor& y) { return x.bytes == y.bytes; }
inline bool same_bits(const Outputs& x, const Outputs& y) {
  return same_bits(x.o, y.o) && same_bits(x.u, y.u) && same_bits(x.l, y.l);
}
// Row (b, node) of an output: all its heads.
inline std::span<const std::byte> row(const HostTensor& t, int b, int node) {
  const std::size_t each = t.bytes.size() / std::size_t(t.shape[0] * t.shape[1]);
  return {t.bytes.data() + (std::size_t(b) * t.shape[1] + node) * each, each};
}
inline bool same_row(const Outputs& x, const Outputs& y, int b, int node) {
  return std::ranges::equal(row(x.o, b, node), row(y.o, b, node)) &&
         std::ranges::equal(row(x.u, b, node), row(y.u, b, node)) &&
         std::ranges::equal(row(x.l, b, node), row(y.l, b, node));
}
inline bool untouched(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte x) { return x == std::byte{0xff}; });
}
inline bool untouched_row(const Outputs& x, int b, int node) {
  return untouched(row(x.o, b, node)) && untouched(row(x.u, b, node)) && untouched(row(x.l, b, node));
}

// Live rows of one output against the oracle.
inline Closeness closeness(const Problem& p, const std::vector<double>& reference, const HostTensor& values,
                           double absolute_tolerance) {
  Measure measure(values.dtype, absolute_tolerance);
  const std::int64_t width = std::int64_t(reference.size()) / (std::int64_t{p.batch} * p.nodes);
  for (int b = 0; b < p.batch; ++b) {
    const std::int64_t first = std::int64_t{b} * p.nodes * width;
    for (std::int64_t i = first; i < first + live_nodes(p, b) * width; ++i) measure.add(reference[i], values.get(i));
  }
  return measure.result();
}

inline void expect_close(const VerifyContender& contender, const Closeness& c, canopy_dtype dtype,
                         const std::string& where, const char* what) {
  const auto& impl = *contender.implementation;
  if (!c.within(impl.relative_tolerance, impl.absolute_tolerance, dtype)) {
    ADD_FAILURE() << what << " of " << contender.name() << " on " << where << ": relative " << c.relative
                  << " (allowed " << impl.relative_tolerance << "), max abs " << c.scaled << " (allowed "
                  << impl.absolute_tolerance << ")" << (c.finite ? "" : ", not finite") << ", live element " << c.worst;
  }
  if (dtype == CANOPY_F32) largest_error.note(c, std::string(what) + ", " + contender.name() + ", " + where);
}

// All outputs within the registry's tolerances, all other rows untouched, every row healthy.
inline void expect_parity(const VerifyContender& contender, const Problem& p, const Truth& truth, const Outputs& out,
                          const std::string& where, bool stash = true) {
  ASSERT_TRUE(out.error.ok()) << contender.name() << " on " << where << ": " << out.error.message;
  const double tolerance = contender.implementation->absolute_tolerance;
  expect_close(contender, closeness(p, truth.o, out.o, tolerance), out.o.dtype, where, "o");
  if (stash) {
    expect_close(contender, closeness(p, truth.u, out.u, tolerance), CANOPY_F32, where, "U");
    expect_close(contender, closeness(p, truth.l, out.l, tolerance), CANOPY_F32, where, "l");
  }
  for (int b = 0; b < p.batch; ++b) {
    for (int node = live_nodes(p, b); node < p.nodes; ++node)
      EXPECT_TRUE(untouched_row(out, b, node))
          << contender.name() << " on " << where << ": row " << b << ", node " << node;
  }
}

// Every contender on one solved case; verification never changes the pool.
inline void expect_parity(Case& c, canopy_dtype output = CANOPY_F32, bool stash = true) {
  const std::vector<std::byte> pool = c.tensor("state").bytes;
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const Outputs out = run(contender, c.params, {.output = output, .stash = stash});
    expect_parity(contender, c.params.problem, c.truth, out, c.name, stash);
    for (const std::int32_t status : out.status) EXPECT_EQ(status, 0) << contender.name() << " on " << c.name;
    EXPECT_EQ(c.tensor("state").bytes, pool) << contender.name() << " changed the pool: " << c.name;
  }
}
inline void expect_parity(const ProblemSpec& spec, canopy_dtype output = CANOPY_F32, bool stash = true) {
  Case c(spec);
  expect_parity(c.solved(), output, stash);
}

}  // namespace canopy::parity
