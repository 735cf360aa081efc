// canopy demo: every published tree through one Qwen3.5-9B Gated DeltaNet layer: parity, time, memory.
#include "demo.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "host/device_bench.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DemoOptions {
  std::string trees = CANOPY_SOURCE_DIR "/data/trees";
  int rounds = 7, threads = 1;
  bool json = false;
};

Result<std::vector<DemoRow>> read_rows(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".json") files.push_back(entry->path());
  if (error) return Error::invalid(fmt::format("--trees {}: cannot read the folder: {}", folder, error.message()));
  if (files.empty()) return Error::invalid(fmt::format("--trees {}: expected tree files *.json, found none", folder));
  std::sort(files.begin(), files.end());
  std::vector<DemoRow> rows;
  for (const fs::path& file : files) {
    const auto text = read_text(file.string());
    if (!text) return text.error();
    auto parsed = parse_trees(*text, TreeFormat::detect, file.filename().string());
    if (!parsed) return parsed.error();
    for (std::size_t i = 0; i < parsed->trees.size(); ++i) {
      std::string name = file.stem().string();
      if (name.size() > 24) name = name.substr(0, 12) + "~" + name.substr(name.size() - 11);
      if (parsed->trees.size() > 1) name += fmt::format(" {}", i + 1);
      rows.push_back(DemoRow{name, std::move(parsed->trees[i])});
    }
  }
  return rows;
}

host::ProblemSpec layer_spec() {
  host::ProblemSpec spec;  // H16 HV32 K128 V128, bf16 activations, fp32 state: the defaults are this layer
  spec.seed = 1;
  return spec;
}

bool on_gpu() { return host::device_missing().empty(); }

Error measure_verify(DemoRow& row, host::HostProblem& problem, const Oracle& oracle, int rounds,
                     host::VerifyRun& stash) {
  std::vector<TimedRun> timed;
  const int stashes = on_gpu() ? kResident : kClosedForm;  // the fused kernel's default precision is meant for o
  for (int i = 0; i < kDemoVerifies; ++i) {
    const VerifyImplementation* implementation = find_verify(kDemoVerifyNames[on_gpu()][i]);
    if (!implementation) return Error::unsupported(fmt::format("{} is not in the registry", kDemoVerifyNames[on_gpu()][i]));
    auto run = host::run_verify(problem, *implementation, CANOPY_F32, i == stashes);
    if (!run) return run.error();
    const Check check =
        check_rows(oracle, oracle.o, run->o, implementation->relative_tolerance, implementation->absolute_tolerance);
    row.verify_error[i] = check.deviation.relative;
    row.passed = row.passed && check.passed;
    if (i == kClosedForm) row.workspace_bytes = static_cast<double>(run->workspace_bytes);
    if (i == stashes) stash = std::move(*run);
    auto repeated = TimedRun::verify(problem, *implementation, CANOPY_F32, false);
    if (!repeated) return repeated.error();
    timed.push_back(std::move(*repeated));
  }
  const auto medians = interleaved_medians(timed, rounds);
  if (!medians) return medians.error();
  std::copy(medians->begin(), medians->end(), row.verify_seconds);
  return {};
}

Error measure_commit(DemoRow& row, host::HostProblem& problem, const Oracle& oracle, int rounds,
                     host::VerifyRun& stash) {
  const auto view = problem.problem();
  if (!view) return view.error();
  const std::int32_t leaf[] = {row.leaf};
  std::vector<TimedRun> timed;
  for (int i = 0; i < kDemoCommits; ++i) {
    const CommitImplementation* implementation = find_commit(kDemoCommitNames[on_gpu()][i]);
    if (!implementation) return Error::unsupported(fmt::format("{} is not in the registry", kDemoCommitNames[on_gpu()][i]));
    constexpr canopy_commit_method methods[] = {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY};
    const CommitParams params = commit_params_of(*view, leaf, methods[i], i == kStash ? &stash : nullptr);
    auto run = run_commit(problem, params, *implementation);
    if (!run) return run.error();
    const CommitCheck check = check_commit(problem, oracle, leaf, run->state, implementation->relative_tolerance,
                                           implementation->absolute_tolerance);
    row.commit_error[i] = check.check.deviation.relative;
    row.passed = row.passed && check.passed();
    auto repeated = TimedRun::commit(problem, params, *implementation);
    if (!repeated) return repeated.error();
    timed.push_back(std::move(*repeated));
  }
  const auto medians = interleaved_medians(timed, rounds);
  if (!medians) return medians.error();
  std::copy(medians->begin(), medians->end(), row.commit_seconds);
  return {};
}

