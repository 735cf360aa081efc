#include "parity.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "host/device.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

std::span<const VerifyImplementation> registry(const VerifyParams&) { return verify_implementations(); }
std::span<const CommitImplementation> registry(const CommitParams&) { return commit_implementations(); }

}  // namespace

Result<Oracle> read_trees(const Problem& view) {
  Oracle oracle;
  oracle.nodes = view.nodes;
  oracle.row = static_cast<std::int64_t>(view.heads_v) * view.dim_v;
  for (int b = 0; b < view.batch; ++b) {
    const bool padding = slot_of(view, view.slot_index, b) < 0;
    const int live = padding ? 0 : count_of(view, b);
    std::vector<std::int32_t> parents{-1};
    if (live > 0) {
      parents.resize(live);
      row_parents(view, b, parents.data());
    }
    auto tree = Tree::from_parents(parents);
    if (!tree) return Error::invalid(fmt::format("parents: sequence {}: {}", b, tree.error().message));
    oracle.live.push_back(live);
    oracle.trees.push_back(std::move(*tree));
  }
  return oracle;
}

std::vector<int> sequences_to_check(const std::vector<int>& live, int most) {
  std::vector<int> all, picked;
  for (int b = 0; b < static_cast<int>(live.size()); ++b)
    if (live[b] > 0 || static_cast<int>(live.size()) <= most) all.push_back(b);
  const std::size_t count = all.size(), wanted = static_cast<std::size_t>(std::max(most, 1));
  if (count <= wanted) return all;
  for (std::size_t i = 0; i < wanted; ++i) picked.push_back(all[wanted > 1 ? i * (count - 1) / (wanted - 1) : 0]);
  return picked;
}

Result<Oracle> run_oracle(host::HostProblem& problem, int most_sequences) {
  const auto view = problem.problem();
  if (!view) return view.error();
  const double start = now();
  auto made = read_trees(*view);
  if (!made) return made;
  Oracle& oracle = *made;
  oracle.checked = sequences_to_check(oracle.live, most_sequences);
  const int count = static_cast<int>(oracle.checked.size()), heads = view->heads_v;
  oracle.o.assign(count * oracle.nodes * oracle.row, 0);
  oracle.u.assign(oracle.o.size(), 0);
  Progress progress("oracle", count * heads);
  int done = 0;
#pragma omp parallel for schedule(dynamic) collapse(2)
  for (int place = 0; place < count; ++place)
    for (int hv = 0; hv < heads; ++hv) {
      const int b = oracle.checked[place];
      if (oracle.live[b] == 0) continue;
      const auto out = reference::oracle(reference::load_head(*view, b, hv, oracle.trees[b]));
      const int width = view->dim_v;
      for (int t = 0; t < oracle.live[b]; ++t) {
        const std::int64_t to = (place * oracle.nodes + t) * oracle.row + static_cast<std::int64_t>(hv) * width;
        std::copy_n(&out.o[static_cast<std::size_t>(t) * width], width, &oracle.o[to]);
        std::copy_n(&out.u[static_cast<std::size_t>(t) * width], width, &oracle.u[to]);
      }
#pragma omp critical(canopy_oracle_progress)
      progress.step(++done);
    }
  oracle.seconds = now() - start;
  return made;
}

Check verdict(const host::DeviationSum& sum, canopy_dtype dtype, double relative_tolerance, double absolute_tolerance) {
  Check check;
  const double rounding = unit_roundoff(dtype);
  check.relative_tolerance = relative_tolerance + rounding;
  check.absolute_tolerance = (absolute_tolerance + rounding) * std::max(1.0, sum.largest());
  check.deviation = sum.deviation();
  check.passed = check.deviation.finite && check.deviation.relative <= check.relative_tolerance &&
                 check.deviation.max_abs <= check.absolute_tolerance;
  return check;
}

Check check_rows(const Oracle& oracle, const std::vector<double>& reference, const host::HostTensor& values,
                 double relative_tolerance, double absolute_tolerance) {
  host::DeviationSum sum;
  std::vector<float> row(oracle.row);
  const bool whole_batch = values.shape[0] == static_cast<std::int64_t>(oracle.trees.size());
  for (std::size_t place = 0; place < oracle.checked.size(); ++place) {
    const int b = oracle.checked[place];
    const std::int64_t first = (whole_batch ? b : static_cast<std::int64_t>(place)) * oracle.nodes;
    for (int t = 0; t < oracle.live[b]; ++t) {
      host::load(values.dtype, values.bytes.data(), (first + t) * oracle.row, oracle.row, row.data());
      sum.add(&reference[(place * oracle.nodes + t) * oracle.row], row.data(), oracle.row);
    }
  }
  return verdict(sum, values.dtype, relative_tolerance, absolute_tolerance);
}

