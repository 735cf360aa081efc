// canopy commit: the state of the accepted node into the pool, checked against E1 along its path in fp64.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CommitOptions {
  std::string file, leaf, method = "resolve", device = "cpu", implementation, out;
  host::ProblemSpec spec;
  bool json = false;
};

struct CommitOutcome {
  canopy_commit_method method;
  const CommitImplementation* implementation;
  CommitRun run;
  CommitCheck check;
  std::string verified_by;  // who wrote the stash
  double seconds = 0;
};

// "7" for every sequence or "7,-1,3" one each; negative skips a sequence.
Result<std::vector<std::int32_t>> parse_leaves(const std::string& text, const Oracle& oracle) {
  std::vector<std::int32_t> leaves;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    int value = 0, used = 0;
    if (std::sscanf(part.c_str(), "%d%n", &value, &used) != 1 || used != static_cast<int>(part.size()) ||
        part.size() > 9)
      return Error::invalid(
          fmt::format("--leaf: expected node numbers divided by commas, got '{}' in '{}'", part, text));
    leaves.push_back(value);
    at = comma + 1;
  }
  const std::size_t batch = oracle.live.size();
  if (leaves.size() == 1) leaves.resize(batch, leaves[0]);
  if (leaves.size() != batch)
    return Error::invalid(fmt::format("--leaf: expected one node for all or one for each of the {} sequences, got {}",
                                      batch, leaves.size()));
  for (std::size_t b = 0; b < batch; ++b)
    if (leaves[b] >= oracle.live[b] && oracle.live[b] > 0)
      return Error::invalid(
          fmt::format("--leaf: sequence {} has {} nodes: expected 0 to {} (or a negative number to skip "
                      "the sequence), got {}",
                      b, oracle.live[b], oracle.live[b] - 1, leaves[b]));
  return leaves;
}

std::vector<canopy_commit_method> methods_of(const std::string& name) {
  if (name == "stash") return {CANOPY_COMMIT_STASH};
  if (name == "replay") return {CANOPY_COMMIT_REPLAY};
  if (name == "resolve") return {CANOPY_COMMIT_RESOLVE};
  return {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY};
}

// By the dispatcher's choice, the named implementation, or all that take the method.
Result<std::vector<CommitOutcome>> commit_by(host::HostProblem& problem, const Problem& view, const Oracle& oracle,
                                             const std::vector<std::int32_t>& leaves, canopy_commit_method method,
                                             const CommitOptions& options) {
  host::VerifyRun stash;
  std::string verified_by;
  if (method == CANOPY_COMMIT_STASH) {
    auto verify_params = problem.verify();
    if (!verify_params) return verify_params.error();
    host::HostTensor o = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
    verify_params->o = o.view();
    if (Error error = use_device(options.device, verify_params->problem); !error.ok()) return error;
    const auto choice = choose(*verify_params);
    if (!choice) return choice.error();
    auto run = host::run_verify(problem, *choice->implementation, CANOPY_F32, true);
    if (!run) return run.error();
    stash = std::move(*run);
    verified_by = choice->implementation->name;
  }
  CommitParams params = commit_params_of(view, leaves, method, verified_by.empty() ? nullptr : &stash);
  if (const Error error = check(params); !error.ok()) return error;
  if (Error error = use_device(options.device, params.problem); !error.ok()) return error;
  std::vector<Refusal> refused;
  const auto selected = select(params, options.implementation, refused);
  if (!selected) return selected.error();
  std::vector<CommitOutcome> outcomes;
  for (const CommitImplementation* implementation : *selected) {
    auto run = run_commit(problem, params, *implementation);
    if (!run) return run.error();
    const CommitCheck verdict = check_commit(problem, oracle, leaves, run->state, implementation->relative_tolerance,
                                             implementation->absolute_tolerance);
    std::vector<TimedRun> timed;
    auto repeated = TimedRun::commit(problem, params, *implementation);
    if (!repeated) return repeated.error();
    timed.push_back(std::move(*repeated));
    const auto seconds = interleaved_medians(timed, 1);
    if (!seconds) return seconds.error();
    outcomes.push_back({method, implementation, std::move(*run), verdict, verified_by, seconds->front()});
  }
  return outcomes;
}

