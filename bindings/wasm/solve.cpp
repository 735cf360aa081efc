// A small real problem solved step by step for the page, and the whole reference for the golden files.
#include <algorithm>
#include <cmath>

#include "module.hpp"
#include "reference/sample.hpp"
#include "reference/system.hpp"

namespace canopy::wasm {
namespace {

using namespace reference;

constexpr int kSampleK = 32, kSampleV = 8;

struct Answer {
  Output<double> output;
  std::vector<double> state;
  std::vector<double> residual;  // [steps + 1]
  std::vector<double> error;     // [steps + 1][T]
};
Answer answer;

constexpr int kSolverCount = sizeof kSolvers / sizeof *kSolvers;

double square(double x) { return x * x; }
double finite_or_inf(double x) { return std::isfinite(x) ? x : HUGE_VAL; }

// |R - (I + G) U| / |R|, Frobenius, in fp64.
double residual_of(const System<double>& s, const std::vector<float>& u) {
  const int T = s.nodes, V = s.dim_v;
  double sum = 0, norm = 0;
  std::vector<double> row(V);
  for (int i = 0; i < T; ++i) {
    for (int c = 0; c < V; ++c) row[c] = s.r[std::size_t(i) * V + c] - u[std::size_t(i) * V + c];
    for (int j = 0; j < i; ++j) {
      if (!contains(s.ancestors[i], j)) continue;
      for (int c = 0; c < V; ++c) row[c] -= s.g[std::size_t(i) * T + j] * u[std::size_t(j) * V + c];
    }
    for (int c = 0; c < V; ++c) sum += square(row[c]), norm += square(s.r[std::size_t(i) * V + c]);
  }
  return finite_or_inf(std::sqrt(sum / norm));
}

// |u_i - u_i of the oracle| over the root mean square of the oracle's rows, added for each node.
void add_errors(const Output<double>& truth, const std::vector<float>& u, int T, int V) {
  double norm = 0;
  for (const double x : truth.u) norm += square(x);
  for (int i = 0; i < T; ++i) {
    double sum = 0;
    for (int e = i * V; e < (i + 1) * V; ++e) sum += square(u[e] - truth.u[e]);
    answer.error.push_back(finite_or_inf(std::sqrt(sum / (norm / T))));
  }
}

bool ready() { return session().head.tree == &session().tree && session().tree.size() > 0; }
Error not_ready() {
  return Error::invalid("there is no head: call canopy_sample or canopy_head after choosing a tree");
}

}  // namespace

CANOPY_WASM(canopy_solver_name) int canopy_solver_name(int index) {
  if (index < 0 || index >= kSolverCount) return kFailed;
  session().text = std::string(name_of(kSolvers[index]));
  return 0;
}

// A head for the tree from a seed: keys with the given cosine between any two; `forgets`: natural gates and betas,
// otherwise alpha = 1 and beta = 1.
CANOPY_WASM(canopy_sample) int canopy_sample(std::uint32_t seed, double cosine, int forgets) {
  if (!(cosine >= 0 && cosine <= 1)) return fail(Error::invalid("cosine: expected 0 to 1"));
  Sample spec;
  spec.dim_k = kSampleK, spec.dim_v = kSampleV, spec.seed = seed, spec.cosine = cosine;
  if (!forgets) {
    spec.gate = [](int, int) { return 0.0; };
    spec.beta = [](int, int) { return 1.0; };
  }
  session().head = sample_head(session().tree, spec);
  return 0;
}

// A head of zeros for the tree, which the caller fills in.
CANOPY_WASM(canopy_head) int canopy_head(int dim_k, int dim_v) {
  if (dim_k < 1 || dim_k > 256 || dim_v < 1 || dim_v > 256) return fail(Error::invalid("K and V: expected 1 to 256"));
  Session& s = session();
  const std::size_t T = s.tree.size(), K = dim_k, V = dim_v;
  s.head = {&s.tree,
            dim_k,
            dim_v,
            std::vector<double>(T * K),
            std::vector<double>(T * K),
            std::vector<double>(T * V),
            std::vector<double>(T),
            std::vector<double>(T),
            std::vector<double>(K * V)};
  return 0;
}
// 0 q [T,K], 1 k [T,K], 2 v [T,V], 3 g [T], 4 beta [T], 5 S0 [K,V].
CANOPY_WASM(canopy_head_array) double* canopy_head_array(int which) {
  Head<double>& head = session().head;
  std::vector<double>* const arrays[] = {&head.q, &head.k, &head.v, &head.g, &head.beta, &head.state};
  return which >= 0 && which < 6 ? arrays[which]->data() : nullptr;
}
CANOPY_WASM(canopy_head_width) int canopy_head_width(int which) {
  return which == 0 ? session().head.dim_k : session().head.dim_v;
}

// (E6) in fp32, watched: returns how many steps had to wait for one another. Residuals and errors also before the
// first.
CANOPY_WASM(canopy_watch) int canopy_watch(int solver, int rows) {
  if (!ready()) return fail(not_ready());
  if (solver < 0 || solver >= kSolverCount)
    return fail(Error::invalid("solver: expected an index of canopy_solver_name"));
  const Session& s = session();
  const int T = s.tree.size(), V = s.head.dim_v;
  const auto exact = build_system(s.head, ancestor_sets(s.tree));
  const auto rounded = build_system(convert<float>(s.head), ancestor_sets(s.tree));
  const Output<double> truth = oracle(s.head);
  answer.residual.clear(), answer.error.clear();
  const Watch<float> watch = [&](const std::vector<float>& u) {
    answer.residual.push_back(residual_of(exact, u));
    add_errors(truth, u, T, V);
  };
  watch(rounded.r);
  solve(rounded, s.tree, kSolvers[solver], rows, watch);
  return static_cast<int>(answer.residual.size()) - 1;
}

// All of o, u and l in fp64: solver -1 is the oracle (E1), otherwise the closed form.
CANOPY_WASM(canopy_outputs) int canopy_outputs(int solver, int rows) {
  if (!ready()) return fail(not_ready());
  if (solver >= kSolverCount) return fail(Error::invalid("solver: expected -1 or an index of canopy_solver_name"));
  answer.output = solver < 0 ? oracle(session().head) : closed_form(session().head, kSolvers[solver], rows);
  return 0;
}

// The state [K,V] after `leaf`: 0 resolve, 1 stash (of the last canopy_outputs), 2 replay.
CANOPY_WASM(canopy_commit_state) int canopy_commit_state(int method, int leaf) {
  if (!ready()) return fail(not_ready());
  const Head<double>& head = session().head;
  if (leaf < 0 || leaf >= head.tree->size()) return fail(Error::invalid("leaf: expected a node of the tree"));
  if (method == 1 && answer.output.u.size() != head.v.size())
    return fail(Error::invalid("stash: call canopy_outputs for this head first"));
  answer.state = method == 0   ? commit_resolve(head, leaf)
                 : method == 1 ? commit_stash(head, answer.output, leaf)
                               : commit_replay(head, leaf);
  return 0;
}

// 0 o [T,V], 1 u [T,V], 2 l [T], 3 state [K,V], 4 residual [steps + 1], 5 error [steps + 1][T].
CANOPY_WASM(canopy_answer) const double* canopy_answer(int which) {
  std::vector<double>* const arrays[] = {&answer.output.o, &answer.output.u, &answer.output.l,
                                         &answer.state,    &answer.residual, &answer.error};
  return which >= 0 && which < 6 ? arrays[which]->data() : nullptr;
}

}  // namespace canopy::wasm
