// Rounds of verify and commit on one pool, as a serving engine runs them, beside the oracle that carries its own state
// in fp64: errors must not add up.
#include "host/random.hpp"
#include "parity/layers.hpp"

namespace canopy::parity {
namespace {

constexpr double kDriftAllowed = 1e-3;  // docs/math.md: relative Frobenius after any number of rounds

double relative(const std::vector<double>& truth, const std::vector<double>& values) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double apart = values[i] - truth[i];
    difference += apart * apart, norm += truth[i] * truth[i];
  }
  return std::sqrt(difference / norm);
}

// What the rounds see: a fresh tree, fresh activations and an accepted node a round, the same for everybody.
struct Round {
  std::unique_ptr<Case> problem;
  std::int32_t leaf;
  std::vector<std::vector<double>> o, state;  // per head, the oracle's on its own state
};

ProblemSpec base(canopy_dtype state, host::Gates gates) {
  ProblemSpec spec;
  spec.family.name = "best-first", spec.family.nodes = 12, spec.family.depth = 5;
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 32, spec.dim_v = 16;
  spec.state = state, spec.gates = gates;
  return spec;
}

// `rounded`: the oracle's state goes through the pool's type after every round, as any implementation's must.
std::vector<Round> make_rounds(int count, ProblemSpec spec, bool rounded) {
  std::vector<Round> rounds;
  std::vector<std::vector<double>> state(std::size_t(spec.heads_v));
  const host::Stream random(77, 0);
  for (int i = 0; i < count; ++i) {
    spec.seed = spec.family.seed = std::uint64_t(i);
    Round round{std::make_unique<Case>(spec), std::int32_t(random.below(std::uint64_t(i), 12)), {}, {}};
    const Tree tree = *make_family(spec.family);
    for (int hv = 0; hv < spec.heads_v; ++hv) {
      reference::Head<double> head = reference::load_head(round.problem->params.problem, 0, hv, tree);
      if (i > 0) head.state = state[std::size_t(hv)];
      std::vector<std::vector<double>> states;
      round.o.push_back(reference::oracle(head, &states).o);
      state[std::size_t(hv)] = states[std::size_t(round.leaf)];
      if (rounded) {
        HostTensor through = HostTensor::make(spec.state, {1});
        for (double& x : state[std::size_t(hv)]) through.set(0, float(x)), x = through.get(0);
      }
      round.state.push_back(state[std::size_t(hv)]);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

struct Drift {
  double state = 0, o = 0;  // the largest of all rounds
  std::vector<double> state_by_round;
};

// A commit implementation with the verification before it, over all rounds on one pool.
Drift drift(const VerifyContender& verifier, const CommitContender& committer, const std::vector<Round>& rounds) {
  Drift out;
  HostTensor pool = rounds[0].problem->problem.tensors.at("state");
  const std::int64_t K = rounds[0].problem->params.problem.dim_k, V = rounds[0].problem->params.problem.dim_v;
  for (const Round& round : rounds) {
    VerifyParams params = round.problem->params;
    params.problem.state.data = pool.bytes.data();
    Outputs outputs = run(verifier, params);
    CommitParams commit = commit_params();
    commit.problem = params.problem, commit.leaf = &round.leaf;
    commit.stash_u = outputs.u.view(), commit.stash_l = outputs.l.view();
    set_method(committer, commit);
    pool = run_commit(committer, commit, pool);
    double worst = 0;
    for (std::size_t hv = 0; hv < round.state.size(); ++hv) {
      std::vector<double> state(std::size_t(K * V)), o(round.o[hv].size());
      for (std::int64_t k = 0; k < K; ++k)
        for (std::int64_t v = 0; v < V; ++v)
          state[std::size_t(k * V + v)] = pool.get(std::int64_t(hv) * K * V + v * K + k);
      for (std::size_t i = 0; i < o.size(); ++i)
        o[i] = outputs.o.get(std::int64_t(i) / V * std::int64_t(round.state.size()) * V + std::int64_t(hv) * V +
                             std::int64_t(i) % V);
      worst = std::max(worst, relative(round.state[hv], state));
      out.o = std::max(out.o, relative(round.o[hv], o));
    }
    out.state = std::max(out.state, worst);
    out.state_by_round.push_back(worst);
  }
  return out;
}

void expect_no_drift(const std::vector<Round>& rounds, double allowed, const char* what) {
  const auto& verifiers = contenders<VerifyParams>();
  double worst = -1;
  std::string worst_name;
  std::vector<double> curve;
  for (std::size_t i = 0; i < contenders<CommitParams>().size(); ++i) {
    const CommitContender& committer = contenders<CommitParams>()[i];
    const VerifyContender& verifier = verifiers[i % verifiers.size()];
    const Drift d = drift(verifier, committer, rounds);
    const std::string name = verifier.name() + " + " + committer.name();
    EXPECT_LE(d.state, allowed) << "state, " << name << ", " << what;
    EXPECT_LE(d.o, allowed) << "o, " << name << ", " << what;
    if (d.state > worst) worst = d.state, worst_name = name, curve = d.state_by_round;
  }
  std::printf("drift of the state, %s, worst pair %s:", what, worst_name.c_str());
  for (std::size_t round = 1; round <= curve.size(); round = round < 8 ? round * 2 : round * 5 / 2)
    std::printf(" %zu: %.2g,", round, curve[round - 1]);
  std::printf(" %zu: %.2g; largest %.2g\n", curve.size(), curve.back(), worst);
}

TEST(ParityRounds, FiveHundredRoundsInFp32) {
  expect_no_drift(make_rounds(light() ? 100 : 500, base(CANOPY_F32, host::Gates::natural), false), kDriftAllowed,
                  "natural gates");
}

// Without decay nothing is ever forgotten but what the delta rule overwrites.
TEST(ParityRounds, AHundredRoundsWithoutDecay) {
  ProblemSpec spec = base(CANOPY_F32, host::Gates::zero);
  spec.betas = host::Betas::one;
  expect_no_drift(make_rounds(light() ? 20 : 100, spec, false), kDriftAllowed, "gates 0, beta 1");
}

// A 16-bit state is rounded every round, by the oracle as well. Where the two land on neighbouring numbers the
// difference is one unit, so the unit roundoff bounds what is more than rounding.
TEST(ParityRounds, AHundredRoundsInBf16) {
  expect_no_drift(make_rounds(light() ? 20 : 100, base(CANOPY_BF16, host::Gates::natural), true), 0x1p-8, "bf16 state");
}

}  // namespace
}  // namespace canopy::parity
