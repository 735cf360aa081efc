#include "reference/rows.hpp"

#include "element.hpp"

namespace canopy::reference {
namespace {

template <class Params>
Rows rows_of(const Params& params, std::int32_t (*flags)(const Params&, int)) {
  const Problem& problem = params.problem;
  Rows rows;
  rows.trees.resize(static_cast<std::size_t>(problem.batch));
  for (int b = 0; b < problem.batch; ++b) {
    rows.flags.push_back(flags(params, b));
    if (rows.flags.back() || slot_of(problem, problem.slot_index, b) < 0 || count_of(problem, b) == 0) continue;
    std::int32_t parents[CANOPY_MAX_NODES];
    row_parents(problem, b, parents);
    const Result<Tree> tree = Tree::from_parents({parents, static_cast<std::size_t>(count_of(problem, b))});
    if (tree) rows.trees[static_cast<std::size_t>(b)] = *tree;
  }
  return rows;
}

// Calls visit(element index, position in [K,V]) over one head's state.
template <class Visit>
void walk_state(const Problem& problem, std::int64_t slot, int hv, Visit visit) {
  const std::int64_t* stride = problem.state.stride;
  const bool vk = problem.state_layout == CANOPY_STATE_VK;
  const std::int64_t k_stride = stride[vk ? 4 : 3], v_stride = stride[vk ? 3 : 4];
  const std::int64_t origin = slot * stride[1] + hv * stride[2];
  for (int r = 0; r < problem.dim_k; ++r) {
    for (int c = 0; c < problem.dim_v; ++c) {
      visit(origin + r * k_stride + c * v_stride, static_cast<std::size_t>(r) * problem.dim_v + c);
    }
  }
}

}  // namespace

Rows load_rows(const VerifyParams& params) {
  return rows_of<VerifyParams>(params, [](const VerifyParams& p, int b) { return row_flags(p.problem, b); });
}

Rows load_rows(const CommitParams& params) {
  return rows_of<CommitParams>(params, [](const CommitParams& p, int b) { return row_flags(p, b); });
}

Tensor at_layer(const Tensor& tensor, int layer) {
  Tensor out = tensor;
  if (out.data) out.data = static_cast<char*>(out.data) + layer * out.stride[0] * element_bytes(out.dtype);
  return out;
}

Problem at_layer(const Problem& problem, int layer) {
  Problem out = problem;
  for (Tensor* view :
       {&out.q, &out.k, &out.v, &out.g, &out.beta, &out.a, &out.b, &out.a_log, &out.dt_bias, &out.state}) {
    *view = at_layer(*view, layer);
  }
  return out;
}

std::vector<double> load_state(const Problem& problem, int layer, std::int64_t slot, int hv) {
  const Tensor pool = at_layer(problem.state, layer);
  std::vector<double> state(static_cast<std::size_t>(problem.dim_k) * problem.dim_v);
  walk_state(problem, slot, hv,
             [&](std::int64_t index, std::size_t at) { state[at] = load_element(pool.dtype, pool.data, index); });
  return state;
}

void store_state(const Problem& problem, int layer, std::int64_t slot, int hv, const std::vector<double>& state) {
  const Tensor pool = at_layer(problem.state, layer);
  walk_state(problem, slot, hv, [&](std::int64_t index, std::size_t at) {
    store_element(pool.dtype, pool.data, index, static_cast<float>(state[at]));
  });
}

template <class Real>
void store_row(const Tensor& out, int b, int t, int hv, const Real* values, int width) {
  if (!out.data) return;
  const std::int64_t row = b * out.stride[1] + t * out.stride[2] + hv * out.stride[3];
  for (int c = 0; c < width; ++c) store_element(out.dtype, out.data, row + c, static_cast<float>(values[c]));
}
template void store_row(const Tensor&, int, int, int, const float*, int);
template void store_row(const Tensor&, int, int, int, const double*, int);

}  // namespace canopy::reference
