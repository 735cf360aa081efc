// Drift: rounds of verify and commit beside an fp64 model that carries its own state along the same path.
#include <algorithm>
#include <limits>

#include "bench_extra.hpp"
#include "host/device.hpp"
#include "host/random.hpp"
#include "host/rounds_model.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWords = 256;  // directions that an argmax is taken over, as over a vocabulary
constexpr int kReported[] = {1, 10, 100, 500};

// A round's problem: other activations, another tree; the state is the caller's.
host::ProblemSpec round_spec(const host::ProblemSpec& spec, int round) {
  host::ProblemSpec own = spec;
  own.batch = 1;
  own.seed = spec.seed + 500 + static_cast<std::uint64_t>(round);
  own.family.seed = spec.seed + 900 + static_cast<std::uint64_t>(round);
  return own;
}

// The best of kWords fixed random directions for each node, of outputs rounded to bf16 as a model would hold them.
std::vector<int> decisions(const std::vector<double>& o, int width) {
  const host::Stream random(5, 0);
  std::vector<float> words(static_cast<std::size_t>(kWords) * width);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = 2 * random.uniform(i) - 1;
  const int nodes = static_cast<int>(o.size()) / width;
  std::vector<int> best(nodes);
#pragma omp parallel for
  for (int t = 0; t < nodes; ++t) {
    std::vector<float> row(width);
    for (int i = 0; i < width; ++i) {
      std::uint16_t bits;
      host::store(CANOPY_BF16, &bits, 0, static_cast<float>(o[static_cast<std::size_t>(t) * width + i]));
      row[i] = host::load(CANOPY_BF16, &bits, 0);
    }
    double highest = -std::numeric_limits<double>::infinity();
    for (int w = 0; w < kWords; ++w) {
      double sum = 0;
      for (int i = 0; i < width; ++i) sum += double{words[static_cast<std::size_t>(w) * width + i]} * row[i];
      if (sum > highest) highest = sum, best[t] = w;
    }
  }
  return best;
}

Result<host::HostTensor> outputs(const Contender& contender, host::HostProblem& problem) {
  if (contender.implementation->device == CANOPY_CPU) {
    auto run = host::run_verify(problem, *contender.implementation);
    if (!run) return run.error();
    return std::move(run->o);
  }
  auto on = host::VerifyOnDevice::make(problem, *contender.implementation, CANOPY_F32, false,
                                       static_cast<canopy_precision>(contender.precision));
  if (!on) return on.error();
  if (const auto seconds = on->run(); !seconds) return seconds.error();
  auto run = on->results();
  if (!run) return run.error();
  return std::move(run->o);
}

Result<Json> drift(const host::ProblemSpec& spec, const Contender& contender, int rounds) {
  auto first = host::make_problem(round_spec(spec, 0));
  if (!first) return first.error();
  host::HostTensor pool = first->tensors.at("state");
  host::RoundsModel model(*first->problem(), pool);
  Json reported = Json::array(), states = Json::array(), outputs_off = Json::array();
  int nodes = 0, flips = 0;
  for (int round = 0; round < rounds; ++round) {
    const host::ProblemSpec own = round_spec(spec, round);
    auto problem = host::make_problem(own);
    if (!problem) return problem.error();
    problem->tensors.at("state") = pool;
    Problem view = *problem->problem();
    const auto tree = make_family(own.family);
    if (!tree) return tree.error();
    const std::int32_t leaf = (13 * round + 5) % view.nodes;
    const auto o = outputs(contender, *problem);
    if (!o) return o.error();
    CommitParams params = commit_params_of(view, std::span(&leaf, 1), CANOPY_COMMIT_RESOLVE, nullptr);
    params.problem.device = contender.implementation->device;
    const auto commit = choose(params);
    if (!commit) return commit.error();
    params.problem.device = CANOPY_CPU;
    auto committed = run_commit(*problem, params, *commit->implementation);
    if (!committed) return committed.error();
    pool = std::move(committed->state);
    const std::vector<double> truth = model.step(view, *tree, leaf), got = host::values(*o);
    const int width = view.heads_v * view.dim_v;
    const auto wanted = decisions(truth, width), taken = decisions(got, width);
    for (int t = 0; t < view.nodes; ++t) flips += wanted[t] != taken[t];
    nodes += view.nodes;
    if (round + 1 == rounds ||
        std::find(std::begin(kReported), std::end(kReported), round + 1) != std::end(kReported)) {
      reported.push_back(round + 1);
      states.push_back(model.error(view, pool));
      outputs_off.push_back(host::relative(truth, got));
    }
  }
  const Problem view = *first->problem();
  const BenchCell cell = cell_of(contender);
  return Json{{"type", "rounds"},
              {"schema", 1},
              {"contender", cell.contender},
              {"strategy", cell.strategy},
              {"device", contender.implementation->device == CANOPY_CPU ? "cpu" : "cuda"},
              {"precision", cell.precision},
              {"method", "resolve"},
              {"B", view.batch},
              {"T", view.nodes},
              {"family", spec.family.name},
              {"H", view.heads_k},
              {"HV", view.heads_v},
              {"K", view.dim_k},
              {"V", view.dim_v},
              {"input", name_of(spec.input)},
              {"state", name_of(spec.state)},
              {"rounds", reported},
              {"state_error", states},
              {"output_error", outputs_off},
              {"argmax", {{"words", kWords}, {"nodes", nodes}, {"flips", flips}}}};
}

}  // namespace

Result<Json> rounds_records(const host::ProblemSpec& spec, canopy_device device, const Effort& effort, int rounds) {
  auto problem = host::make_problem(round_spec(spec, 0));
  if (!problem) return problem.error();
  auto params = problem->verify();
  if (!params) return params.error();
  params->o = stand_in_output(params->problem);
  params->problem.device = device;
  const auto contenders = contenders_for(effort.contenders, *params);
  if (!contenders) return contenders.error();
  Json all = Json::array();
  for (const Contender& contender : *contenders) {
    auto record = drift(spec, contender, rounds);
    if (!record) return record.error();
    all.push_back(std::move(*record));
  }
  return all;
}

}  // namespace canopy::cli
