// A commit over layers: problems of one shape stacked, the oracle's state after every node, and the pool that a commit
// should leave.
#pragma once

#include <memory>
#include <optional>

#include "canopy/reference.hpp"
#include "parity/harness.hpp"

namespace canopy::parity {

using CommitContender = Contender<CommitParams>;

// [L, ...] from L tensors of one shape.
inline HostTensor stacked(const std::vector<const HostTensor*>& layers) {
  HostTensor out = *layers.front();
  out.shape.insert(out.shape.begin(), std::int64_t(layers.size()));
  for (std::size_t i = 1; i < layers.size(); ++i)
    out.bytes.insert(out.bytes.end(), layers[i]->bytes.begin(), layers[i]->bytes.end());
  return out;
}

// Where the state of node `node` of sequence `b` should be found.
struct Placed {
  int b, node;
};

class Layers {
 public:
  // Layer i has a seed of its own; trees, counts and slots (or the slots given) are shared.
  Layers(const ProblemSpec& spec, int count, const HostTensor* slots = nullptr) {
    for (int i = 0; i < count; ++i) {
      ProblemSpec own = spec;
      own.seed += std::uint64_t(i) * 1000;
      cases_.push_back(std::make_unique<Case>(own));
      if (slots) cases_[i]->problem.tensors["slots"] = *slots;
      for (const char* shared : {"parents", "count", "slots"}) {
        if (i > 0 && cases_[0]->problem.has(shared)) cases_[i]->tensor(shared) = cases_[0]->tensor(shared);
      }
      cases_[i]->refresh();
    }
    const std::vector<std::string> names{"q", "k", "v", "g", "beta", "a", "b", "A_log", "dt_bias", "state"};
    for (const std::string& name : names) {
      if (!cases_[0]->problem.has(name)) continue;
      std::vector<const HostTensor*> list;
      for (const auto& c : cases_) list.push_back(&c->problem.tensors.at(name));
      stack_[name] = stacked(list);
    }
    params_.problem = cases_[0]->params.problem;
    params_.layers = count;
    Problem& p = params_.problem;
    const std::pair<const char*, canopy_tensor*> views[] = {
        {"k", &p.k},        {"v", &p.v}, {"g", &p.g},         {"beta", &p.beta},
        {"a", &p.a},        {"b", &p.b}, {"A_log", &p.a_log}, {"dt_bias", &p.dt_bias},
        {"state", &p.state}};
    for (const auto& [name, view] : views) {
      if (stack_.count(name)) *view = stack_.at(name).view(true);
    }
    p.q = {};
    make_stash();
  }

  // Everything but leaf, method and destinations; the state pool is `pool()`.
  const CommitParams& params() const { return params_; }
  HostTensor& pool() { return stack_.at("state"); }
  const Case& layer(int i) const { return *cases_[std::size_t(i)]; }
  int live(int b) const { return live_nodes(params_.problem, b); }
  const std::string& name() const { return cases_[0]->name; }

  // The oracle's state [K,V] after a node.
  const std::vector<double>& state_after(int layer, int b, int hv, int node) {
    const Problem& p = cases_[std::size_t(layer)]->params.problem;
    auto& states = states_[{layer, b * p.heads_v + hv}];
    if (states.empty()) {
      std::vector<std::int32_t> parents(std::size_t(live(b)));
      row_parents(p, b, parents.data());
      const Tree tree = *Tree::from_parents(parents);
      reference::oracle(reference::load_head(p, b, hv, tree), &states);
    }
    return states[std::size_t(node)];
  }

