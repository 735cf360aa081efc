// canopy bench --device cuda: graph replays, the contenders in turn, warm (the same buffers) and cold (copies that go
// round over twice the L2 cache), beside the floor kernel and the plan.
#include "bench_cuda.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <sstream>

#include "host/device_bench.hpp"
#include "measure.hpp"
#include "registry.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;
using host::DeviceMemory, host::DeviceProblem;

constexpr int kLaunches = 40, kWarmUps = 25, kMostCopies = 80;
constexpr double kMostSeconds = 1.5;

struct Cell {
  std::string name, precision;
  Quantiles warm, cold;
  double relative = -1;  // against the oracle; -1: computes nothing
};

struct Shape {
  std::string family;
  Problem view;
  int depth = 0, copies = 0;
  double bytes = 0;
  std::vector<Cell> cells;
};

// One copy of a problem on the device, planned, with an output.
struct Copy {
  DeviceProblem problem;
  DeviceMemory plan, o;
  VerifyParams params;
};

Result<Copy> make_copy(host::HostProblem& problem, canopy_dtype output) {
  auto device = DeviceProblem::make(problem);
  if (!device) return device.error();
  Copy copy{std::move(*device), {}, {}, verify_params()};
  copy.params.problem = copy.problem.view();
  Problem& p = copy.params.problem;
  host::HostTensor o = host::HostTensor::make(output, {p.batch, p.nodes, p.heads_v, p.dim_v});
  copy.o = DeviceMemory(o.bytes.size());
  copy.plan = DeviceMemory(plans_bytes(p));
  if (Error error = make_plans(p, copy.plan.data(), copy.plan.bytes()); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  p.trees.plan = copy.plan.data();
  copy.params.o = o.view();
  copy.params.o.data = copy.o.data();
  return copy;
}

struct Contender {
  const VerifyImplementation* implementation;
  canopy_precision precision;
  std::string name;
  DeviceMemory workspace;
};

std::vector<Contender> contenders_for(const std::string& wanted, const VerifyParams& given, std::size_t free_bytes) {
  constexpr const char* precisions[] = {"", " fp32", " precise", " half", " fast"};
  std::vector<Contender> list;
  for (const auto& implementation : cuda_verify_implementations()) {
    const bool serial = std::string(implementation.name).find("serial") != std::string::npos;
    for (int precision = 0; precision <= CANOPY_PRECISION_FAST; ++precision) {
      if (wanted == "all" && !serial ? precision == 0 : precision != 0) continue;
      if (wanted != "all" && wanted != "fast" && wanted != implementation.name) continue;
      VerifyParams params = given;
      params.precision = precision;
      if (!implementation.refuses(params).empty()) continue;
      const std::size_t bytes = implementation.workspace(params);
      if (bytes > free_bytes / 2) continue;  // snapshots of a large batch
      list.push_back({&implementation, static_cast<canopy_precision>(precision),
                      implementation.name + std::string(precisions[precision]), DeviceMemory(bytes)});
    }
  }
  return list;
}

Error time_both(std::vector<host::TimedLaunch>& launches, int copies, int repeat, std::vector<Cell>& cells) {
  for (const bool cold : {false, true}) {
    for (auto& launch : launches) launch.seconds.clear();
    const int held = cold ? std::max(kLaunches, copies) : kLaunches;
    if (Error error = host::time_in_graphs(launches, cold ? copies : 1, held, kWarmUps, repeat, kMostSeconds);
        !error.ok())
      return error;
    for (std::size_t i = 0; i < launches.size(); ++i)
      (cold ? cells[i].cold : cells[i].warm) = quantiles(launches[i].seconds);
  }
  return {};
}

Result<Shape> measure(const DeviceBench& options, host::HostProblem& problem, const std::string& label) {
  const host::DeviceInfo info = host::device_info();
  const auto view = problem.problem();
  if (!view) return view.error();
  const auto oracle = run_oracle(problem);
  if (!oracle) return oracle.error();
  Shape shape;
  shape.family = label, shape.view = *view;
  for (const Tree& tree : oracle->trees) shape.depth = std::max(shape.depth, tree.depth());
  shape.bytes = least_bytes(problem, *oracle);
  shape.copies = std::clamp(static_cast<int>(2 * info.l2_bytes / shape.bytes) + 1, 2, kMostCopies);
  const canopy_dtype output = problem.tensors.at("q").dtype;
  std::vector<Copy> copies;
  for (int i = 0; i < shape.copies; ++i) {
    auto copy = make_copy(problem, output);
    if (!copy) return copy.error();
    copies.push_back(std::move(*copy));
  }

  std::vector<Contender> contenders = contenders_for(options.implementation, copies[0].params, info.free_bytes);
  if (contenders.empty())
    return Error::invalid(
        fmt::format("--impl {}: expected fast, all or a CUDA implementation that `canopy env` lists "
                    "and that takes this problem",
                    options.implementation));
  std::vector<host::TimedLaunch> launches;
  for (Contender& contender : contenders) {
    Cell cell{contender.name, "", {}, {}, 0};
    VerifyParams params = copies[0].params;
    params.precision = contender.precision;
    if (Error error = contender.implementation->run(params, contender.workspace.data(), nullptr); !error.ok())
      return error;
    if (Error error = host::device_synchronize(); !error.ok()) return error;
    host::HostTensor o = host::HostTensor::make(output, {view->batch, view->nodes, view->heads_v, view->dim_v});
    if (Error error = copies[0].o.download(o.bytes.data(), o.bytes.size()); !error.ok()) return error;
    cell.relative = check_rows(*oracle, oracle->o, o, 1, 1).deviation.relative;
    shape.cells.push_back(cell);
    launches.push_back({contender.name,
                        [&](int i, void* stream) {
                          VerifyParams own = copies[i].params;
                          own.precision = contender.precision;
                          return contender.implementation->run(own, contender.workspace.data(), stream);
                        },
                        {}});
  }
  launches.push_back({"plan",
                      [&](int i, void* stream) {
                        Problem bare = copies[i].params.problem;
                        bare.trees.plan = nullptr;
                        return make_plans(bare, copies[i].plan.data(), copies[i].plan.bytes(), stream);
                      },
                      {}});
  shape.cells.push_back({"plan", "", {}, {}, -1});
  if (host::device_floor(copies[0].params, nullptr).ok()) {
    launches.push_back(
        {"floor", [&](int i, void* stream) { return host::device_floor(copies[i].params, stream); }, {}});
    shape.cells.push_back({"floor", "", {}, {}, -1});
  }
  if (Error error = time_both(launches, shape.copies, options.repeat, shape.cells); !error.ok()) return error;
  return shape;
}

// Commit of `layers` layers in one launch, an accepted path of six nodes, beside a device copy of as many state bytes.
Result<Shape> measure_commit(const DeviceBench& options, int batch) {
  host::ProblemSpec spec = options.spec;
  spec.batch = batch;
  spec.family.name = "best-first", spec.family.nodes = 64;
  auto problem = host::make_problem(spec);
  if (!problem) return problem.error();
  auto copy = make_copy(*problem, problem->tensors.at("q").dtype);
  if (!copy) return copy.error();
  const auto trees = read_trees(*problem->problem());
  if (!trees) return trees.error();
  std::vector<std::int32_t> leaf;
  for (const Tree& tree : trees->trees) {
    const auto depths = tree.depths();
    leaf.push_back(static_cast<std::int32_t>(std::find(depths.begin(), depths.end(), 5) - depths.begin()));
  }
  const host::HostTensor& state = problem->tensors.at("state");
  const std::size_t L = static_cast<std::size_t>(options.layers),
                    rows = problem->tensors.at("q").shape[0] * problem->tensors.at("q").shape[1];
  // All layers read the same activations (a layer stride of nothing is refused, so the copies stand one behind the
  // other).
  std::vector<DeviceMemory> held;
  CommitParams params = commit_params();
  params.problem = copy->params.problem;
  params.layers = options.layers;
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

  Shape shape;
  shape.family = fmt::format("commit, {} layers", options.layers), shape.view = p;
  shape.depth = 5, shape.copies = 1;
  shape.bytes = 2.0 * static_cast<double>(L * state.bytes.size());
  std::vector<host::TimedLaunch> launches;
  const auto all = cuda_commit_implementations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    CommitParams own = params;
    own.method = static_cast<int>(i);
    launches.push_back(
        {all[i].name,
         [own, &implementation = all[i]](int, void* stream) { return implementation.run(own, nullptr, stream); },
         {}});
    shape.cells.push_back({all[i].name, "", {}, {}, -1});
  }
  launches.push_back({"copy",
                      [&](int, void* stream) {
                        return host::device_copy(other.data(), held.back().data(), L * state.bytes.size(), stream);
                      },
                      {}});
  shape.cells.push_back({"copy", "", {}, {}, -1});
  if (Error error = host::time_in_graphs(launches, 1, 8, kWarmUps, options.repeat, kMostSeconds); !error.ok())
    return error;
  for (std::size_t i = 0; i < launches.size(); ++i)
    shape.cells[i].warm = shape.cells[i].cold = quantiles(launches[i].seconds);
  return shape;
}