Error measure(DemoRow& row, const DemoOptions& options) {
  host::ProblemSpec spec = layer_spec();
  spec.trees = {row.tree};
  auto problem = host::make_problem(spec);
  if (!problem) return problem.error();
  const auto oracle = run_oracle(*problem);
  if (!oracle) return oracle.error();
  const ThreadCount threads(options.threads);  // the oracle had them all
  const auto depths = row.tree.depths();
  row.leaf = static_cast<int>(std::max_element(depths.begin(), depths.end()) - depths.begin());
  row.dense_blocks = dense_block_count(row.tree.size());
  row.compressed_blocks = compressed_block_count(row.tree);
  const double nodes = row.tree.size(), heads = spec.heads_v;
  row.snapshot_bytes = nodes * heads * spec.dim_k * spec.dim_v * sizeof(float);  // a state a node
  row.stash_bytes = nodes * heads * (spec.dim_v + 1) * sizeof(float);            // U and l
  host::VerifyRun stash;
  if (Error error = measure_verify(row, *problem, *oracle, options.rounds, stash); !error.ok()) return error;
  return measure_commit(row, *problem, *oracle, options.rounds, stash);
}

Json to_json(const DemoRow& row) {
  Json json{{"name", row.name}, {"nodes", row.tree.size()},         {"depth", row.tree.depth()},
            {"leaf", row.leaf}, {"dense_blocks", row.dense_blocks}, {"compressed_blocks", row.compressed_blocks}};
  for (int i = 0; i < kDemoVerifies; ++i)
    json["verify"].push_back(Json{{"name", kDemoVerifyNames[on_gpu()][i]},
                                  {"relative", row.verify_error[i]},
                                  {"milliseconds", row.verify_seconds[i] * 1e3}});
  for (int i = 0; i < kDemoCommits; ++i)
    json["commit"].push_back(Json{{"name", kDemoCommitNames[on_gpu()][i]},
                                  {"relative", row.commit_error[i]},
                                  {"milliseconds", row.commit_seconds[i] * 1e3}});
  json["kept_bytes_per_layer"] = Json{{"snapshots", row.snapshot_bytes}, {"stash", row.stash_bytes}, {"resolve", 0}};
  json["workspace_bytes"] = row.workspace_bytes;
  json["passed"] = row.passed;
  return json;
}

int run(const DemoOptions& options) {
  auto rows = read_rows(options.trees);
  if (!rows) return fail(rows.error().message);
  const Json machine = environment();
  DemoView view{isatty(STDOUT_FILENO) == 1 && !std::getenv("NO_COLOR")};
  if (!options.json) {
    view.heading(
        on_gpu() ? host::device_info().name + ", each call with its plan"
                 : fmt::format("{}, {} thread{}", machine["cpu"].get<std::string>(), options.threads,
                               options.threads == 1 ? "" : "s"),
        "Qwen3.5-9B Gated DeltaNet layer: B=1, 16 key heads, 32 value heads, K=V=128, bf16 inputs, fp32 state");
    view.shapes(*rows);
    std::fflush(stdout);
  }
  {
    Progress progress("trees", static_cast<int>(rows->size()));
    int done = 0;
    for (DemoRow& row : *rows) {
      if (const Error error = measure(row, options); !error.ok())
        return fail(fmt::format("{}: {}", row.name, error.message));
      progress.step(++done, row.name);
    }
  }
  const bool passed = std::all_of(rows->begin(), rows->end(), [](const DemoRow& row) { return row.passed; });
  if (options.json) {
    Json json{{"machine", machine}, {"trees", Json::array()}, {"passed", passed}};
    for (const DemoRow& row : *rows) json["trees"].push_back(to_json(row));
    print_json(json);
  } else {
    view.times(*rows);
    view.memory(*rows);
    view.closing(*rows);
  }
  return passed ? kGood : kCheckFailed;
}

}  // namespace

void add_demo_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("demo", "Published draft trees through a Qwen3.5-9B layer: parity, time, memory");
  auto options = std::make_shared<DemoOptions>();
  command->add_option("--trees", options->trees, "folder of tree files")->capture_default_str();
  command->add_option("--repeat", options->rounds, "timed rounds at least; the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "OpenMP threads of what is timed")->check(CLI::Range(1, 1024));
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace canopy::cli
