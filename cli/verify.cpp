// canopy verify: a problem through the implementations, each against the fp64 oracle.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "selftest.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyOptions {
  std::string file, device = "cpu", implementation, out, save, output_dtype = "f32";
  host::ProblemSpec spec;
  bool stash = false, json = false, self_test = false;
  int repeat = 1, threads = 0;
};

struct VerifyOutcome {
  const VerifyImplementation* implementation;
  host::VerifyRun run;
  Check check, stash;
  double seconds = 0;
  bool passed() const { return check.passed && stash.passed; }
};

// Rows that no sequence owns hold the poison of run_verify: a file gets zeros there.
void clear_dead_rows(host::HostTensor& tensor, const Oracle& oracle) {
  const std::int64_t row = tensor.elements() / std::max<std::int64_t>(1, oracle.live.size() * oracle.nodes);
  const std::size_t size = host::size_of(tensor.dtype);
  for (std::size_t b = 0; b < oracle.live.size(); ++b)
    std::fill(tensor.bytes.begin() + (b * oracle.nodes + oracle.live[b]) * row * size,
              tensor.bytes.begin() + (b + 1) * oracle.nodes * row * size, std::byte{0});
}

Error write_outputs(const std::string& path, VerifyOutcome& outcome, const Oracle& oracle, bool stash) {
  std::map<std::string, host::HostTensor> tensors{{"o", std::move(outcome.run.o)}};
  if (stash) {
    tensors["U"] = std::move(outcome.run.u);
    tensors["l"] = std::move(outcome.run.l);
  }
  for (auto& [name, tensor] : tensors) clear_dead_rows(tensor, oracle);
  return host::write_file(path, host::format_safetensors(tensors, {{"implementation", outcome.implementation->name}}));
}

Json to_json(const VerifyOutcome& outcome, bool stash) {
  const auto& deviation = outcome.check.deviation;
  Json json{{"name", outcome.implementation->name},
            {"device", outcome.implementation->device == CANOPY_CPU ? "cpu" : "cuda"},
            {"relative", deviation.relative},
            {"max_abs", deviation.max_abs},
            {"finite", deviation.finite},
            {"tolerance",
             Json{{"relative", outcome.check.relative_tolerance}, {"max_abs", outcome.check.absolute_tolerance}}},
            {"passed", outcome.passed()},
            {"milliseconds", outcome.seconds * 1e3},
            {"workspace_bytes", outcome.run.workspace_bytes}};
  if (stash)
    json["stash"] = Json{{"relative", outcome.stash.deviation.relative},
                         {"max_abs", outcome.stash.deviation.max_abs},
                         {"passed", outcome.stash.passed}};
  return json;
}

void print_table(const std::vector<VerifyOutcome>& outcomes, const std::vector<Refusal>& refused, bool stash) {
  fmt::print("{:<22} {:>10} {:>10} {:>10} {:>10} {:>11}  {}\n", "implementation", "relative", "tolerance", "max abs",
             "time", "workspace", "verdict");
  for (const VerifyOutcome& outcome : outcomes) {
    fmt::print("{:<22} {:>10.1e} {:>10.1e} {:>10.1e} {:>7.2f} ms {:>11}  {}{}\n", outcome.implementation->name,
               outcome.check.deviation.relative, outcome.check.relative_tolerance, outcome.check.deviation.max_abs,
               outcome.seconds * 1e3, bytes_text(outcome.run.workspace_bytes), outcome.passed() ? "ok" : "FAILED",
               outcome.check.deviation.finite ? "" : " (NaN or Inf where none belongs)");
    if (stash) fmt::print("{:<22} {:>10.1e}\n", "  stash U", outcome.stash.deviation.relative);
  }
  for (const Refusal& refusal : refused) fmt::print("{:<22} refused: {}\n", refusal.name, refusal.reason);
}

