// The reference as registered implementations: every feature of docs/api.md, written to be read. They allocate and are
// slow; the fast implementations are held against the oracle beside them.
#include <cmath>
#include <limits>

#include "element.hpp"
#include "host_entry.hpp"
#include "message.hpp"
#include "reference/rows.hpp"
#include "registry.hpp"

namespace canopy::reference {
namespace {

// o, U and l of the live nodes of a sequence: computed, or NaN where its tree is malformed.
template <class Real>
void write_outputs(const VerifyParams& params, int b, int hv, int nodes, const Output<Real>* out) {
  const int dim_v = params.problem.dim_v;
  const std::vector<Real> nan(static_cast<std::size_t>(dim_v), std::numeric_limits<Real>::quiet_NaN());
  for (int t = 0; t < nodes; ++t) {
    const std::size_t row = static_cast<std::size_t>(t) * dim_v;
    store_row(params.o, b, t, hv, out ? &out->o[row] : nan.data(), dim_v);
    store_row(params.stash_u, b, t, hv, out ? &out->u[row] : nan.data(), dim_v);
    store_row(params.stash_l, b, t, hv, out ? &out->l[t] : nan.data(), 1);
  }
}

template <class Real, class Solve>
Error verify_rows(const VerifyParams& params, Solve solve) {
  const Problem& problem = params.problem;
  const Rows rows = load_rows(params);
#pragma omp parallel for schedule(dynamic) collapse(2)
  for (int b = 0; b < problem.batch; ++b) {
    for (int hv = 0; hv < problem.heads_v; ++hv) {
      const Tree& tree = rows.trees[static_cast<std::size_t>(b)];
      if (rows.flags[static_cast<std::size_t>(b)] == CANOPY_ROW_BAD_TREE) {
        write_outputs<Real>(params, b, hv, count_of(problem, b), nullptr);
      } else if (tree.size() > 0) {
        const Output<Real> out = solve(load_head(problem, b, hv, tree));
        write_outputs(params, b, hv, tree.size(), &out);
      }
    }
  }
  for (int b = 0; params.row_status && b < problem.batch; ++b)
    params.row_status[b] = rows.flags[static_cast<std::size_t>(b)];
  return {};
}

Error run_serial(const VerifyParams& params, void*, void*) {
  return verify_rows<double>(params, [](const Head<double>& head) { return oracle(head); });
}

Error run_closed_form(const VerifyParams& params, void*, void*) {
  return verify_rows<float>(
      params, [](const Head<double>& head) { return closed_form(convert<float>(head), Solver::path_blocked); });
}

// S after the accepted node of one head: U from the stash, decays from the gates or, where they are not given, from l.
std::vector<double> from_stash(const CommitParams& params, const Problem& layer, int l, int b, int hv, const Tree& tree,
                               int leaf) {
  const Tensor stash_u = at_layer(params.stash_u, l), stash_l = at_layer(params.stash_l, l);
  Problem reads = layer;
  reads.v = stash_u;  // v itself is not needed
  const bool gates = reads.g.data || reads.a.data;
  if (!gates) reads.g = reads.beta = stash_l;
  Head<double> head = load_head(reads, b, hv, tree);
  if (!gates) {
    const auto l_of = [&](int i) {
      return load_element(stash_l.dtype, stash_l.data,
                          b * stash_l.stride[1] + i * stash_l.stride[2] + hv * stash_l.stride[3]);
    };
    for (int i = 0; i < tree.size(); ++i) {
      const int parent = tree.parents()[static_cast<std::size_t>(i)];
      head.g[static_cast<std::size_t>(i)] = parent < 0 ? l_of(i) : double(l_of(i)) - l_of(parent);
    }
  }
  Output<double> stash;
  stash.u = head.v;
  return commit_stash(head, stash, leaf);
}

std::vector<double> state_after(const CommitParams& params, const Problem& layer, int l, int b, int hv,
                                const Tree& tree, int leaf) {
  if (params.method == CANOPY_COMMIT_STASH) return from_stash(params, layer, l, b, hv, tree, leaf);
  const Head<double> head = load_head(layer, b, hv, tree);
  return params.method == CANOPY_COMMIT_REPLAY ? commit_replay(head, leaf) : commit_resolve(head, leaf);
}

Error run_commit(const CommitParams& params, void*, void*) {
  const Problem& problem = params.problem;
  const Rows rows = load_rows(params);
#pragma omp parallel for schedule(dynamic) collapse(3)
  for (int l = 0; l < params.layers; ++l) {
    for (int b = 0; b < problem.batch; ++b) {
      for (int hv = 0; hv < problem.heads_v; ++hv) {
        const Tree& tree = rows.trees[static_cast<std::size_t>(b)];
        if (tree.size() == 0 || !leaf_live(problem, params.leaf, b)) continue;
        const Problem layer = at_layer(problem, l);
        const std::int64_t dst = slot_of(problem, params.dst_slot ? params.dst_slot : problem.slot_index, b);
        const bool tracked = leaf_live(problem, params.track_leaf, b);
        const std::int64_t track = tracked ? slot_of(problem, params.track_slot, b) : -1;
        // Both before either is written: a destination may be the source.
        std::vector<double> accepted, second;
        if (dst >= 0) accepted = state_after(params, layer, l, b, hv, tree, params.leaf[b]);
        if (track >= 0) second = state_after(params, layer, l, b, hv, tree, params.track_leaf[b]);
        if (dst >= 0) store_state(problem, l, dst, hv, accepted);
        if (track >= 0) store_state(problem, l, track, hv, second);
      }
    }
  }
  for (int b = 0; params.row_status && b < problem.batch; ++b)
    params.row_status[b] = rows.flags[static_cast<std::size_t>(b)];
  return {};
}

std::string refuses_verify(const VerifyParams& params) {
  if (params.precision > CANOPY_PRECISION_FP32) {
    return text("precision = ", params.precision,
                ": expected 0 (default) or 1 (fp32), the others are for tensor cores");
  }
  return refuses_device(params);
}

template <int kMethod>
std::string refuses_commit(const CommitParams& params) {
  constexpr const char* names[] = {"resolve", "stash", "replay"};
  if (params.method != kMethod)
    return text("method is ", names[params.method], ": expected ", names[kMethod], "; use reference_",
                names[params.method]);
  return refuses_device(params);
}

// fp64 results rounded once to fp32: half a unit in the last place, 6e-8. The closed form is fp32 throughout, and a
// commit from the stash starts from an fp32 U.
constexpr double kRounding = 1e-7, kFp32 = 1e-5;

constexpr VerifyImplementation kVerify[] = {
    {"reference_serial", "the fp64 oracle (E1), a state per node", CANOPY_CPU, kRounding, kRounding, nothing_missing,
     refuses_verify, no_workspace<VerifyParams>, run_serial},
    {"reference_closed_form", "the closed form (E2 to E7) in fp32, path-compressed blocked substitution", CANOPY_CPU,
     kFp32, kFp32, nothing_missing, refuses_verify, no_workspace<VerifyParams>, run_closed_form},
};

constexpr CommitImplementation kCommit[] = {
    {"reference_resolve", "the accepted chain solved again in fp64 (E6, E8)", CANOPY_CPU, kRounding, kRounding,
     nothing_missing, refuses_commit<CANOPY_COMMIT_RESOLVE>, no_workspace<CommitParams>, run_commit},
    {"reference_stash", "E8 from the U and l of verification, in fp64", CANOPY_CPU, kFp32, kFp32, nothing_missing,
     refuses_commit<CANOPY_COMMIT_STASH>, no_workspace<CommitParams>, run_commit},
    {"reference_replay", "E1 along the accepted path in fp64", CANOPY_CPU, kRounding, kRounding, nothing_missing,
     refuses_commit<CANOPY_COMMIT_REPLAY>, no_workspace<CommitParams>, run_commit},
};

}  // namespace
}  // namespace canopy::reference

namespace canopy {

std::span<const VerifyImplementation> reference_verify_implementations() { return reference::kVerify; }
std::span<const CommitImplementation> reference_commit_implementations() { return reference::kCommit; }

}  // namespace canopy
