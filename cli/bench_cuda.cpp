// canopy bench --device cuda: graph replays, the contenders in turn, warm (the same buffers) and cold (copies that go
// round over twice the L2 cache), beside the floor kernel and the plan.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench.hpp"
#include "host/device_bench.hpp"
#include "host/device_copies.hpp"

namespace canopy::cli {
namespace {

using host::DeviceCopies, host::DeviceMemory;

constexpr int kMostCopies = 80;

// What stays in memory for one contender while all are timed.
struct Ready {
  Contender contender;
  DeviceMemory workspace;
};

// One run and its error over the sequences that the oracle ran; the outputs start as NaN.
Result<Check> check_once(const Ready& ready, DeviceCopies& copies, const Oracle& oracle) {
  VerifyParams params = copies.params(0);
  params.precision = ready.contender.precision;
  const Problem& p = params.problem;
  const VerifyImplementation& implementation = *ready.contender.implementation;
  if (Error error = copies.spoil_output(0); !error.ok()) return error;
  if (Error error = implementation.run(params, ready.workspace.data(), nullptr); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  host::HostTensor o = host::HostTensor::make(static_cast<canopy_dtype>(params.o.dtype),
                                              {oracle.checked, p.nodes, p.heads_v, p.dim_v});
  if (Error error = copies.read_output(0, o.bytes.data(), o.bytes.size()); !error.ok()) return error;
  double relative = implementation.relative_tolerance, absolute = implementation.absolute_tolerance;
  if (ready.contender.precision == CANOPY_PRECISION_FAST)
    relative = std::max(relative, 1e-2), absolute = std::max(absolute, 2e-2);
  return check_rows(oracle, oracle.o, o, relative, absolute);
}

Error time_both(const Effort& effort, std::vector<host::TimedLaunch>& launches, const std::vector<BenchCell>& cells,
                BenchShape& shape) {
  host::ReplayEffort replays;
  replays.warm_ups = effort.warm_ups, replays.repeat = effort.repeat, replays.least = effort.least;
  replays.replay_seconds = effort.replay_seconds, replays.share = effort.share;
  for (const bool cold : {false, true}) {
    if (!(cold ? effort.cold : effort.warm)) continue;
    for (auto& launch : launches) launch.seconds.clear();
    if (Error error = host::time_in_graphs(launches, cold ? shape.copies : 1, replays); !error.ok()) return error;
    for (std::size_t i = 0; i < launches.size(); ++i) {
      BenchCell cell = cells[i];
      cell.cache = cold ? "cold" : "warm";
      cell.n = static_cast<int>(launches[i].seconds.size());
      cell.seconds = quantiles(launches[i].seconds);
      shape.cells.push_back(cell);
    }
  }
  return {};
}

}  // namespace

Result<BenchShape> measure_on_device(const Effort& effort, host::HostProblem& problem, const Oracle& oracle,
                                     const host::ProblemSpec& spec, const std::string& family) {
  auto shape = shape_of(problem, spec, family);
  if (!shape) return shape.error();
  shape->checked = oracle.checked;
  const host::DeviceInfo info = host::device_info();
  shape->copies =
      effort.timed && effort.cold
          ? host::copies_for(std::clamp(static_cast<int>(2 * info.l2_bytes / shape->bytes) + 1, 2, kMostCopies))
          : 1;
  auto made = DeviceCopies::make(problem, problem.tensors.at("q").dtype, shape->copies);
  if (!made) return made.error();
  DeviceCopies& copies = *made;
  const VerifyParams first = copies.params(0);
  shape->view = first.problem;

  const auto contenders = contenders_for(effort.contenders, first);
  if (!contenders) return contenders.error();
  std::vector<Ready> ready;
  std::vector<BenchCell> cells;
  for (const Contender& contender : *contenders) {
    VerifyParams params = first;
    params.precision = contender.precision;
    const std::size_t bytes = contender.implementation->workspace(params);
    if (bytes > host::device_info().free_bytes / 2) continue;  // snapshots of a large batch
    ready.push_back({contender, DeviceMemory(bytes)});
    if (!ready.back().workspace.data()) {
      ready.pop_back();
      continue;
    }
    const auto check = check_once(ready.back(), copies, oracle);
    if (!check) return Error{check.error().status, contender.name + ": " + check.error().message};
    BenchCell cell = cell_of(contender);
    const bool serial = cell.strategy.find("serial") != std::string::npos;
    cell.check = *check;
    cell.flops = serial ? recurrence_flops(shape->view, oracle) : closed_form_flops(shape->view, oracle);
    cell.stated = bytes;
    cells.push_back(cell);
  }
  if (!effort.timed) {
    shape->cells = cells;
    return shape;
  }
  std::vector<host::TimedLaunch> launches;
  for (const Ready& each : ready)
    launches.push_back({each.contender.name,
                        [&](int i, void* stream) {
                          VerifyParams own = copies.params(i);
                          own.precision = each.contender.precision;
                          return each.contender.implementation->run(own, each.workspace.data(), stream);
                        }});
  const auto add = [&](const char* name, std::function<Error(int, void*)> launch) {
    launches.push_back({name, std::move(launch)});
    BenchCell cell;
    cell.contender = name, cell.computes = false;
    cells.push_back(cell);
  };
  const bool set = effort.contenders == "fast" || effort.contenders == "all";
  if (set || names(effort.contenders, "plan"))
    add("plan", [&](int i, void* stream) {
      Problem bare = copies.params(i).problem;
      void* const plan = const_cast<void*>(std::exchange(bare.trees.plan, nullptr));  // in memory of the copies
      return make_plans(bare, plan, copies.plan_bytes(), stream);
    });
  if ((set || names(effort.contenders, "floor")) && host::device_floor(first, nullptr).ok())
    add("floor", [&](int i, void* stream) { return host::device_floor(copies.params(i), stream); });
  if (Error error = time_both(effort, launches, cells, *shape); !error.ok()) return error;
  return shape;
}

Result<BenchShape> measure_commit_on_device(const Effort& effort, host::ProblemSpec spec, int layers) {
  spec.family.name = "best-first", spec.family.nodes = 64;
  auto problem = host::make_problem(spec);
  if (!problem) return problem.error();
  auto shape = shape_of(*problem, spec, fmt::format("commit, {} layers", layers));
  if (!shape) return shape.error();
  auto copy = DeviceCopies::make(*problem, problem->tensors.at("q").dtype, 1);
  if (!copy) return copy.error();
  const auto trees = read_trees(*problem->problem());
  if (!trees) return trees.error();
  std::vector<std::int32_t> leaf;
  for (const Tree& tree : trees->trees) {
    const auto depths = tree.depths();
    leaf.push_back(static_cast<std::int32_t>(std::find(depths.begin(), depths.end(), 5) - depths.begin()));
  }
  const host::HostTensor& state = problem->tensors.at("state");
  const std::size_t L = static_cast<std::size_t>(layers),
                    rows = problem->tensors.at("q").shape[0] * problem->tensors.at("q").shape[1];
  // All layers read the same activations (a layer stride of nothing is refused, so the copies stand one behind the
  // other).
  std::vector<DeviceMemory> held;
  CommitParams params = commit_params();
  params.problem = copy->params(0).problem;
  params.layers = layers;
  const auto repeat_tensor = [&](const char* name, canopy_tensor& view) -> Error {
    const host::HostTensor& tensor = problem->tensors.at(name);
    held.emplace_back(L * tensor.bytes.size());
    for (std::size_t l = 0; l < L; ++l)
      if (Error error = held.back().upload(tensor.bytes.data(), tensor.bytes.size(), l * tensor.bytes.size());
          !error.ok())
        return error;
    view.data = held.back().data(), view.stride[0] = tensor.elements();
    return {};
  };
  Problem& p = params.problem;
  const std::pair<const char*, canopy_tensor*> tensors[] = {
      {"k", &p.k}, {"v", &p.v}, {"g", &p.g}, {"beta", &p.beta}, {"state", &p.state}};
  for (const auto& [name, view] : tensors)
    if (Error error = repeat_tensor(name, *view); !error.ok()) return error;
  DeviceMemory leaves(leaf.size() * 4), other(L * state.bytes.size());
  const std::size_t values = rows * static_cast<std::size_t>(p.heads_v) * p.dim_v;
  DeviceMemory u(L * values * 4), l(L * values / p.dim_v * 4);
  for (Error error : {leaves.upload(leaf.data(), leaf.size() * 4), u.fill(0), l.fill(0), other.fill(0)})
    if (!error.ok()) return error;
  params.leaf = static_cast<const std::int32_t*>(leaves.data());
  const std::int64_t row = std::int64_t{p.heads_v} * p.dim_v;
  params.stash_u = {u.data(), CANOPY_F32, 0, {static_cast<std::int64_t>(values), p.nodes * row, row, p.dim_v, 1}};
  params.stash_l = {l.data(),
                    CANOPY_F32,
                    0,
                    {static_cast<std::int64_t>(values / p.dim_v), std::int64_t{p.nodes} * p.heads_v, p.heads_v, 1, 0}};

  shape->view = p, shape->depth = 5;
  shape->bytes = 2.0 * static_cast<double>(L * state.bytes.size());
  std::vector<host::TimedLaunch> launches;
  std::vector<BenchCell> cells;
  const auto add = [&](const std::string& name, std::function<Error(int, void*)> launch) {
    launches.push_back({name, std::move(launch)});
    BenchCell cell;
    cell.contender = name, cell.computes = false;
    cells.push_back(cell);
  };
  for (const auto& implementation : commit_implementations())
    for (const auto method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      CommitParams own = params;
      own.method = method;
      if (implementation.device != CANOPY_CUDA || !implementation.refuses(own).empty()) continue;
      add(implementation.name,
          [own, &implementation](int, void* stream) { return implementation.run(own, nullptr, stream); });
    }
  add("copy", [&](int, void* stream) {
    return host::device_copy(other.data(), held.back().data(), L * state.bytes.size(), stream);
  });
  Effort warm = effort;
  warm.warm = true, warm.cold = false;  // 24 layers' states are many times the L2
  if (Error error = time_both(warm, launches, cells, *shape); !error.ok()) return error;
  return shape;
}

}  // namespace canopy::cli