int run(const CLI::App& command, const VerifyOptions& options) {
  if (options.self_test) {
    for (const CLI::Option* option : command.get_options())
      if (const std::string name = option->get_name();
          option->count() > 0 && name != "--self-test" && name != "--json" && name != "--threads")
        return fail(fmt::format(
            "{}: the self-test makes its own problems; expected at most --threads and --json with it", name));
    return self_test(options.json);
  }
  auto problem = load_problem(command, options.file, options.spec);
  if (!problem) return fail(problem.error().message);
  const canopy_dtype output = options.output_dtype == "bf16"  ? CANOPY_BF16
                              : options.output_dtype == "f16" ? CANOPY_F16
                                                              : CANOPY_F32;
  auto params = problem->verify();
  if (!params) return fail(params.error().message);
  const Problem view = params->problem;
  host::HostTensor o = host::HostTensor::make(output, {view.batch, view.nodes, view.heads_v, view.dim_v});
  params->o = o.view();
  if (const Error error = check(*params); !error.ok()) return fail(error.message);
  if (const Error error = use_device(options.device, params->problem); !error.ok()) return fail(error.message);
  std::vector<Refusal> refused;
  const auto selected = select(*params, options.implementation, refused);
  if (!selected) return fail(selected.error().message);
  if (!options.save.empty())
    if (const Error error = host::write_problem(options.save, *problem); !error.ok()) return fail(error.message);
  const auto oracle = run_oracle(*problem);
  if (!oracle) return fail(oracle.error().message);

  std::vector<VerifyOutcome> outcomes;
  std::vector<TimedRun> timed;
  Progress progress("verify", static_cast<int>(selected->size()));
  for (const VerifyImplementation* implementation : *selected) {
    auto run = host::run_verify(*problem, *implementation, output, options.stash);
    if (!run) return fail(fmt::format("{}: {}", implementation->name, run.error().message));
    auto repeated = TimedRun::verify(*problem, *implementation, output, options.stash);
    if (!repeated) return fail(fmt::format("{}: {}", implementation->name, repeated.error().message));
    timed.push_back(std::move(*repeated));
    VerifyOutcome outcome{implementation, std::move(*run), {}, {}, 0};
    outcome.check = check_rows(*oracle, oracle->o, outcome.run.o, implementation->relative_tolerance,
                               implementation->absolute_tolerance);
    outcome.stash.passed = true;
    if (options.stash)
      outcome.stash = check_rows(*oracle, oracle->u, outcome.run.u, implementation->relative_tolerance,
                                 implementation->absolute_tolerance);
    outcomes.push_back(std::move(outcome));
    progress.step(static_cast<int>(outcomes.size()), implementation->name);
  }
  const auto medians = interleaved_medians(timed, options.repeat);
  if (!medians) return fail(medians.error().message);
  for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i].seconds = (*medians)[i];

  const bool passed =
      std::all_of(outcomes.begin(), outcomes.end(), [](const VerifyOutcome& outcome) { return outcome.passed(); });
  if (!options.out.empty()) {
    // With --impl all the file holds what the dispatcher would have run.
    const auto choice = choose(*params);
    auto chosen = std::find_if(outcomes.begin(), outcomes.end(), [&](const VerifyOutcome& outcome) {
      return choice && outcome.implementation == choice->implementation;
    });
    if (chosen == outcomes.end()) chosen = outcomes.begin();
    if (const Error error = write_outputs(options.out, *chosen, *oracle, options.stash); !error.ok())
      return fail(error.message);
  }
  if (options.json) {
    Json json{{"problem", describe(*problem, view, *oracle)}, {"oracle_seconds", oracle->seconds}};
    json["implementations"] = Json::array();
    for (const VerifyOutcome& outcome : outcomes) json["implementations"].push_back(to_json(outcome, options.stash));
    json["refused"] = Json::array();
    for (const Refusal& refusal : refused)
      json["refused"].push_back(Json{{"name", refusal.name}, {"reason", refusal.reason}});
    json["passed"] = passed;
    print_json(json);
  } else {
    fmt::print("{}; fp64 oracle in {:.2f} s\n\n", describe_line(*problem, view, *oracle), oracle->seconds);
    print_table(outcomes, refused, options.stash);
  }
  return passed ? kGood : kCheckFailed;
}

}  // namespace

void add_verify_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("verify", "Run a problem and check every node's output against the fp64 oracle");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("problem", options->file,
                      "a .safetensors file (docs/api.md); or make one with the options below");
  add_device_option(*command, options->device);
  command->add_option("--impl", options->implementation,
                      "an implementation, or all (default: the dispatcher's choice)");
  command->add_option("--out", options->out, "write o, rows past a count as zeros, to this .safetensors file");
  command->add_flag("--stash", options->stash, "check the stash too; with --out write U and l");
  command->add_option("--o-dtype", options->output_dtype, "type of o; adds its rounding to the tolerance")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "timed runs at least; the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "OpenMP threads")->check(CLI::Range(1, 1024));
  command->add_option("--save", options->save, "write the problem to this .safetensors file");
  command->add_flag("--self-test", options->self_test, "every implementation over families and hostile inputs");
  command->add_flag("--json", options->json, "as JSON");
  add_problem_options(*command, options->spec);
  command->callback([command, options, &status] {
    const ThreadCount threads(options->threads);
    status = run(*command, *options);
  });
}

}  // namespace canopy::cli