Tolerance tolerance_of(const VerifyImplementation& implementation, int precision) {
  switch (precision) {
    case CANOPY_PRECISION_FP32:
      return {1e-5, 1e-4};
    case CANOPY_PRECISION_PRECISE:
      return {2e-5, 4e-5};
    case CANOPY_PRECISION_HALF:
      return {1e-3, 2e-3};
    case CANOPY_PRECISION_FAST:
      return {1e-2, 2e-2};
    default:
      return {implementation.relative_tolerance, implementation.absolute_tolerance};
  }
}

template <class Params>
Result<std::vector<const Implementation<Params>*>> select(const Params& params, const std::string& name,
                                                          std::vector<Refusal>& refused) {
  std::vector<const Implementation<Params>*> chosen;
  if (name.empty()) {
    auto choice = choose(params);
    if (!choice) return choice.error();
    chosen.push_back(choice->implementation);
    return chosen;
  }
  std::string names;
  for (const auto& entry : registry(params)) {
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
    if (name != "all" && name != entry.name) continue;
    std::string reason = entry.missing();
    if (reason.empty()) reason = entry.refuses(params);
    if (reason.empty())
      chosen.push_back(&entry);
    else if (name == "all")
      refused.push_back({entry.name, reason});
    else
      return Error::unsupported(fmt::format("--impl {}: refused: {}", name, reason));
  }
  if (chosen.empty() && name != "all")
    return Error::invalid(fmt::format("--impl: expected all or one of {}, got '{}'", names, name));
  if (chosen.empty()) return Error::unsupported("--impl all: every implementation refuses; see 'canopy explain'");
  return chosen;
}
template Result<std::vector<const VerifyImplementation*>> select(const VerifyParams&, const std::string&,
                                                                 std::vector<Refusal>&);
template Result<std::vector<const CommitImplementation*>> select(const CommitParams&, const std::string&,
                                                                 std::vector<Refusal>&);

CommitParams commit_params_of(const Problem& view, std::span<const std::int32_t> leaf, canopy_commit_method method,
                              host::VerifyRun* stash) {
  CommitParams params = commit_params();
  params.problem = view;
  params.method = method;
  params.leaf = leaf.data();
  if (stash) {
    // Stash tensors have a layer axis in front; there is one layer.
    params.stash_u = stash->u.view(false);
    params.stash_l = stash->l.view(false);
  }
  return params;
}

Result<CommitRun> run_commit(host::HostProblem& problem, const CommitParams& given,
                             const CommitImplementation& implementation) {
  CommitRun run;
  if (implementation.device == CANOPY_CUDA) {
    auto on = host::CommitOnDevice::make(problem, given, implementation);
    if (!on) return on.error();
    if (const auto seconds = on->run(); !seconds) return seconds.error();
    auto state = on->state();
    if (!state) return state.error();
    run.state = std::move(*state);
    run.workspace_bytes = on->workspace_bytes();
    return run;
  }
  run.state = problem.tensors.at("state");
  CommitParams params = given;
  params.problem.state.data = run.state.bytes.data();
  const auto bytes = commit_workspace(params, implementation.name);
  if (!bytes) return bytes.error();
  run.workspace_bytes = *bytes;
  const Workspace workspace(*bytes);
  const Error error = commit(params, implementation.name, workspace.get(), *bytes);
  if (!error.ok()) return error;
  return run;
}

std::vector<double> committed_state(const Problem& view, const Tree& tree, int b, int leaf) {
  const std::int64_t K = view.dim_k, V = view.dim_v;
  const int heads = view.heads_v;
  std::vector<double> state(heads * K * V);
#pragma omp parallel for
  for (int hv = 0; hv < heads; ++hv) {
    const auto head = reference::commit_replay(reference::load_head(view, b, hv, tree), leaf);  // [K,V]
    double* const to = &state[hv * K * V];
    if (view.state_layout != CANOPY_STATE_VK) {
      std::copy_n(head.data(), K * V, to);
      continue;
    }
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t v = 0; v < V; ++v) to[v * K + k] = head[k * V + v];
  }
  return state;
}

