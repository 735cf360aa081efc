// The fp64 model beside which rounds of verify and commit are judged: it carries its own states along the same path.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "canopy/reference.hpp"
#include "check.hpp"
#include "host/host_problem.hpp"

namespace canopy::host {

inline double relative(const std::vector<double>& want, const std::vector<double>& got) {
  double difference = 0, squares = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    difference += (got[i] - want[i]) * (got[i] - want[i]), squares += want[i] * want[i];
  return std::sqrt(difference / squares);
}

// States in fp64, [HV][K,V].
class RoundsModel {
 public:
  RoundsModel(const Problem& p, const HostTensor& pool) {
    for (int hv = 0; hv < p.heads_v; ++hv) states_.push_back(from_pool(p, pool, hv));
  }
  static std::vector<double> from_pool(const Problem& p, const HostTensor& pool, int hv) {
    const std::int64_t K = p.dim_k, V = p.dim_v;
    std::vector<double> state(K * V);
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t v = 0; v < V; ++v) state[k * V + v] = pool.get((hv * V + v) * K + k);
    return state;
  }
  // Outputs [T, HV*V] from the model's own state, which then moves to `leaf`.
  std::vector<double> step(const Problem& p, const Tree& tree, int leaf) {
    std::vector<double> o(static_cast<std::size_t>(p.nodes) * p.heads_v * p.dim_v);
#pragma omp parallel for
    for (int hv = 0; hv < p.heads_v; ++hv) {
      auto head = reference::load_head(p, 0, hv, tree);
      head.state = states_[hv];
      const auto out = reference::oracle(head);
      for (int t = 0; t < p.nodes; ++t) std::copy_n(&out.o[t * p.dim_v], p.dim_v, &o[(t * p.heads_v + hv) * p.dim_v]);
      states_[hv] = reference::commit_replay(head, leaf);
    }
    return o;
  }
  double error(const Problem& p, const HostTensor& pool) const {
    double worst = 0;
    for (int hv = 0; hv < p.heads_v; ++hv) worst = std::max(worst, relative(states_[hv], from_pool(p, pool, hv)));
    return worst;
  }

 private:
  std::vector<std::vector<double>> states_;
};

inline std::vector<double> values(const HostTensor& tensor) {
  std::vector<double> out(tensor.elements());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tensor.get(static_cast<std::int64_t>(i));
  return out;
}

}  // namespace canopy::host