Json to_json(const Shape& shape, const Cell& cell, const DeviceBench& options, bool cold) {
  const Quantiles& seconds = cold ? cell.cold : cell.warm;
  Json json{{"type", "cell"},
            {"schema", 1},
            {"contender", cell.name},
            {"device", "cuda"},
            {"B", shape.view.batch},
            {"T", shape.view.nodes},
            {"depth", shape.depth},
            {"family", shape.family},
            {"seed", options.spec.family.seed},
            {"H", shape.view.heads_k},
            {"HV", shape.view.heads_v},
            {"K", shape.view.dim_k},
            {"V", shape.view.dim_v},
            {"state", name_of(options.spec.state)},
            {"cache", cold ? "cold" : "warm"},
            {"n", options.repeat},
            {"median_us", seconds.median * 1e6},
            {"p10_us", seconds.p10 * 1e6},
            {"p90_us", seconds.p90 * 1e6},
            {"bytes", shape.bytes}};
  if (cell.relative >= 0) json["relative"] = cell.relative;
  return json;
}

// What the driver's tool says of the GPU just now: clocks in MHz, degrees Celsius, watts. Empty where there is no such
// tool.
Json gpu_state(const std::string& pci) {
  constexpr const char* fields[] = {"clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw"};
  Json state = Json::object();
  const std::string command = fmt::format("nvidia-smi -i {} --query-gpu={} --format=csv,noheader,nounits 2>/dev/null",
                                          pci, fmt::join(fields, ","));
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return state;
  char line[256] = {};
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  if (pclose(pipe) != 0 || !read) return state;
  std::istringstream values(line);
  for (const char* field : fields) {
    double value = 0;
    if (!(values >> value)) break;  // "[N/A]"
    state[field] = value;
    values.ignore(1);  // the comma
  }
  return state;
}

