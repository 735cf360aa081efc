// canopy bench --device cuda: graph replays, the contenders in turn, warm (the same buffers) and cold (copies that go
// round over twice the L2 cache), beside the floor kernel and the plan; the errors before, in calls that are not timed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench_device.hpp"
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

// What o, and a stored u, may be off by. A stored u makes the default of tensor-core kernels precise
// (src/precision.hpp).
Tolerance allowed(const Ready& ready, const VerifyParams& params) {
  Tolerance own = tolerance_of(*ready.contender.implementation, ready.contender.precision);
  if (!params.stash_u.data || ready.contender.precision != CANOPY_PRECISION_DEFAULT) return own;
  const Tolerance precise = tolerance_of(*ready.contender.implementation, CANOPY_PRECISION_PRECISE);
  return {std::min(own.relative, precise.relative), std::min(own.absolute, precise.absolute)};
}

// Rows of the sequences that the oracle ran, of a [B,T,HV,V] tensor in device memory, against what they should be.
Result<Check> check_tensor(const DeviceMemory& memory, canopy_dtype dtype, const Problem& p, const Oracle& oracle,
                           const std::vector<double>& reference, const Tolerance& tolerance) {
  const auto checked = static_cast<std::int64_t>(oracle.checked.size());
  host::HostTensor rows = host::HostTensor::make(dtype, {checked, p.nodes, p.heads_v, p.dim_v});
  const std::size_t bytes = checked ? rows.bytes.size() / oracle.checked.size() : 0;  // of a sequence
  for (std::size_t place = 0; place < oracle.checked.size(); ++place)
    if (Error error = memory.download(&rows.bytes[place * bytes], bytes, oracle.checked[place] * bytes); !error.ok())
      return error;
  return check_rows(oracle, reference, rows, tolerance.relative, tolerance.absolute);
}

// Outputs that are looked at; u only where it is stored.
struct Outputs {
  DeviceMemory o, u;
};

// One run with o of this type in memory of its own, NaN at first like u, and its error over the sequences that the
// oracle ran.
Result<Check> check_once(const Ready& ready, VerifyParams params, canopy_dtype output, Outputs& memory,
                         const Oracle& oracle) {
  params.precision = ready.contender.precision;
  params.o.data = memory.o.data(), params.o.dtype = output;
  if (params.stash_u.data) params.stash_u.data = memory.u.data();
  const VerifyImplementation& implementation = *ready.contender.implementation;
  if (std::string why = implementation.refuses(params); !why.empty()) return Error::unsupported(why);
  for (DeviceMemory* each : {&memory.o, &memory.u})
    if (Error error = each->data() ? each->fill(0xff) : Error{}; !error.ok()) return error;
  if (Error error = implementation.run(params, ready.workspace.data(), nullptr); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  return check_tensor(memory.o, output, params.problem, oracle, oracle.o, allowed(ready, params));
}

// The error of o in f32, which no rounding hides, by a call of its own, and of o as it is timed; of u by the latter.
Error check_both(const Ready& ready, const VerifyParams& params, Outputs& memory, const Oracle& oracle,
                 BenchCell& cell) {
  const auto timed_type = static_cast<canopy_dtype>(params.o.dtype);
  const auto exact = check_once(ready, params, CANOPY_F32, memory, oracle);
  if (!exact) return exact.error();
  cell.check = *exact;
  if (timed_type != CANOPY_F32) {
    const auto timed = check_once(ready, params, timed_type, memory, oracle);
    if (!timed) return timed.error();
    cell.timed = *timed;
    cell.check.passed = cell.check.passed && timed->passed;
  }
  if (!params.stash_u.data) return {};
  const auto stored = check_tensor(memory.u, CANOPY_F32, params.problem, oracle, oracle.u, allowed(ready, params));
  if (!stored) return stored.error();
  cell.stored = *stored;
  cell.check.passed = cell.check.passed && stored->passed;
  return {};
}

}  // namespace

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

Result<BenchShape> measure_on_device(const Effort& effort, host::HostProblem& problem, const Oracle& oracle,
                                     const host::ProblemSpec& spec, const std::string& family) {
  auto shape = shape_of(problem, spec, family);
  if (!shape) return shape.error();
  shape->checked = static_cast<int>(oracle.checked.size());
  shape->stash = effort.stash;
  const double heads = double(shape->view.batch) * shape->view.nodes * shape->view.heads_v;
  if (effort.stash) shape->bytes += heads * (shape->view.dim_v + 1) * sizeof(float);
  const host::DeviceInfo info = host::device_info();
  shape->copies =
      effort.timed && effort.cold
          ? host::copies_for(std::clamp(static_cast<int>(2 * info.l2_bytes / shape->bytes) + 1, 2, kMostCopies))
          : 1;
  auto made = DeviceCopies::make(problem, problem.tensors.at("q").dtype, shape->copies, effort.stash);
  if (!made) return made.error();
  DeviceCopies& copies = *made;
  const VerifyParams first = copies.params(0);
  shape->view = first.problem;

  const auto contenders = contenders_for(effort.contenders, first);
  if (!contenders) return contenders.error();
  const std::int64_t rows = std::int64_t{first.problem.batch} * first.problem.nodes * first.problem.heads_v;
  const std::size_t row_bytes = static_cast<std::size_t>(rows) * first.problem.dim_v * sizeof(float);
  Outputs output{DeviceMemory(row_bytes), effort.stash ? DeviceMemory(row_bytes) : DeviceMemory()};
  if (!output.o.data() || (effort.stash && !output.u.data()))
    return Error{CANOPY_INTERNAL, "device memory: outputs in f32 are not to be had"};
  std::vector<Ready> ready;
  std::vector<BenchCell> cells;
  for (const Contender& contender : *contenders) {
    VerifyParams params = first;
    params.precision = contender.precision;
    const std::size_t bytes = contender.implementation->workspace(params);
    params.o.dtype = CANOPY_F32;
    const std::size_t most = std::max(bytes, contender.implementation->workspace(params));
    if (most > host::device_info().free_bytes / 2) continue;  // snapshots of a large batch
    ready.push_back({contender, DeviceMemory(most)});
    if (!ready.back().workspace.data()) {
      ready.pop_back();
      continue;
    }
    BenchCell cell = cell_of(contender);
    if (Error error = check_both(ready.back(), first, output, oracle, cell); !error.ok())
      return Error{error.status, contender.name + ": " + error.message};
    const bool serial = cell.strategy.find("serial") != std::string::npos;
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
    launches.push_back({each.contender.name, [&](int i, void* stream) {
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
  // With a stash the plan is the same as without, and the floor kernel stores no u.
  const bool set = (effort.contenders == "fast" || effort.contenders == "all") && !effort.stash;
  if (set || names(effort.contenders, "plan"))
    add("plan", [&](int i, void* stream) {
      Problem bare = copies.params(i).problem;
      void* const plan = const_cast<void*>(std::exchange(bare.trees.plan, nullptr));  // in memory of the copies
      return make_plans(bare, plan, copies.plan_bytes(), stream);
    });
  if ((set || (names(effort.contenders, "floor") && !effort.stash)) && host::device_floor(first, nullptr).ok())
    add("floor", [&](int i, void* stream) { return host::device_floor(copies.params(i), stream); });
  if (Error error = time_both(effort, launches, cells, *shape); !error.ok()) return error;
  return shape;
}

}  // namespace canopy::cli
