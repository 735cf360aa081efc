// canopy explain: which implementation would run, and why the others would not.
#include <fmt/core.h>

#include <memory>

#include "dispatch/file.hpp"
#include "parity.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  std::string file, device = "cpu";
  host::ProblemSpec spec;
  int precision = CANOPY_PRECISION_DEFAULT, max_depth = -1;
  bool stash = false, json = false;
};

int run(const CLI::App& command, const ExplainOptions& options) {
  auto problem = load_problem(command, options.file, options.spec);
  if (!problem) return fail(problem.error().message);
  auto params = problem->verify();
  if (!params) return fail(params.error().message);
  const Problem& view = params->problem;
  host::HostTensor o =
      host::HostTensor::make(problem->tensors.at("q").dtype, {view.batch, view.nodes, view.heads_v, view.dim_v});
  params->o = o.view();
  host::HostTensor u, l;
  if (options.stash) {
    u = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
    l = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v});
    params->stash_u = u.view(), params->stash_l = l.view();
  }
  params->precision = options.precision;
  if (options.max_depth >= 0) params->max_depth = options.max_depth;
  if (const Error error = check(*params); !error.ok()) return fail(error.message);
  if (const Error error = use_device(options.device, params->problem); !error.ok()) return fail(error.message);
  const auto text = explain(*params);
  if (!text) return fail(text.error().message);
  if (!options.json) {
    fmt::print("{}{}", *text, text->empty() || text->back() != '\n' ? "\n" : "");
    return kGood;
  }
  const auto choice = choose(*params);
  if (!choice) return fail(choice.error().message);
  Json json{{"choice", choice->implementation->name}, {"because", choice->because}};
  json["implementations"] = Json::array();
  for (const auto& entry : verify_implementations()) {
    std::string reason = entry.missing();
    if (reason.empty()) reason = entry.refuses(*params);
    Json item{
        {"name", entry.name}, {"description", entry.description}, {"accepts", reason.empty()}, {"reason", reason}};
    if (reason.empty()) item["workspace_bytes"] = entry.workspace(*params);
    json["implementations"].push_back(item);
  }
  json["text"] = *text;
  print_json(json);
  return kGood;
}

}  // namespace

void add_explain_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("explain", "Which implementation would run, and why the others would not");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("problem", options->file,
                      "a .safetensors file (docs/api.md); or describe one with the options below");
  add_device_option(*command, options->device);
  std::vector<std::pair<std::string, int>> precisions;
  for (int i = 0; i <= CANOPY_PRECISION_FAST; ++i) precisions.emplace_back(dispatch::kPrecisions[i], i);
  command->add_option("--precision", options->precision, "default, fp32, precise, half or fast")
      ->transform(CLI::CheckedTransformer(precisions));
  command->add_flag("--stash", options->stash, "U and l are stored, for a commit by stash");
  command
      ->add_option("--max-depth", options->max_depth,
                   "the depth that a caller names; 0: none (default: that of the deepest tree)")
      ->check(CLI::Range(0, 65535));
  command->add_flag("--json", options->json, "as JSON");
  add_problem_options(*command, options->spec);
  command->callback([command, options, &status] { status = run(*command, *options); });
}

}  // namespace canopy::cli
