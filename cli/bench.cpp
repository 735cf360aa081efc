// canopy bench: implementations side by side on one shape, or over families and node counts (--sweep).
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench_cuda.hpp"
#include "cpu/kernels.hpp"
#include "measure.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string file, device = "cpu", implementation = "fast", jsonl;
  host::ProblemSpec spec;
  int threads = 1, repeat = 0, layers = 24;  // repeat 0: 21 on the CPU, 200 on the GPU
  bool cold = false, sweep = false, commit = false, json = false;
};

// A contender's figures on one shape.
struct Cell {
  std::string name;
  Quantiles seconds;
  Check parity;
  double flops = 0;
  std::size_t stated = 0, touched = 0;
};

struct Shape {
  std::string family;
  int nodes = 0, depth = 0, batch = 0;
  double bytes = 0;
  std::vector<Cell> cells;
  const Cell* find(const char* name) const {
    for (const Cell& cell : cells)
      if (cell.name == name) return &cell;
    return nullptr;
  }
};

bool fast(const VerifyImplementation& implementation) {
  return std::string(implementation.name).rfind("reference_", 0) != 0;
}

Result<std::vector<const VerifyImplementation*>> contenders_for(const Options& options, const VerifyParams& params) {
  std::vector<const VerifyImplementation*> list;
  std::string refused;
  for (const auto& implementation : verify_implementations()) {
    const bool asked = options.implementation == "all" || options.implementation == implementation.name ||
                       (options.implementation == "fast" && fast(implementation));
    if (!asked || implementation.device != params.problem.device) continue;
    std::string reason = implementation.missing();
    if (reason.empty()) reason = implementation.refuses(params);
    if (reason.empty()) list.push_back(&implementation);
    else refused += "; " + std::string(implementation.name) + ": " + reason;
  }
  if (list.empty())
    return Error::invalid(fmt::format("--impl {}: expected fast, all or a name that `canopy env` lists{}",
                                      options.implementation, refused));
  return list;
}

Result<Shape> measure(const Options& options, host::HostProblem& problem, const std::string& family, Progress& progress) {
  const auto params = problem.verify();
  if (!params) return params.error();
  const auto list = contenders_for(options, *params);
  if (!list) return list.error();
  const auto oracle = run_oracle(problem);
  if (!oracle) return oracle.error();

  Shape shape;
  shape.family = family;
  shape.nodes = params->problem.nodes;
  shape.batch = params->problem.batch;
  for (const Tree& tree : oracle->trees) shape.depth = std::max(shape.depth, tree.depth());
  shape.bytes = least_bytes(problem, *oracle);
  const ThreadCount threads(options.threads);
  std::vector<TimedRun> runs;
  for (const VerifyImplementation* implementation : *list) {
    auto timed = TimedRun::verify(problem, *implementation, CANOPY_F32, false);
    if (!timed) return timed.error();
    runs.push_back(std::move(*timed));
  }
  const auto seconds = times_in_turn(runs, options.repeat, options.cold, [&](int round) {
    progress.step(round, fmt::format("{} T={}", family, shape.nodes));
  });
  if (!seconds) return seconds.error();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const VerifyImplementation& implementation = *(*list)[i];
    const bool serial = std::string(implementation.name).find("serial") != std::string::npos;
    shape.cells.push_back(
        {implementation.name, quantiles((*seconds)[i]),
         check_rows(*oracle, oracle->o, runs[i].output(), implementation.relative_tolerance,
                    implementation.absolute_tolerance),
         serial ? recurrence_flops(params->problem, *oracle) : closed_form_flops(params->problem, *oracle),
         runs[i].workspace().bytes(), runs[i].workspace().touched()});
  }
  return shape;
}

