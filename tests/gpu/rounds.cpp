// Many rounds of verify and commit: how far state and outputs drift from an fp64 model that takes the same path, and
// how often the rounding of a precision changes a decision (the argmax of a random projection of o).
#include <algorithm>
#include <random>

#include "gpu/harness.hpp"
#include "host/rounds_model.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr int kNodes = 24, kWords = 256;

ProblemSpec round_spec(int round, canopy_dtype state) {
  ProblemSpec spec = base("best-first", kNodes);
  spec.state = state;
  spec.seed = 500 + round, spec.family.seed = 900 + round;
  return spec;
}

using host::relative, host::RoundsModel, host::values;

// Best of kWords fixed random directions for each node.
std::vector<int> decisions(const std::vector<double>& o, int width) {
  static const std::vector<float> words = [&] {
    std::mt19937 random(5);
    std::vector<float> all(static_cast<std::size_t>(kWords) * width);
    for (float& x : all) x = (static_cast<float>(random()) - 2147483648.0f) / 2147483648.0f;
    return all;
  }();
  std::vector<int> best;
  for (std::size_t t = 0; t * width < o.size(); ++t) {
    double highest = -1e300;
    int word = 0;
    for (int w = 0; w < kWords; ++w) {
      double sum = 0;
      for (int i = 0; i < width; ++i) sum += words[w * width + i] * o[t * width + i];
      if (sum > highest) highest = sum, word = w;
    }
    best.push_back(word);
  }
  return best;
}

// `state_limit`: what 100 rounds must stay within, 0 for a figure that is reported only.
void drift(Report& report, const Contender& contender, canopy_commit_method method, canopy_dtype state, int rounds,
           double limit) {
  const CommitImplementation* commit = nullptr;
  for (const auto& each : cuda_commit_implementations()) {
    CommitParams params = commit_params();
    HostProblem problem = make(round_spec(0, state));
    params.problem = *problem.problem(), params.problem.device = CANOPY_CUDA, params.method = method;
    if (each.refuses(params).empty()) commit = &each;
  }
  HostProblem first = make(round_spec(0, state));
  HostTensor pool = first.tensors.at("state");
  RoundsModel model(*first.problem(), pool);
  std::string line, wrong;
  double worst = 0, last_output = 0;
  for (int round = 0; round < rounds && wrong.empty(); ++round) {
    HostProblem problem = make(round_spec(round, state));
    problem.tensors.at("state") = pool;
    const Problem view = *problem.problem();
    const Tree tree = *make_family(round_spec(round, state).family);
    const int leaf = (13 * round + 5) % kNodes;
    const Outputs out = run(contender, problem);
    if (!(wrong = out.error.message).empty()) break;
    CommitParams params = commit_params();
    params.problem = view, params.method = method, params.leaf = &leaf;
    HostTensor u = out.u, l = out.l;
    if (method == CANOPY_COMMIT_STASH) params.stash_u = u.view(), params.stash_l = l.view();
    auto on = host::CommitOnDevice::make(problem, params, *commit);
    if (!(wrong = on ? "" : on.error().message).empty()) break;
    if (const auto seconds = on->run(); !seconds) wrong = seconds.error().message;
    if (!wrong.empty()) break;
    pool = *on->state();
    last_output = relative(model.step(view, tree, leaf), values(out.o));
    const double state_error = model.error(view, pool);
    if (round < 100) worst = std::max({worst, state_error, last_output});
    if (round == 0 || round == 9 || round == 99 || round == 499) {
      char figures[64];
      std::snprintf(figures, sizeof figures, "  %d: %.1e %.1e", round + 1, state_error, last_output);
      line += figures;
    }
  }
  constexpr const char* methods[] = {"resolve", "stash", "replay"};
  const std::string name = text(contender.name, ", ", methods[method], ", state ", dtype_name(state));
  report.note(text("drift after rounds (state, o): ", name, line));
  if (wrong.empty() && limit > 0 && !(worst <= limit))
    wrong = text(name, ": ", worst, " after 100 rounds, allowed ", limit);
  report.add("rounds", contender.name, wrong, limit > 0 ? worst / limit : 0);
}

// Decisions that differ from the serial fp32 kernel's on the same states, and its own from fp64's.
void argmax_flips(Report& report, int rounds) {
  const Contender* serial = nullptr;
  for (const Contender& contender : contenders())
    if (std::string(contender.implementation->name) == "cuda_serial_resident") serial = &contender;
  std::vector<int> flips(contenders().size() + 1);
  int total = 0;
  for (int round = 0; round < rounds; ++round) {
    HostProblem problem = make(round_spec(round, CANOPY_F32));
    const Problem view = *problem.problem();
    const int width = view.heads_v * view.dim_v;
    const auto by_serial =
        decisions(values(run(*serial, problem, {.output = CANOPY_BF16, .stash = false, .adjust = {}}).o), width);
    const auto count = [&](const std::vector<int>& other, int& into) {
      for (std::size_t i = 0; i < other.size(); ++i) into += other[i] != by_serial[i];
    };
    HostTensor exact = HostTensor::make(CANOPY_BF16, {view.nodes, width});
    const std::vector<double> truth = solve(view).o;
    for (std::size_t i = 0; i < truth.size(); ++i) exact.set(i, static_cast<float>(truth[i]));
    count(decisions(values(exact), width), flips.back());
    for (std::size_t c = 0; c < contenders().size(); ++c)
      count(decisions(values(run(contenders()[c], problem, {.output = CANOPY_BF16, .stash = false, .adjust = {}}).o),
                      width),
            flips[c]);
    total += view.nodes;
  }
  std::string line = text("argmax of ", kWords, " projections of o (bf16), ", total,
                          " nodes, other than serial fp32's: fp64 ", flips.back());
  for (std::size_t c = 0; c < contenders().size(); ++c) line += text(", ", contenders()[c].name, " ", flips[c]);
  report.note(line);
}

}  // namespace

void test_rounds(Report& report, bool light) {
  for (const Contender& contender : contenders()) {
    if (contender.implementation->name == std::string("cuda_serial_snapshot")) continue;
    const bool exact = contender.absolute > 0 || contender.precision == CANOPY_PRECISION_PRECISE;
    const int rounds = light ? 2 : 100;
    // o itself carries the precision's error; only the state can drift.
    const double limit = std::max(1e-3, contender.relative);
    drift(report, contender, CANOPY_COMMIT_RESOLVE, CANOPY_F32, rounds, limit);
    if (exact) drift(report, contender, CANOPY_COMMIT_STASH, CANOPY_F32, light ? 2 : 500, limit);
  }
  if (light) return;
  const Contender& first = contenders().front();
  drift(report, first, CANOPY_COMMIT_RESOLVE, CANOPY_F32, 500, std::max(1e-3, first.relative));
  drift(report, first, CANOPY_COMMIT_REPLAY, CANOPY_F32, 500, std::max(1e-3, first.relative));
  drift(report, first, CANOPY_COMMIT_RESOLVE, CANOPY_BF16, 100, 0);
  argmax_flips(report, 100);
}

}  // namespace canopy::gpu
