// canopy tune: the dispatch table of this machine, measured here or made from result files.
#include <fmt/ranges.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <memory>
#include <set>

#include "bench.hpp"
#include "dispatch/file.hpp"
#include "host/device.hpp"
#include "host/tune.hpp"

namespace canopy::cli {
namespace {

struct TuneOptions {
  std::string device = "cpu", out;
  std::vector<std::string> from;
  host::ProblemSpec spec;
  double seconds = 100;
  int threads = 0;
  bool rows = false, strict = false, json = false;
};

struct Size {
  const char* family;
  int nodes, batch;
};

// About as many share a shape's time: implementations in their precisions, and those that store u.
constexpr int kGpuContenders = 26;

// Small trees and large, deep and bushy, few heads and many.
std::vector<Size> sizes(bool gpu) {
  std::vector<Size> all;
  for (const int batch : gpu ? std::vector<int>{1, 2, 4, 8, 16} : std::vector<int>{1, 4})
    for (const int nodes : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      all.push_back({"chain", nodes, batch});
      if (nodes >= 8) all.push_back({"best-first", nodes, batch});
    }
  // The short ones first: what a hurried run leaves out is the largest.
  std::stable_sort(all.begin(), all.end(),
                   [](const Size& a, const Size& b) { return a.nodes * a.batch < b.nodes * b.batch; });
  return all;
}

// Whom the dispatcher may pick, by name, with commas between them: who is worth a second look, with a stash.
std::string free_to_pick(const BenchShape& shape) {
  std::set<std::string> names;
  for (const BenchCell& cell : shape.cells)
    if (cell.computes && !cell.named_only) names.insert(cell.contender.substr(0, cell.contender.find(' ')));
  return fmt::format("{}", fmt::join(names, ","));
}

// A size on a GPU: every precision, then, on the same inputs, calls that store u.
Result<std::vector<BenchShape>> measure_both(const Effort& effort, host::HostProblem& problem,
                                             const host::ProblemSpec& spec, const std::string& family) {
  const auto oracle = run_oracle(problem, effort.checked);
  if (!oracle) return oracle.error();
  auto plain = measure_on_device(effort, problem, *oracle, spec, family);
  if (!plain) return plain.error();
  Effort storing = effort;
  storing.stash = true, storing.contenders = free_to_pick(*plain);
  auto stash = measure_on_device(storing, problem, *oracle, spec, family);
  if (!stash) return stash.error();
  return std::vector<BenchShape>{std::move(*plain), std::move(*stash)};
}

Result<host::Timings> measure_here(const TuneOptions& options) {
  const bool gpu = options.device == "cuda";
  host::Timings timings;
  timings.device = gpu ? CANOPY_CUDA : CANOPY_CPU;
  timings.machine = dispatch::machine(timings.device).name;
  timings.capability = dispatch::machine(timings.device).capability;
  const auto all = sizes(gpu);
  const double begun = now();
  Progress progress("tune", static_cast<int>(all.size()));
  Effort effort{.contenders = gpu ? "all" : "fast",
                .threads = options.threads,
                .repeat = gpu ? 200 : 101,
                .warm_ups = gpu ? 10 : 1,
                .replay_seconds = 1e-4,
                .least = 10,
                .cold = gpu,
                .checked = 1};
  int done = 0;
  for (const Size& size : all) {
    const double left = options.seconds - (now() - begun);
    progress.step(done,
                  fmt::format("{} T={} B={}, {:.0f} s left", size.family, size.nodes, size.batch, std::max(left, 0.0)));
    // Half of each shape's share is for making it; a few rounds of each contender are timed whatever they take.
    effort.most_seconds = std::max(0.02, left / (static_cast<int>(all.size()) - done) / (gpu ? 4 : 2));
    effort.share = effort.most_seconds / kGpuContenders;
    host::ProblemSpec spec = options.spec;
    spec.batch = size.batch;
    spec.family.name = size.family, spec.family.nodes = size.nodes;
    auto problem = host::make_problem(spec);
    if (!problem) return problem.error();
    const auto measured = [&]() -> Result<std::vector<BenchShape>> {
      if (gpu) return measure_both(effort, *problem, spec, size.family);
      auto shape = measure_on_cpu(effort, *problem, spec, size.family, nullptr);
      if (!shape) return shape.error();
      return std::vector<BenchShape>{std::move(*shape)};
    };
    const auto shapes = measured();
    if (!shapes) return shapes.error();
    std::string lines;
    for (const BenchShape& shape : *shapes)
      for (const BenchCell& cell : shape.cells) lines += record_of(shape, cell, effort).dump() + "\n";
    const std::string environment =
        nlohmann::json{{"type", "environment"},
                       {"cpu", timings.machine},
                       {"gpu", {{"name", timings.machine}, {"compute_capability", timings.capability}}}}
            .dump() +
        "\n";
    if (const Error error = host::read_timings(environment + lines, "tune", timings.device, timings); !error.ok())
      return error;
    ++done;
  }
  return timings;
}

Result<host::Timings> read_files(const TuneOptions& options) {
  host::Timings timings;
  const int device = options.device == "cuda" ? CANOPY_CUDA : CANOPY_CPU;
  for (const std::string& path : options.from) {
    const auto text = read_text(path);
    if (!text) return text.error();
    if (const Error error = host::read_timings(*text, path, device, timings); !error.ok()) return error;
  }
  if (timings.cells.empty())
    return Error::invalid(
        fmt::format("--from: no cell of an implementation on {} in {}", options.device, fmt::join(options.from, ", ")));
  if (std::all_of(timings.cells.begin(), timings.cells.end(), [](const host::Timing& cell) { return cell.stash; }))
    return Error::invalid(
        fmt::format("--from: expected cells of calls without a stash, which every table ends with; got {} with one in "
                    "{}; add a file that has them",
                    timings.cells.size(), fmt::join(options.from, ", ")));
  return timings;
}

void print_as_json(const host::Timings& timings, const std::vector<dispatch::Row>& rows, const host::Verdict& verdict) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const dispatch::Row& row : rows)
    list.push_back({{"condition", dispatch::condition(row)}, {"implementation", row.implementation}});
  print_json({{"machine", timings.machine},
              {"cells", timings.cells.size()},
              {"rows", list},
              {"worst", verdict.worst},
              {"worst_cell", verdict.worst_cell},
              {"worst_without_depth", verdict.worst_unnamed},
              {"broken", verdict.broken},
              {"unseen", verdict.unseen}});
}