Json to_json(const Shape& shape, const Cell& cell, const Options& options, double peak) {
  const host::ProblemSpec& spec = options.spec;
  return Json{{"type", "cell"},
              {"schema", 1},
              {"contender", cell.name},
              {"device", "cpu"},
              {"instruction_set", cpu::kernels().name},
              {"threads", options.threads},
              {"precision", "fp32"},
              {"B", shape.batch},
              {"T", shape.nodes},
              {"depth", shape.depth},
              {"family", shape.family},
              {"seed", spec.family.seed},
              {"H", spec.heads_k},
              {"HV", spec.heads_v},
              {"K", spec.dim_k},
              {"V", spec.dim_v},
              {"state", name_of(spec.state)},
              {"cache", options.cold ? "cold" : "warm"},
              {"n", options.repeat},
              {"median_us", cell.seconds.median * 1e6},
              {"p10_us", cell.seconds.p10 * 1e6},
              {"p90_us", cell.seconds.p90 * 1e6},
              {"bytes", shape.bytes},
              {"flops", cell.flops},
              {"peak_fraction", cell.flops / cell.seconds.median / peak},
              {"relative", cell.parity.deviation.relative},
              {"max_abs", cell.parity.deviation.max_abs},
              {"passed", cell.parity.passed},
              {"workspace_bytes", cell.stated},
              {"touched_bytes", cell.touched}};
}

void print_shape(const Shape& shape, double peak) {
  fmt::print("{} T={} depth {} B={}\n", shape.family, shape.nodes, shape.depth, shape.batch);
  fmt::print("  {:<22}{:>11}{:>11}{:>11}{:>10}{:>8}{:>10}{:>12}{:>12}\n", "implementation", "median us", "p10", "p90",
             "GFLOP/s", "peak", "error", "workspace", "touched");
  for (const Cell& cell : shape.cells)
    fmt::print("  {:<22}{:>11.1f}{:>11.1f}{:>11.1f}{:>10.1f}{:>7.0f}%{:>10.1e}{:>12}{:>12}\n", cell.name,
               cell.seconds.median * 1e6, cell.seconds.p10 * 1e6, cell.seconds.p90 * 1e6,
               cell.flops / cell.seconds.median * 1e-9, 100 * cell.flops / cell.seconds.median / peak,
               cell.parity.deviation.relative, bytes_text(static_cast<double>(cell.stated)),
               bytes_text(static_cast<double>(cell.touched)));
}

// How the closed form compares with each serial baseline, one line a shape.
void print_sweep(const std::vector<Shape>& shapes) {
  fmt::print("{:<14}{:>5}{:>7}{:>13}{:>13}{:>13}{:>12}{:>12}{:>10}\n", "family", "T", "depth", "closed us", "resident us",
             "snapshot us", "x resident", "x snapshot", "error");
  for (const Shape& shape : shapes) {
    const Cell *closed = shape.find("cpu_closed_form"), *resident = shape.find("cpu_serial_resident"),
               *snapshot = shape.find("cpu_serial_snapshot");
    if (!closed || !resident || !snapshot) continue;
    fmt::print("{:<14}{:>5}{:>7}{:>13.1f}{:>13.1f}{:>13.1f}{:>12.2f}{:>12.2f}{:>10.1e}\n", shape.family, shape.nodes,
               shape.depth, closed->seconds.median * 1e6, resident->seconds.median * 1e6, snapshot->seconds.median * 1e6,
               resident->seconds.median / closed->seconds.median, snapshot->seconds.median / closed->seconds.median,
               closed->parity.deviation.relative);
  }
}

struct SweepFamily {
  const char *label, *name;
  int top_k, depth;  // depth 0: as deep as the nodes allow
};
constexpr SweepFamily kSweep[] = {{"chain", "chain", 1, 0},           {"balanced-2", "balanced", 2, 0},
                                  {"balanced-4", "balanced", 4, 0},   {"best-first-4", "best-first", 4, 8},
                                  {"skewed", "skewed", 4, 0},         {"star", "star", 1, 0},
                                  {"caterpillar", "caterpillar", 1, 0}, {"spine", "spine", 4, 0},
                                  {"random", "random", 4, 0}};
constexpr int kSweepNodes[] = {4, 8, 16, 32, 64, 128, 256};

std::vector<std::pair<std::string, FamilySpec>> sweep_shapes(const FamilySpec& base) {
  std::vector<std::pair<std::string, FamilySpec>> shapes;
  for (const SweepFamily& family : kSweep)
    for (const int nodes : kSweepNodes) {
      FamilySpec spec = base;
      spec.name = family.name;
      spec.nodes = nodes;
      spec.top_k = family.top_k;
      spec.depth = family.depth ? family.depth : std::max(1, nodes / 2);
      shapes.emplace_back(family.label, spec);
    }
  return shapes;
}