void print_shape(const Shape& shape) {
  fmt::print("{} T={} depth {} B={}, {} copies\n", shape.family, shape.view.nodes, shape.depth, shape.view.batch,
             shape.copies);
  for (const Cell& cell : shape.cells)
    fmt::print("  {:<22} warm {:>8.2f} ({:.2f} {:.2f})  cold {:>8.2f} ({:.2f} {:.2f}) us  {:>7.0f} GB/s cold{}\n",
               cell.name, cell.warm.median * 1e6, cell.warm.p10 * 1e6, cell.warm.p90 * 1e6, cell.cold.median * 1e6,
               cell.cold.p10 * 1e6, cell.cold.p90 * 1e6, shape.bytes / cell.cold.median * 1e-9,
               cell.relative >= 0 ? fmt::format("  error {:.1e}", cell.relative) : "");
}

void print_sweep(const std::vector<Shape>& shapes) {
  std::vector<std::string> names;
  for (const Shape& shape : shapes)
    for (const Cell& cell : shape.cells)
      if (std::find(names.begin(), names.end(), cell.name) == names.end()) names.push_back(cell.name);
  fmt::print("warm / cold us\n{:>3} {:<12}{:>4}{:>6}", "B", "family", "T", "depth");
  for (const std::string& name : names) fmt::print(" {:>21}", name);
  fmt::print("\n");
  for (const Shape& shape : shapes) {
    fmt::print("{:>3} {:<12}{:>4}{:>6}", shape.view.batch, shape.family, shape.view.nodes, shape.depth);
    for (const std::string& name : names) {
      const auto cell =
          std::find_if(shape.cells.begin(), shape.cells.end(), [&](const Cell& c) { return c.name == name; });
      fmt::print(" {:>21}", cell == shape.cells.end()
                                ? "-"
                                : fmt::format("{:.2f} / {:.2f}", cell->warm.median * 1e6, cell->cold.median * 1e6));
    }
    fmt::print("\n");
  }
}