int run(TuneOptions options) {
  if (options.from.empty() && options.device == "cuda")
    if (const std::string why = host::device_missing(); !why.empty())
      return fail(fmt::format("--device cuda: {}; expected a machine with an NVIDIA GPU, or --device cpu", why));
#ifdef _OPENMP
  if (options.threads == 0) options.threads = omp_get_max_threads();
#else
  options.threads = 1;
#endif
  const double begun = now();
  const auto timings = options.from.empty() ? measure_here(options) : read_files(options);
  if (!timings) return fail(timings.error().message);
  const auto rows = host::rows_from(*timings);
  const host::Verdict verdict = host::judge_table(rows, *timings);

  const dispatch::FileTable table{timings->device, timings->machine, "", rows};
  const std::string measured =
      options.from.empty()
          ? fmt::format("{} cells measured by canopy tune in {:.0f} s{}", timings->cells.size(), now() - begun,
                        timings->device == CANOPY_CPU ? fmt::format(", {} threads", options.threads) : "")
          : fmt::format("{} cells of result files", timings->cells.size());
  std::string worst = verdict.worst > 1 ? fmt::format("the table's choice takes at most {:.2f} times the best ({})",
                                                      verdict.worst, verdict.worst_cell)
                                        : "the table's choice is the fastest everywhere";
  if (verdict.worst_unnamed > verdict.worst)
    worst += fmt::format("; {:.2f} where the caller names no depth", verdict.worst_unnamed);
  const std::string text =
      options.rows ? host::format_rows(rows) : dispatch::format_table(table, measured + "\n" + worst);
  if (!options.out.empty())
    if (const Error error = host::write_file(options.out, text); !error.ok()) return fail(error.message);
  if (options.json) {
    print_as_json(*timings, rows, verdict);
  } else if (options.out.empty()) {
    fmt::print("{}", text);
  } else {
    fmt::print("{}: {} rows for {}; {}; {}\n", options.out, rows.size(), timings->machine, measured, worst);
    if (!options.rows) fmt::print("to use it: export CANOPY_DISPATCH={}\n", options.out);
  }
  for (const std::string& cell : verdict.unseen)
    fmt::print(stderr, "canopy: the winner depends on what no table sees: {}\n", cell);
  for (const std::string& cell : verdict.broken)
    fmt::print(stderr, "canopy: more than {:.0f}% slower: {}\n", 100 * (host::kMostTimes - 1), cell);
  return verdict.broken.empty() || !options.strict ? kGood : kCheckFailed;
}

}  // namespace

void add_tune_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("tune", "Measures this machine and writes its dispatch table (CANOPY_DISPATCH names it)");
  auto options = std::make_shared<TuneOptions>();
  add_device_option(*command, options->device);
  command->add_option("--out", options->out, "the file to write; without it the table is printed");
  command->add_option("--seconds", options->seconds, "time to measure for")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "OpenMP threads (default: all)")->check(CLI::Range(1, 1024));
  command->add_option("--heads", options->spec.heads_k, "key heads H")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--heads-v", options->spec.heads_v, "value heads HV")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--dim-k", options->spec.dim_k, "K")->check(CLI::Range(8, 256))->capture_default_str();
  command->add_option("--dim-v", options->spec.dim_v, "V")->check(CLI::Range(8, 256))->capture_default_str();
  command->add_option("--from", options->from,
                      "measure nothing: take the cells of these result files (results/MACHINE/*.jsonl)");
  command->add_flag("--rows", options->rows, "write the rows as src/dispatch has them");
  command->add_flag("--json", options->json, "what was found as JSON");
  command->add_flag("--strict", options->strict,
                    "exit status 1 if the choice is more than 5% slower than the best on any cell");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace canopy::cli
