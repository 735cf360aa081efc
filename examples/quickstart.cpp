#include <canopy/canopy.hpp>
#include <cstdio>
#include <vector>
int main() {
  std::vector<int> parents{-1, 0, 0, 1, 1}, leaf{3};  // a draft tree of 5 nodes, and the node that was accepted
  std::vector<float> q(80, .5f), k(80, .25f), v(160, 1), g(10, -.1f), beta(10, .5f), state(512), o(160);
  canopy::DenseLayer layer{.nodes = 5, .heads_k = 1, .heads_v = 2, .dim_k = 16, .dim_v = 16, .parents = parents.data(),
                           .q = q.data(), .k = k.data(), .v = v.data(), .g = g.data(), .beta = beta.data(),
                           .state = state.data(), .o = o.data()};
  canopy::Error error = canopy::verify(canopy::verify_params(layer));  // every node's output; the state is untouched
  canopy::CommitParams commit = canopy::commit_params(layer);
  commit.leaf = leaf.data();
  if (error.ok()) error = canopy::commit(commit);  // the state after 0 -> 1 -> 3
  std::printf("%s: o[3] starts with %g, the state with %g\n", error.ok() ? "ok" : error.message.c_str(), o[96], state[0]);
}
