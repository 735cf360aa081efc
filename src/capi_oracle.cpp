// The C interface of the fp64 oracle (E1).
#include <algorithm>

#include "capi.hpp"
#include "check.hpp"
#include "reference/rows.hpp"

using namespace canopy;

namespace {

// The problem must be sound and on the host; the outputs of the params are not used, and a bad row is an error.
Error check_host(canopy_verify_params& params) {
  params.o = stand_in_output(params.problem);
  params.stash_u.data = params.stash_l.data = nullptr;
  params.row_status = nullptr;
  if (Error error = check(params); !error.ok()) return error;
  if (params.problem.device != CANOPY_CPU) {
    return Error::unsupported(
        "device is cuda: the oracle reads host pointers; copy the tensors to the host and use 0 (cpu)");
  }
  return {};
}

void copy_rows(const std::vector<double>& rows, std::int64_t width, std::int64_t stride, double* out) {
  if (!out) return;
  for (std::size_t i = 0; i * width < rows.size(); ++i) {
    std::copy_n(rows.data() + i * width, width, out + static_cast<std::int64_t>(i) * stride);
  }
}

}  // namespace

extern "C" {

canopy_status canopy_oracle_verify(const canopy_verify_params* request, double* o, double* u, double* l,
                                   canopy_error* error) {
  if (!request) return null_argument("params", error);
  canopy_verify_params params = *request;
  if (const Error bad = check_host(params); !bad.ok()) return report(bad, error);
  const canopy_problem& p = params.problem;
  const std::int64_t T = p.nodes, HV = p.heads_v, V = p.dim_v, rows = p.batch * T * HV;
  if (o) std::fill_n(o, rows * V, 0.0);
  if (u) std::fill_n(u, rows * V, 0.0);
  if (l) std::fill_n(l, rows, 0.0);
  const reference::Rows health = reference::load_rows(params);
#pragma omp parallel for schedule(dynamic) collapse(2)
  for (int b = 0; b < p.batch; ++b) {
    for (int hv = 0; hv < p.heads_v; ++hv) {
      const Tree& tree = health.trees[static_cast<std::size_t>(b)];
      if (tree.size() == 0) continue;
      const auto out = reference::oracle(reference::load_head(p, b, hv, tree));
      const std::int64_t head = b * T * HV + hv;
      copy_rows(out.o, V, HV * V, o ? o + head * V : nullptr);
      copy_rows(out.u, V, HV * V, u ? u + head * V : nullptr);
      copy_rows(out.l, 1, HV, l ? l + head : nullptr);
    }
  }
  return report({}, error);
}

canopy_status canopy_oracle_state(const canopy_verify_params* request, const int32_t* leaf, double* state,
                                  canopy_error* error) {
  if (!request) return null_argument("params", error);
  if (!leaf && request->problem.batch > 0) return null_argument("leaf", error);
  if (!state && request->problem.batch > 0) return null_argument("state", error);
  canopy_verify_params params = *request;
  if (const Error bad = check_host(params); !bad.ok()) return report(bad, error);
  const canopy_problem& p = params.problem;
  const std::size_t each = static_cast<std::size_t>(p.dim_k) * p.dim_v;
  const reference::Rows health = reference::load_rows(params);
#pragma omp parallel for schedule(dynamic) collapse(2)
  for (int b = 0; b < p.batch; ++b) {
    for (int hv = 0; hv < p.heads_v; ++hv) {
      double* out = state + (static_cast<std::size_t>(b) * p.heads_v + hv) * each;
      const std::int64_t slot = slot_of(p, p.slot_index, b);
      std::vector<double> after(each, 0.0);
      if (slot >= 0) {
        const Tree& tree = health.trees[static_cast<std::size_t>(b)];
        after = leaf_live(p, leaf, b) ? reference::commit_replay(reference::load_head(p, b, hv, tree), leaf[b])
                                      : reference::load_state(p, 0, slot, hv);
      }
      std::copy(after.begin(), after.end(), out);
    }
  }
  return report({}, error);
}
}