void print_outcomes(const std::vector<CommitOutcome>& outcomes) {
  fmt::print("{:<8} {:<20} {:>10} {:>10} {:>10} {:>10} {:>11}  {}\n", "method", "implementation", "relative",
             "tolerance", "max abs", "time", "workspace", "verdict");
  for (const CommitOutcome& outcome : outcomes) {
    const auto& deviation = outcome.check.check.deviation;
    fmt::print("{:<8} {:<20} {:>10.1e} {:>10.1e} {:>10.1e} {:>7.2f} ms {:>11}  {}{}\n", name_of(outcome.method),
               outcome.implementation->name, deviation.relative, outcome.check.check.relative_tolerance,
               deviation.max_abs, outcome.seconds * 1e3, bytes_text(outcome.run.workspace_bytes),
               outcome.check.passed() ? "ok" : "FAILED",
               !outcome.check.untouched ? " (a slot that was not accepted changed)"
               : deviation.finite       ? ""
                                        : " (NaN or Inf where none belongs)");
  }
}

Json to_json(const CommitOutcome& outcome) {
  const Check& check = outcome.check.check;
  Json json{{"method", name_of(outcome.method)},
            {"name", outcome.implementation->name},
            {"relative", check.deviation.relative},
            {"max_abs", check.deviation.max_abs},
            {"finite", check.deviation.finite},
            {"tolerance", Json{{"relative", check.relative_tolerance}, {"max_abs", check.absolute_tolerance}}},
            {"untouched", outcome.check.untouched},
            {"passed", outcome.check.passed()},
            {"milliseconds", outcome.seconds * 1e3},
            {"workspace_bytes", outcome.run.workspace_bytes}};
  if (!outcome.verified_by.empty()) json["stash_from"] = outcome.verified_by;
  return json;
}

int run(const CLI::App& command, const CommitOptions& options) {
  auto problem = load_problem(command, options.file, options.spec);
  if (!problem) return fail(problem.error().message);
  auto verify_params = problem->verify();
  if (!verify_params) return fail(verify_params.error().message);
  const Problem view = verify_params->problem;
  // The oracle reads trees and slots before the first commit: they are checked here, by the checks of a commit.
  const std::vector<std::int32_t> nobody(view.batch, -1);
  if (const Error error = check(commit_params_of(view, nobody, CANOPY_COMMIT_RESOLVE, nullptr)); !error.ok())
    return fail(error.message);
  const auto oracle = read_trees(view);
  if (!oracle) return fail(oracle.error().message);
  const auto leaves = parse_leaves(options.leaf, *oracle);
  if (!leaves) return fail(leaves.error().message);

  std::vector<CommitOutcome> outcomes;
  for (const canopy_commit_method method : methods_of(options.method)) {
    auto some = commit_by(*problem, view, *oracle, *leaves, method, options);
    if (!some) return fail(fmt::format("--method {}: {}", name_of(method), some.error().message));
    std::move(some->begin(), some->end(), std::back_inserter(outcomes));
  }
  const bool passed =
      std::all_of(outcomes.begin(), outcomes.end(), [](const CommitOutcome& outcome) { return outcome.check.passed(); });
  if (!options.out.empty()) {
    std::map<std::string, host::HostTensor> tensors{{"state", std::move(outcomes.front().run.state)}};
    const std::string text =
        host::format_safetensors(tensors, {{"state_layout", problem->layout == CANOPY_STATE_VK ? "vk" : "kv"},
                                           {"method", name_of(outcomes.front().method)}});
    if (const Error error = host::write_file(options.out, text); !error.ok()) return fail(error.message);
  }
  if (options.json) {
    Json json{{"problem", describe(*problem, view, *oracle)}, {"leaf", *leaves}};
    json["commits"] = Json::array();
    for (const CommitOutcome& outcome : outcomes) json["commits"].push_back(to_json(outcome));
    json["passed"] = passed;
    print_json(json);
  } else {
    fmt::print("{}\n\n", describe_line(*problem, view, *oracle));
    print_outcomes(outcomes);
  }
  return passed ? kGood : kCheckFailed;
}

}  // namespace

void add_commit_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("commit", "Write the accepted node's state into the pool and check it");
  auto options = std::make_shared<CommitOptions>();
  command->add_option("problem", options->file,
                      "a .safetensors file (docs/api.md); or make one with the options below");
  command
      ->add_option("--leaf", options->leaf, "accepted node: one for all sequences or one each, 7,-1,3; negative skips")
      ->required();
  command
      ->add_option("--method", options->method, "how the path's pseudo-values are had; stash runs a verification first")
      ->check(CLI::IsMember({"resolve", "stash", "replay", "all"}))
      ->capture_default_str();
  add_device_option(*command, options->device);
  command->add_option("--impl", options->implementation, "an implementation, or all (default: the dispatcher's choice)");
  command->add_option("--out", options->out,
                      "write the whole state pool, in its type and layout (--method all: by resolve)");
  command->add_flag("--json", options->json, "as JSON");
  add_problem_options(*command, options->spec);
  command->callback([command, options, &status] { status = run(*command, *options); });
}

}  // namespace canopy::cli
