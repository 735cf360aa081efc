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

Check judge(const std::vector<double>& reference, const std::vector<float>& values, canopy_dtype dtype,
            double relative_tolerance, double absolute_tolerance) {
  Check check;
  double largest = 1;
  for (const double x : reference)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  const double rounding = unit_roundoff(dtype);
  check.relative_tolerance = relative_tolerance + rounding;
  check.absolute_tolerance = (absolute_tolerance + rounding) * largest;
  check.deviation = host::deviation(reference.data(), values.data(), static_cast<std::int64_t>(values.size()));
  check.passed = check.deviation.finite && check.deviation.relative <= check.relative_tolerance &&
                 check.deviation.max_abs <= check.absolute_tolerance;
  return check;
}

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

Result<Oracle> run_oracle(host::HostProblem& problem, int most_sequences) {
  const auto view = problem.problem();
  if (!view) return view.error();
  const double start = now();
  auto made = read_trees(*view);
  if (!made) return made;
  Oracle& oracle = *made;
  const int batch = std::min(view->batch, most_sequences), heads = view->heads_v;
  oracle.checked = batch;
  oracle.o.assign(batch * oracle.nodes * oracle.row, 0);
  oracle.u.assign(oracle.o.size(), 0);
  Progress progress("oracle", batch * heads);
  int done = 0;
#pragma omp parallel for schedule(dynamic) collapse(2)
  for (int b = 0; b < batch; ++b)
    for (int hv = 0; hv < heads; ++hv) {
      if (oracle.live[b] == 0) continue;
      const auto out = reference::oracle(reference::load_head(*view, b, hv, oracle.trees[b]));
      const int width = view->dim_v;
      for (int t = 0; t < oracle.live[b]; ++t) {
        const std::int64_t to = (b * oracle.nodes + t) * oracle.row + static_cast<std::int64_t>(hv) * width;
        std::copy_n(&out.o[static_cast<std::size_t>(t) * width], width, &oracle.o[to]);
        std::copy_n(&out.u[static_cast<std::size_t>(t) * width], width, &oracle.u[to]);
      }
#pragma omp critical(canopy_oracle_progress)
      progress.step(++done);
    }
  oracle.seconds = now() - start;
  return made;
}

Check check_rows(const Oracle& oracle, const std::vector<double>& reference, const host::HostTensor& values,
                 double relative_tolerance, double absolute_tolerance) {
  std::vector<double> expected;
  std::vector<float> got;
  const auto most = static_cast<std::size_t>(oracle.checked * oracle.nodes * oracle.row);
  expected.reserve(most), got.reserve(most);
  for (int b = 0; b < oracle.checked; ++b) {
    const std::int64_t first = b * oracle.nodes * oracle.row;
    for (std::int64_t i = first; i < first + oracle.live[b] * oracle.row; ++i) {
      expected.push_back(reference[i]);
      got.push_back(values.get(i));
    }
  }
  return judge(expected, got, values.dtype, relative_tolerance, absolute_tolerance);
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

CommitCheck check_commit(host::HostProblem& problem, const Oracle& oracle, std::span<const std::int32_t> leaf,
                         const host::HostTensor& state, double relative_tolerance, double absolute_tolerance) {
  CommitCheck result;
  const auto view = problem.problem();
  const host::HostTensor& before = problem.tensors.at("state");
  const std::int64_t K = view->dim_k, V = view->dim_v, HV = view->heads_v;
  std::vector<double> expected;
  std::vector<float> got;
  std::set<std::int64_t> changed;
  for (int b = 0; b < view->batch; ++b) {
    if (leaf[b] < 0 || leaf[b] >= oracle.live[b]) continue;
    const std::int64_t slot = slot_of(*view, view->slot_index, b);
    changed.insert(slot);
    std::vector<std::vector<double>> heads(HV);
#pragma omp parallel for
    for (int hv = 0; hv < static_cast<int>(HV); ++hv)
      heads[hv] = reference::commit_replay(reference::load_head(*view, b, hv, oracle.trees[b]), leaf[b]);
    for (int hv = 0; hv < HV; ++hv)
      for (std::int64_t k = 0; k < K; ++k)
        for (std::int64_t v = 0; v < V; ++v) {
          const std::int64_t inner = view->state_layout == CANOPY_STATE_VK ? v * K + k : k * V + v;
          expected.push_back(heads[hv][k * V + v]);
          got.push_back(state.get((slot * HV + hv) * K * V + inner));
        }
  }
  result.check = judge(expected, got, state.dtype, relative_tolerance, absolute_tolerance);
  const std::size_t slot_bytes = HV * K * V * host::size_of(state.dtype);
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
