// One value head of a problem as the reference wants it: inputs converted exactly, then gates, norm and scale in fp64.
#include <cmath>

#include "canopy/reference.hpp"
#include "element.hpp"
#include "gates.hpp"
#include "reference/rows.hpp"

namespace canopy::reference {
namespace {

// Element [b,t,h,c] of a view whose last stride may be absent (three axes: c = 0).
double at(const Tensor& view, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t c = 0) {
  return load_element(view.dtype, view.data,
                      b * view.stride[1] + t * view.stride[2] + h * view.stride[3] + c * view.stride[4]);
}

// Row [b,t,h,:], normalised on request.
void append_row(const Problem& problem, const Tensor& view, int b, int t, int h, double scale,
                std::vector<double>& out) {
  const std::size_t begin = out.size();
  double sum = 0;
  for (int c = 0; c < problem.dim_k; ++c) {
    out.push_back(at(view, b, t, h, c));
    sum += out.back() * out.back();
  }
  const double norm = problem.l2norm ? inverse_norm(sum, double(problem.l2norm_eps)) : 1.0;
  for (std::size_t e = begin; e < out.size(); ++e) out[e] *= norm * scale;
}

}  // namespace

Head<double> load_head(const Problem& problem, int b, int hv, const Tree& tree) {
  const int h = hv / (problem.heads_v / problem.heads_k);
  const double scale = problem.scale != 0 ? double(problem.scale) : 1.0 / std::sqrt(double(problem.dim_k));
  Head<double> head;
  head.tree = &tree, head.dim_k = problem.dim_k, head.dim_v = problem.dim_v;
  for (int t = 0; t < tree.size(); ++t) {
    if (problem.q.data) append_row(problem, problem.q, b, t, h, scale, head.q);  // commit comes without queries
    append_row(problem, problem.k, b, t, h, 1.0, head.k);
    for (int c = 0; c < problem.dim_v; ++c) head.v.push_back(at(problem.v, b, t, hv, c));
    if (problem.g.data) {
      head.g.push_back(clamp_log_gate(at(problem.g, b, t, hv)));
    } else {
      const auto per_head = [&](const Tensor& view) {
        return double(load_element(view.dtype, view.data, hv * view.stride[1]));
      };
      head.g.push_back(log_gate_from_raw(per_head(problem.a_log), at(problem.a, b, t, hv) + per_head(problem.dt_bias)));
    }
    head.beta.push_back(problem.beta.data ? at(problem.beta, b, t, hv)
                                          : beta_from_raw(at(problem.b, b, t, hv), problem.beta_doubled != 0));
  }
  if (!problem.q.data) head.q.assign(head.k.size(), 0.0);

  head.state = load_state(problem, 0, slot_of(problem, problem.slot_index, b), hv);
  return head;
}

template <class Real>
Head<Real> convert(const Head<double>& head) {
  const auto cast = [](const std::vector<double>& x) { return std::vector<Real>(x.begin(), x.end()); };
  return {head.tree,    head.dim_k,   head.dim_v,      cast(head.q),    cast(head.k),
          cast(head.v), cast(head.g), cast(head.beta), cast(head.state)};
}
template Head<float> convert(const Head<double>&);
template Head<double> convert(const Head<double>&);

}  // namespace canopy::reference
