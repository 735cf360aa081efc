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

// kWords fixed random directions, [kWords][width].
std::vector<float> make_words(int width) {
  const host::Stream random(5, 0);
  std::vector<float> words(static_cast<std::size_t>(kWords) * width);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = 2 * random.uniform(i) - 1;
  return words;
}

// The best of the words for each node, of outputs rounded to bf16 as a model would hold them.
std::vector<int> decisions(const std::vector<float>& words, const std::vector<double>& o, int width) {
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

// One contender's rounds so far: the pool that its commits left, and how far off it is.
struct Drift {
  Contender contender;
  host::HostTensor pool;
  Json states = Json::array(), outputs_off = Json::array();
  int flips = 0;
};

// The contender's round: outputs, and its pool after the commit of the path to `leaf`.
Result<host::HostTensor> round_of(Drift& drift, host::HostProblem& problem, std::int32_t leaf) {
  problem.tensors.at("state") = drift.pool;
  auto o = outputs(drift.contender, problem);
  if (!o) return o;
  CommitParams params = commit_params_of(*problem.problem(), std::span(&leaf, 1), CANOPY_COMMIT_RESOLVE, nullptr);
  params.problem.device = drift.contender.implementation->device;
  const auto commit = choose(params);
  if (!commit) return commit.error();
  params.problem.device = CANOPY_CPU;
  auto committed = run_commit(problem, params, *commit->implementation);
  if (!committed) return committed.error();
  drift.pool = std::move(committed->state);
  return o;
}

Json record_of(const host::ProblemSpec& spec, const Problem& view, const Drift& drift, const Json& reported,
               int nodes) {
  const BenchCell cell = cell_of(drift.contender);
  return Json{{"type", "rounds"},
              {"schema", 1},
              {"contender", cell.contender},
              {"strategy", cell.strategy},
              {"device", drift.contender.implementation->device == CANOPY_CPU ? "cpu" : "cuda"},
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
              {"state_error", drift.states},
              {"output_error", drift.outputs_off},
              {"argmax", {{"words", kWords}, {"nodes", nodes}, {"flips", drift.flips}}}};
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
  const Problem first = *problem->problem();
  std::vector<Drift> drifts;
  for (const Contender& contender : *contenders) drifts.push_back({contender, problem->tensors.at("state")});
  // Inputs and model are the same for all: only the states that the contenders carry differ.
  host::RoundsModel model(first, problem->tensors.at("state"));
  const int width = first.heads_v * first.dim_v;
  const auto words = make_words(width);
  Json reported = Json::array();
  int nodes = 0;
  for (int round = 0; round < rounds; ++round) {
    const host::ProblemSpec own = round_spec(spec, round);
    auto inputs = host::make_problem(own);
    if (!inputs) return inputs.error();
    const auto tree = make_family(own.family);
    if (!tree) return tree.error();
    const Problem view = *inputs->problem();
    const std::int32_t leaf = (13 * round + 5) % view.nodes;
    const std::vector<double> truth = model.step(view, *tree, leaf);
    const auto wanted = decisions(words, truth, width);
    nodes += view.nodes;
    const bool report = round + 1 == rounds || std::find(std::begin(kReported), std::end(kReported), round + 1) !=
                                                   std::end(kReported);
    if (report) reported.push_back(round + 1);
    for (Drift& drift : drifts) {
      const auto o = round_of(drift, *inputs, leaf);
      if (!o) return o.error();
      const std::vector<double> got = host::values(*o);
      const auto taken = decisions(words, got, width);
      for (int t = 0; t < view.nodes; ++t) drift.flips += wanted[t] != taken[t];
      if (!report) continue;
      drift.states.push_back(model.error(view, drift.pool));
      drift.outputs_off.push_back(host::relative(truth, got));
    }
  }
  Json all = Json::array();
  for (const Drift& drift : drifts) all.push_back(record_of(spec, first, drift, reported, nodes));
  return all;
}

}  // namespace canopy::cli
