// Six ways to solve (I + G) U = R (E6). All substitutions subtract a row's ancestors from the root down, so they agree
// to the bit; they differ in what can run at once and in what has to be kept at hand.
#include "canopy/plan.hpp"
#include "reference/system.hpp"

namespace canopy::reference {
namespace {

// U [T,V] in the making, with the system's row operations.
template <class Real>
struct Work {
  const System<Real>& s;
  const Watch<Real>& watch;
  std::vector<Real> u;

  Work(const System<Real>& system, const Watch<Real>& watcher) : s(system), watch(watcher), u(system.r) {}
  void step_done() const {
    if (watch) watch(u);
  }
  bool ancestor(int j, int i) const { return contains(s.ancestors[i], j); }
  // U_i -= G_ij U_j
  void subtract(int i, int j) { subtract(i, j, &u[std::size_t(j) * s.dim_v]); }
  void subtract(int i, int j, const Real* row) {
    const Real weight = s.g[std::size_t(i) * s.nodes + j];
    for (int c = 0; c < s.dim_v; ++c) u[std::size_t(i) * s.dim_v + c] -= weight * row[c];
  }
};

// Forward substitution, one row after another.
template <class Real>
std::vector<Real> solve_row(const System<Real>& s, const Watch<Real>& watch) {
  Work<Real> w(s, watch);
  for (int i = 0; i < s.nodes; ++i) {
    for (int j = 0; j < i; ++j) {
      if (w.ancestor(j, i)) w.subtract(i, j);
    }
    w.step_done();
  }
  return w.u;
}

// Blocks of b rows: first everything before the block (a matrix product), then the block's own triangle.
template <class Real>
std::vector<Real> solve_blocked(const System<Real>& s, int b, const Watch<Real>& watch) {
  Work<Real> w(s, watch);
  for (int first = 0; first < s.nodes; first += b) {
    const int last = first + b < s.nodes ? first + b : s.nodes;
    for (int i = first; i < last; ++i) {
      for (int j = 0; j < first; ++j) {
        if (w.ancestor(j, i)) w.subtract(i, j);
      }
    }
    for (int i = first; i < last; ++i) {
      for (int j = first; j < i; ++j) {
        if (w.ancestor(j, i)) w.subtract(i, j);
      }
    }
    w.step_done();
  }
  return w.u;
}

// d + 1 steps: the nodes of one depth need only shallower ones, so a level is solved at once.
template <class Real>
std::vector<Real> solve_level(const System<Real>& s, const Tree& tree, const Watch<Real>& watch) {
  Work<Real> w(s, watch);
  int level = 0;
  for (const int i : tree.level_order()) {
    if (tree.depths()[i] > level) w.step_done(), ++level;
    for (int j = 0; j < i; ++j) {
      if (w.ancestor(j, i)) w.subtract(i, j);
    }
  }
  w.step_done();
  return w.u;
}

// Path compression: blocks of b depth-first ranks. What a block needs from outside is a prefix of its first node's
// root path, and that path is a stack indexed by depth (docs/math.md).
template <class Real>
std::vector<Real> solve_path_blocked(const System<Real>& s, const Tree& tree, int b, const Watch<Real>& watch) {
  Work<Real> w(s, watch);
  const auto order = tree.dfs_order(), rank = tree.dfs_rank(), depth = tree.depths(), parent = tree.parents();
  std::vector<int> stack_node(tree.depth() + 1);                       // node at each depth of the root path
  std::vector<Real> stack_u(std::size_t(tree.depth() + 1) * s.dim_v);  // and its row of U
  std::vector<int> prefix(s.nodes);                                    // [node] ancestors outside its block
  for (const Block& block : block_plan(tree, b)) {
    const int end = block.first + block.rows;
    for (int r = block.first; r < end; ++r) {  // b x prefix, reads the stack alone
      const int i = order[r], p = parent[i];
      prefix[i] = p < 0 ? 0 : rank[p] >= block.first ? prefix[p] : depth[p] + 1;
      for (int a = 0; a < prefix[i]; ++a) w.subtract(i, stack_node[a], &stack_u[std::size_t(a) * s.dim_v]);
    }
    for (int r = block.first; r < end; ++r) {  // the b x b diagonal block
      for (int t = block.first; t < r; ++t) {
        if (w.ancestor(order[t], order[r])) w.subtract(order[r], order[t]);
      }
    }
    for (int r = block.first; r < end; ++r) {  // push; deeper entries of finished branches are simply overwritten
      const int i = order[r];
      stack_node[depth[i]] = i;
      for (int c = 0; c < s.dim_v; ++c)
        stack_u[std::size_t(depth[i]) * s.dim_v + c] = w.u[std::size_t(i) * s.dim_v + c];
    }
    w.step_done();
  }
  return w.u;
}

// M X for M [T,T] on the strict ancestor mask and X [T,columns].
template <class Real>
std::vector<Real> product(const System<Real>& s, const std::vector<Real>& m, const std::vector<Real>& x, int columns) {
  std::vector<Real> out(x.size(), Real(0));
  for (int i = 0; i < s.nodes; ++i) {
    for (int j = 0; j < i; ++j) {
      if (!contains(s.ancestors[i], j)) continue;
      const Real weight = m[std::size_t(i) * s.nodes + j];
      for (int c = 0; c < columns; ++c) out[std::size_t(i) * columns + c] += weight * x[std::size_t(j) * columns + c];
    }
  }
  return out;
}

// U = sum over m = 0..d of (-G)^m R: d products, no row waits for another. Loses all digits on deep paths with similar
// keys, where the powers grow like binomial coefficients and cancel (docs/numerics.md).
template <class Real>
std::vector<Real> solve_neumann(const System<Real>& s, int depth, const Watch<Real>& watch) {
  std::vector<Real> u = s.r, term = s.r;
  for (int m = 1; m <= depth; ++m) {
    term = product(s, s.g, term, s.dim_v);
    for (std::size_t e = 0; e < u.size(); ++e) u[e] += m % 2 ? -term[e] : term[e];
    if (watch) watch(u);
  }
  return u;
}

// The same sum as a product of ceil(log2(d + 1)) factors I + (-G)^(2^k), with the same weakness.
template <class Real>
std::vector<Real> solve_squaring(const System<Real>& s, int depth, const Watch<Real>& watch) {
  std::vector<Real> u = s.r, power = s.g;
  for (Real& entry : power) entry = -entry;
  for (int covered = 1; covered < depth + 1; covered *= 2) {
    const std::vector<Real> more = product(s, power, u, s.dim_v);
    for (std::size_t e = 0; e < u.size(); ++e) u[e] += more[e];
    if (watch) watch(u);
    if (2 * covered < depth + 1) power = product(s, power, power, s.nodes);
  }
  return u;
}

}  // namespace

std::string_view name_of(Solver solver) {
  switch (solver) {
    case Solver::row:
      return "row";
    case Solver::blocked:
      return "blocked";
    case Solver::level:
      return "level";
    case Solver::path_blocked:
      return "path_blocked";
    case Solver::neumann:
      return "neumann";
    case Solver::squaring:
      return "squaring";
  }
  return "";
}

bool stable(Solver solver) { return solver != Solver::neumann && solver != Solver::squaring; }

template <class Real>
std::vector<Real> solve(const System<Real>& system, const Tree& tree, Solver solver, int block_rows,
                        const Watch<Real>& watch) {
  const int b = block_rows < 1 ? 1 : block_rows;
  switch (solver) {
    case Solver::row:
      return solve_row(system, watch);
    case Solver::blocked:
      return solve_blocked(system, b, watch);
    case Solver::level:
      return solve_level(system, tree, watch);
    case Solver::path_blocked:
      return solve_path_blocked(system, tree, b, watch);
    case Solver::neumann:
      return solve_neumann(system, tree.depth(), watch);
    case Solver::squaring:
      return solve_squaring(system, tree.depth(), watch);
  }
  return {};
}

template std::vector<float> solve(const System<float>&, const Tree&, Solver, int, const Watch<float>&);
template std::vector<double> solve(const System<double>&, const Tree&, Solver, int, const Watch<double>&);

}  // namespace canopy::reference
