// canopy bench: implementations side by side on one shape; or on whatever shapes a list asks for (--requests).
#include "bench.hpp"

#include <fmt/core.h>

#include <memory>

#include "cpu/kernels.hpp"
#include "host/device.hpp"
#include "host/device_bench.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  std::string file, device = "cpu", requests;
  host::ProblemSpec spec;
  Effort effort{.repeat = 0};  // 0: 21 on the CPU, 200 on the GPU
  int layers = 24;
  bool cold = false, commit = false, json = false;
};

void print_cpu(const BenchShape& shape, double peak) {
  fmt::print("{} T={} depth {} B={}\n", shape.family, shape.view.nodes, shape.depth, shape.view.batch);
  fmt::print("  {:<22}{:>11}{:>11}{:>11}{:>10}{:>8}{:>10}{:>12}{:>12}\n", "implementation", "median us", "p10", "p90",
             "GFLOP/s", "peak", "error", "workspace", "touched");
  for (const BenchCell& cell : shape.cells)
    fmt::print("  {:<22}{:>11.1f}{:>11.1f}{:>11.1f}{:>10.1f}{:>7.0f}%{:>10.1e}{:>12}{:>12}\n", cell.contender,
               cell.seconds.median * 1e6, cell.seconds.p10 * 1e6, cell.seconds.p90 * 1e6,
               cell.flops / cell.seconds.median * 1e-9, 100 * cell.flops / cell.seconds.median / peak,
               cell.check.deviation.relative, bytes_text(static_cast<double>(cell.stated)),
               bytes_text(static_cast<double>(cell.touched)));
}

void print_device(const BenchShape& shape) {
  fmt::print("{} T={} depth {} B={}, {} copies\n", shape.family, shape.view.nodes, shape.depth, shape.view.batch,
             shape.copies);
  for (const BenchCell& cell : shape.cells)
    fmt::print("  {:<26}{} {:>8.2f} ({:.2f} {:.2f}) us  {:>7.0f} GB/s{}\n", cell.contender, cell.cache,
               cell.seconds.median * 1e6, cell.seconds.p10 * 1e6, cell.seconds.p90 * 1e6,
               shape.bytes / cell.seconds.median * 1e-9,
               cell.computes ? fmt::format("  error {:.1e}", cell.check.deviation.relative) : "");
}

Result<std::vector<BenchShape>> measure(const CLI::App& command, const BenchOptions& options) {
  const bool device = options.device == "cuda";
  std::vector<BenchShape> shapes;
  if (options.commit) {
    for (const int batch : {1, 16}) {
      host::ProblemSpec spec = options.spec;
      spec.batch = batch;
      auto shape = measure_commit_on_device(options.effort, spec, options.layers);
      if (!shape) return shape.error();
      shapes.push_back(std::move(*shape));
    }
    return shapes;
  }
  auto problem =
      options.file.empty() ? host::make_problem(options.spec) : load_problem(command, options.file, options.spec);
  if (!problem) return problem.error();
  const std::string family = options.file.empty() ? options.spec.family.name : options.file;
  Progress progress("bench", options.effort.repeat);
  const auto on_device = [&]() -> Result<BenchShape> {
    const auto oracle = run_oracle(*problem, options.effort.checked);
    if (!oracle) return oracle.error();
    return measure_on_device(options.effort, *problem, *oracle, options.spec, family);
  };
  auto shape = device ? on_device()
                      : measure_on_cpu(options.effort, *problem, options.spec, family,
                                       [&](int round) { progress.step(round); });
  if (!shape) return shape.error();
  shapes.push_back(std::move(*shape));
  return shapes;
}

int run(const CLI::App& command, BenchOptions options) {
  if (!options.requests.empty()) return answer_requests(options.requests);
  options.spec.seed = options.spec.family.seed;
  const bool device = options.device == "cuda";
  if (options.commit && !device) return fail("--commit: expected --device cuda with it");
  if (options.effort.stash && (!device || options.commit))
    return fail("--stash: expected --device cuda and no --commit with it");
  if (device)
    if (const std::string why = host::device_missing(); !why.empty())
      return fail(fmt::format("--device cuda: {}; expected a machine with an NVIDIA GPU, or --device cpu", why));
  Effort& effort = options.effort;
  if (effort.repeat == 0) effort.repeat = device ? 200 : 21;
  if (device)
    effort.warm_ups = 25, effort.cold = true;
  else
    effort.warm = !options.cold, effort.cold = options.cold;
  const double peak = device ? 0 : measured_peak(effort.threads);
  Json env = environment_record(options.device, effort, peak);
  const auto shapes = measure(command, options);
  if (!shapes) return fail(shapes.error().message);
  if (device) env["gpu"]["after"] = gpu_state();

  Json all = Json::array({env});
  bool passed = true;
  for (const BenchShape& shape : *shapes)
    for (const BenchCell& cell : shape.cells) {
      all.push_back(record_of(shape, cell, effort));
      passed &= !cell.computes || cell.check.passed;
    }
  if (options.json) {
    print_json(all);
  } else if (device) {
    const host::DeviceInfo info = host::device_info();
    fmt::print("{}, {} multiprocessors, L2 {}; graph replays, median (10th, 90th percentile) of up to {}\n\n",
               info.name, info.multiprocessors, bytes_text(static_cast<double>(info.l2_bytes)), effort.repeat);
    for (const BenchShape& shape : *shapes) print_device(shape);
  } else {
    fmt::print("{}, {}, {} thread{}, fp32 multiply-add peak {:.1f} GFLOP/s, {} caches, median of {}\n\n",
               env["cpu"].get<std::string>(), cpu::kernels().name, effort.threads, effort.threads == 1 ? "" : "s",
               peak * 1e-9, options.cold ? "cold" : "warm", effort.repeat);
    for (const BenchShape& shape : *shapes) print_cpu(shape, peak);
  }
  return passed ? kGood : kCheckFailed;
}

}  // namespace

void add_bench_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("bench", "Implementations timed in turn on one shape; `make bench` does many");
  auto options = std::make_shared<BenchOptions>();
  options->spec.family.nodes = 128;
  Effort& effort = options->effort;
  command->add_option("problem", options->file,
                      "a .safetensors file (docs/api.md); or describe one with the options below");
  add_device_option(*command, options->device);
  command
      ->add_option("--impl", effort.contenders,
                   "fast (all but the reference), all (and every precision), or names with commas between them")
      ->capture_default_str();
  command->add_option("--threads", effort.threads, "OpenMP threads")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--repeat", effort.repeat, "timed runs of each (default: 21, on the GPU 200)")
      ->check(CLI::Range(1, 100000));
  command->add_flag("--cold", options->cold, "CPU: fill the caches with something else before each run");
  command->add_flag("--commit", options->commit, "cuda: commit of all layers in one launch beside a device copy");
  command->add_flag("--stash", effort.stash, "cuda: u and l are stored too, for a commit by stash");
  command->add_option("--layers", options->layers, "layers of --commit")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--requests", options->requests,
                      "measure what each line of this file asks for (- for standard input), answering with records: "
                      "docs/benchmarks.md");
  command->add_flag("--json", options->json, "as JSON");
  add_problem_options(*command, options->spec);
  command->callback([command, options, &status] { status = run(*command, *options); });
}

}  // namespace canopy::cli