struct SweepShape {
  const char* family;
  int nodes;
};
constexpr SweepShape kSweep[] = {{"chain", 1},       {"chain", 2},        {"chain", 4},        {"chain", 8},
                                 {"best-first", 8},  {"chain", 16},       {"best-first", 16},  {"best-first", 32},
                                 {"best-first", 64}, {"best-first", 128}, {"best-first", 256}, {"chain", 256}};

}  // namespace

int bench_on_device(const DeviceBench& options, host::HostProblem* problem, const std::string& label) {
  if (const std::string why = host::device_missing(); !why.empty())
    return fail(fmt::format("--device cuda: {}; expected a machine with an NVIDIA GPU, or --device cpu", why));
  const host::DeviceInfo info = host::device_info();
  const Json before = gpu_state(info.pci);
  std::vector<Shape> shapes;
  if (options.commit) {
    for (const int batch : {1, 16}) {
      auto shape = measure_commit(options, batch);
      if (!shape) return fail(shape.error().message);
      shapes.push_back(std::move(*shape));
    }
  } else if (options.sweep) {
    for (const int batch : {1, 4, 16})
      for (const SweepShape& each : kSweep) {
        host::ProblemSpec spec = options.spec;
        spec.batch = batch;
        spec.family.name = each.family, spec.family.nodes = each.nodes;
        auto made = host::make_problem(spec);
        if (!made) return fail(made.error().message);
        auto shape = measure(options, *made, each.family);
        if (!shape) return fail(shape.error().message);
        shapes.push_back(std::move(*shape));
      }
  } else {
    auto shape = measure(options, *problem, label);
    if (!shape) return fail(shape.error().message);
    shapes.push_back(std::move(*shape));
  }

  Json env = environment();
  env["type"] = "environment";
  env["gpu"] = {{"name", info.name},
                {"multiprocessors", info.multiprocessors},
                {"compute_capability", info.compute_capability},
                {"l2_bytes", info.l2_bytes},
                {"driver", info.driver},
                {"runtime", info.runtime},
                {"before", before},
                {"after", gpu_state(info.pci)}};
  Json all = Json::array({env});
  for (const Shape& shape : shapes)
    for (const Cell& cell : shape.cells)
      for (const bool cold : {false, true}) {
        all.push_back(to_json(shape, cell, options, cold));
      }
  if (!options.jsonl.empty())
    if (const Error error = write_lines(options.jsonl, all); !error.ok()) return fail(error.message);
  if (options.json) {
    print_json(all);
  } else {
    fmt::print("{}, {} multiprocessors, L2 {}; graph replays, median (10th, 90th percentile) of up to {}\n\n",
               info.name, info.multiprocessors, bytes_text(static_cast<double>(info.l2_bytes)), options.repeat);
    if (options.sweep && !options.commit)
      print_sweep(shapes);
    else
      for (const Shape& shape : shapes) print_shape(shape);
  }
  return kGood;
}

}  // namespace canopy::cli