CommitCheck check_commit(host::HostProblem& problem, const Oracle& oracle, std::span<const std::int32_t> leaf,
                         const host::HostTensor& state, double relative_tolerance, double absolute_tolerance) {
  CommitCheck result;
  const auto view = problem.problem();
  const host::HostTensor& before = problem.tensors.at("state");
  const std::int64_t size = static_cast<std::int64_t>(view->heads_v) * view->dim_k * view->dim_v;  // of a slot
  host::DeviationSum sum;
  std::vector<float> got(size);
  std::set<std::int64_t> changed;
  for (int b = 0; b < view->batch; ++b) {
    if (leaf[b] < 0 || leaf[b] >= oracle.live[b]) continue;
    const std::int64_t slot = slot_of(*view, view->slot_index, b);
    changed.insert(slot);
    host::load(state.dtype, state.bytes.data(), slot * size, size, got.data());
    sum.add(committed_state(*view, oracle.trees[b], b, leaf[b]).data(), got.data(), size);
  }
  result.check = verdict(sum, state.dtype, relative_tolerance, absolute_tolerance);
  const std::size_t slot_bytes = size * host::size_of(state.dtype);
  for (std::int64_t slot = 0; slot < view->slots; ++slot)
    if (!changed.count(slot) &&
        std::memcmp(&state.bytes[slot * slot_bytes], &before.bytes[slot * slot_bytes], slot_bytes) != 0)
      result.untouched = false;
  return result;
}

double unit_roundoff(canopy_dtype dtype) {
  if (dtype == CANOPY_BF16) return 0x1p-8;  // 8 significant bits, round to nearest
  if (dtype == CANOPY_F16) return 0x1p-11;  // 11
  return 0;                                 // fp32 rounding is part of the registry's tolerance
}

const char* name_of(canopy_dtype dtype) {
  constexpr const char* names[] = {"f32", "bf16", "f16", "i32", "i64"};
  return names[dtype];
}

const char* name_of(canopy_commit_method method) {
  constexpr const char* names[] = {"resolve", "stash", "replay"};
  return names[method];
}

std::string bytes_text(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  if (bytes < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", bytes / (1024 * 1024));
  return fmt::format("{:.2f} GiB", bytes / (1024.0 * 1024 * 1024));
}

nlohmann::ordered_json describe(const host::HostProblem& problem, const Problem& view, const Oracle& oracle) {
  using Json = nlohmann::ordered_json;
  Json json{{"batch", view.batch},     {"nodes", view.nodes}, {"heads_k", view.heads_k},
            {"heads_v", view.heads_v}, {"dim_k", view.dim_k}, {"dim_v", view.dim_v}};
  for (const auto& [name, tensor] : problem.tensors) {
    json["shapes"][name] = tensor.shape;
    json["dtypes"][name] = name_of(tensor.dtype);
  }
  json["slots"] = view.slots;
  json["state_layout"] = problem.layout == CANOPY_STATE_VK ? "vk" : "kv";
  json["l2norm"] = problem.l2norm;
  json["scale"] = problem.scale != 0 ? problem.scale : 1 / std::sqrt(static_cast<double>(view.dim_k));
  json["trees"] = Json::array();
  for (std::size_t b = 0; b < oracle.trees.size(); ++b)
    json["trees"].push_back(Json{{"nodes", oracle.live[b]},
                                 {"depth", oracle.live[b] ? oracle.trees[b].depth() : 0},
                                 {"dense_blocks", dense_block_count(oracle.live[b])},
                                 {"compressed_blocks", oracle.live[b] ? compressed_block_count(oracle.trees[b]) : 0}});
  return json;
}

std::string describe_line(const host::HostProblem& problem, const Problem& view, const Oracle& oracle) {
  int depth = 0;
  for (std::size_t b = 0; b < oracle.trees.size(); ++b) depth = std::max(depth, oracle.trees[b].depth());
  return fmt::format("B={} T={} depth={} H={} HV={} K={} V={}, q {}, state {} {}{}{}", view.batch, view.nodes, depth,
                     view.heads_k, view.heads_v, view.dim_k, view.dim_v, name_of(problem.tensors.at("q").dtype),
                     name_of(problem.tensors.at("state").dtype), problem.layout == CANOPY_STATE_VK ? "[V,K]" : "[K,V]",
                     problem.has("a") ? ", raw gates" : "", problem.l2norm ? ", L2 norm" : "");
}

}  // namespace canopy::cli