int run_on_device(const CLI::App& command, const Options& options) {
  const DeviceBench bench{options.implementation, options.jsonl, options.spec, options.repeat ? options.repeat : 200,
                          options.layers, options.sweep, options.commit, options.json};
  if (options.sweep || options.commit) return bench_on_device(bench, nullptr, "");
  auto problem = options.file.empty() ? host::make_problem(options.spec) : load_problem(command, options.file, options.spec);
  if (!problem) return fail(problem.error().message);
  return bench_on_device(bench, &*problem, options.file.empty() ? options.spec.family.name : options.file);
}

int run(const CLI::App& command, Options options) {
  options.spec.seed = options.spec.family.seed;
  if (options.device == "cuda") return run_on_device(command, options);
  if (options.commit) return fail("--commit: expected --device cuda with it");
  if (options.sweep && (!options.file.empty() || command.count("--family") || command.count("--nodes")))
    return fail("--sweep: it makes its own shapes; expected no file, --family or --nodes with it");
  if (options.repeat == 0) options.repeat = 21;
  const double peak = measured_peak(options.threads);
  std::vector<Shape> shapes;
  bool passed = true;
  Progress progress("bench", options.repeat);
  const auto add = [&](host::HostProblem& problem, const std::string& label) -> Error {
    auto shape = measure(options, problem, label, progress);
    if (!shape) return shape.error();
    for (const Cell& cell : shape->cells) passed &= cell.parity.passed;
    shapes.push_back(std::move(*shape));
    return {};
  };
  if (options.sweep) {
    for (const auto& [label, family] : sweep_shapes(options.spec.family)) {
      if (!make_family(family)) continue;  // a family that cannot have this many nodes
      host::ProblemSpec spec = options.spec;
      spec.family = family;
      auto problem = host::make_problem(spec);
      if (!problem) return fail(problem.error().message);
      if (const Error error = add(*problem, label); !error.ok()) return fail(error.message);
    }
  } else {
    auto problem = options.file.empty() ? host::make_problem(options.spec) : load_problem(command, options.file, options.spec);
    if (!problem) return fail(problem.error().message);
    const std::string label = options.file.empty() ? options.spec.family.name : options.file;
    if (const Error error = add(*problem, label); !error.ok()) return fail(error.message);
  }

  Json env = environment();
  env["type"] = "environment";
  env["threads"] = options.threads;
  env["peak_flops"] = peak;
  Json all = Json::array({env});
  for (const Shape& shape : shapes)
    for (const Cell& cell : shape.cells) {
      all.push_back(to_json(shape, cell, options, peak));
    }
  if (!options.jsonl.empty())
    if (const Error error = write_lines(options.jsonl, all); !error.ok()) return fail(error.message);
  if (options.json) {
    print_json(all);
  } else {
    fmt::print("{}, {}, {} thread{}, fp32 multiply-add peak {:.1f} GFLOP/s, {} caches, median of {}\n\n",
               env["cpu"].get<std::string>(), cpu::kernels().name, options.threads, options.threads == 1 ? "" : "s",
               peak * 1e-9, options.cold ? "cold" : "warm", options.repeat);
    if (options.sweep) print_sweep(shapes);
    else print_shape(shapes.front(), peak);
  }
  return passed ? kGood : kCheckFailed;
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("bench", "Implementations timed in turn on one shape, or over many (--sweep)");
  auto options = std::make_shared<Options>();
  options->spec.family.nodes = 128;
  command->add_option("problem", options->file, "a .safetensors file (docs/api.md); or describe one with the options below");
  add_device_option(*command, options->device);
  command->add_option("--impl", options->implementation, "fast (all but the reference), all, or a name")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "OpenMP threads")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--repeat", options->repeat, "timed runs of each (default: 21, on the GPU 200)")->check(CLI::Range(1, 100000));
  command->add_flag("--cold", options->cold, "fill the caches with something else before each run");
  command->add_flag("--sweep", options->sweep, "every family at 4 to 256 nodes instead of one shape");
  command->add_flag("--commit", options->commit, "cuda: commit of all layers in one launch beside a device copy");
  command->add_option("--layers", options->layers, "layers of --commit")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--jsonl", options->jsonl, "write an environment record and one line a cell to this file");
  command->add_flag("--json", options->json, "as JSON");
  add_problem_options(*command, options->spec);
  command->callback([command, options, &status] { status = run(*command, *options); });
}

}  // namespace canopy::cli
