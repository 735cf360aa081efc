// The oracle: E1 taken literally in fp64, a state per node. It knows parents and nothing else (no order, mask, plan or
// cumulative gate enters a result), so an error in those cannot hide in it.
#include <utility>

#include "canopy/reference.hpp"
#include "reference/recurrence.hpp"

namespace canopy::reference {

Output<double> oracle(const Head<double>& head, std::vector<std::vector<double>>* states) {
  const auto parents = head.tree->parents();
  const int nodes = head.tree->size(), dim_k = head.dim_k, dim_v = head.dim_v;
  Output<double> out;
  out.o.assign(std::size_t(nodes) * dim_v, 0.0);
  out.u.assign(std::size_t(nodes) * dim_v, 0.0);
  out.l.assign(nodes, 0.0);

  std::vector<std::vector<double>> own;
  std::vector<std::vector<double>>& state = states ? *states : own;
  state.assign(nodes, {});
  std::vector<int> last_child(nodes, -1);  // whoever comes last takes the parent's state instead of a copy
  for (int i = 1; i < nodes; ++i) last_child[parents[i]] = i;
  for (int i = 0; i < nodes; ++i) {
    const int parent = parents[i];
    if (parent < 0) {
      state[i] = head.state;
    } else if (states || last_child[parent] != i) {
      state[i] = state[parent];
    } else {
      state[i] = std::move(state[parent]);
    }
    step(state[i].data(), &head.k[std::size_t(i) * dim_k], &head.v[std::size_t(i) * dim_v], head.g[i], head.beta[i],
         dim_k, dim_v, &out.u[std::size_t(i) * dim_v]);

    double* o = &out.o[std::size_t(i) * dim_v];
    for (int r = 0; r < dim_k; ++r) {
      const double q = head.q[std::size_t(i) * dim_k + r];
      for (int c = 0; c < dim_v; ++c) o[c] += q * state[i][std::size_t(r) * dim_v + c];
    }
    if (!states && last_child[i] < 0) state[i] = {};
    out.l[i] = clamp_log_gate(head.g[i]) + (parent < 0 ? 0.0 : out.l[parent]);  // reported only
  }
  return out;
}

}  // namespace canopy::reference