  // A pool after a commit: every slot of `placed` close to the oracle, all others as in `before`, bit for bit.
  void expect_pool(const CommitContender& contender, const HostTensor& before, const HostTensor& after,
                   const std::vector<std::optional<Placed>>& placed, const std::string& what) {
    const Problem& p = params_.problem;
    const std::int64_t K = p.dim_k, V = p.dim_v, HV = p.heads_v;
    const std::size_t slot_bytes = std::size_t(HV * K * V) * host::size_of(after.dtype);
    const auto& impl = *contender.implementation;
    for (int l = 0; l < params_.layers; ++l) {
      for (std::int64_t slot = 0; slot < p.slots; ++slot) {
        const std::int64_t at = l * p.slots + slot;
        const std::optional<Placed>& here = placed[std::size_t(slot)];
        if (!here) {
          EXPECT_EQ(std::memcmp(&before.bytes[at * slot_bytes], &after.bytes[at * slot_bytes], slot_bytes), 0)
              << contender.name() << " touched slot " << slot << " of layer " << l << ": " << what << ", " << name();
          continue;
        }
        Measure measure(after.dtype, impl.absolute_tolerance);
        for (int hv = 0; hv < HV; ++hv) {
          const std::vector<double>& truth = state_after(l, here->b, hv, here->node);
          for (std::int64_t k = 0; k < K; ++k)
            for (std::int64_t v = 0; v < V; ++v)
              measure.add(
                  truth[std::size_t(k * V + v)],
                  after.get((at * HV + hv) * K * V + (p.state_layout == CANOPY_STATE_VK ? v * K + k : k * V + v)));
        }
        const Closeness c = measure.result();
        if (!c.within(impl.relative_tolerance, impl.absolute_tolerance, after.dtype)) {
          ADD_FAILURE() << contender.name() << ", slot " << slot << " of layer " << l << ": relative " << c.relative
                        << ", max abs " << c.scaled << (c.finite ? "" : ", not finite") << ": " << what << ", "
                        << name();
        }
        if (after.dtype == CANOPY_F32) largest_error.note(c, "state, " + contender.name() + ", " + name());
      }
    }
  }

 private:
  // U and l as verification leaves them, NaN where no node lives.
  void make_stash() {
    std::vector<Outputs> runs;
    for (const auto& c : cases_) runs.push_back(run(contenders<VerifyParams>().front(), c->params));
    std::vector<const HostTensor*> u, l;
    for (const Outputs& out : runs) u.push_back(&out.u), l.push_back(&out.l);
    u_ = stacked(u), l_ = stacked(l);
    params_.stash_u = u_.view(true), params_.stash_l = l_.view(true);
  }

  std::vector<std::unique_ptr<Case>> cases_;
  std::map<std::string, HostTensor> stack_;
  std::map<std::pair<int, int>, std::vector<std::vector<double>>> states_;
  HostTensor u_, l_;
  CommitParams params_ = commit_params();
};

// Sets the method that this implementation takes.
inline void set_method(const CommitContender& contender, CommitParams& params) {
  for (params.method = 0; params.method < 3; ++params.method)
    if (contender.implementation->refuses(params).empty()) return;
  throw std::runtime_error(contender.name() + " refuses every method");
}

// Runs on a copy of `pool`, in a workspace of exactly the bytes asked for, and gives the pool back.
inline HostTensor run_commit(const CommitContender& contender, CommitParams params, const HostTensor& pool,
                             std::vector<std::int32_t>* status = nullptr, unsigned char workspace_fill = 0xff) {
  const InUse use(contender.set);
  HostTensor after = pool;
  params.problem.state.data = after.bytes.data();
  if (status) status->assign(std::size_t(params.problem.batch), -1), params.row_status = status->data();
  const auto bytes = commit_workspace(params, contender.implementation->name);
  if (!bytes) {
    ADD_FAILURE() << contender.name() << ": " << bytes.error().message;
    return after;
  }
  Fenced workspace(*bytes, workspace_fill);
  const Error error = commit(params, contender.implementation->name, workspace.data(), *bytes);
  EXPECT_TRUE(error.ok()) << contender.name() << ": " << error.message;
  EXPECT_TRUE(workspace.intact()) << contender.name() << " wrote outside its workspace of " << *bytes << " bytes";
  return after;
}

}  // namespace canopy::parity
