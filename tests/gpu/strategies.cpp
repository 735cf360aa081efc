// What tells the solve strategies apart: the split design and CTAs of two value heads give the fused kernel's bits; the
// series hold to the depth
// that they are trusted to, whatever the keys, and lose everything beyond; dense substitution does not.
#include <cmath>
#include <initializer_list>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

using host::Betas, host::Gates, host::Keys;

const Contender* find(const std::string& name) {
  for (const Contender& contender : contenders())
    if (contender.name == name) return &contender;
  return nullptr;
}

void same_bits(Report& report, bool light) {
  const std::vector<std::pair<const char*, int>> shapes =
      light ? std::vector<std::pair<const char*, int>>{{"best-first", 13}, {"best-first", 20}, {"chain", 70}}
            : std::vector<std::pair<const char*, int>>{{"best-first", 16}, {"best-first", 256}, {"random", 200},
                                                       {"chain", 1},       {"chain", 256},      {"spine", 255},
                                                       {"star", 64},       {"caterpillar", 90}};
  for (const char* precision : {"half", "precise"}) {
    const Contender* const fused = find(text("cuda_fused ", precision));
    for (const auto& [family, nodes] : shapes)
      for (const bool raw : {false, true}) {
        ProblemSpec spec = base(family, nodes);
        spec.batch = 2, spec.heads_k = 2, spec.heads_v = 4;
        spec.ragged = spec.slots = spec.raw_gates = spec.l2norm = raw;
        HostProblem problem = make(spec);
        for (const char* name : {"cuda_split ", "cuda_fused_pair "}) {
          const Contender* const other = find(text(name, precision));
          if (!fused || !other) continue;
          const Outputs x = run(*fused, problem), y = run(*other, problem);
          std::string wrong = x.error.ok() ? y.error.message : x.error.message;
          if (wrong.empty() && (x.o.bytes != y.o.bytes || x.u.bytes != y.u.bytes || x.l.bytes != y.l.bytes))
            wrong = "other bits than the fused kernel's";
          report.add("same as fused", other->name, wrong.empty() ? "" : describe(spec) + ": " + wrong);
        }
      }
  }
}

ProblemSpec remembering(const char* family, int nodes, Keys keys) {
  ProblemSpec spec = base(family, nodes);
  spec.keys = keys, spec.key_cosine = 0.99, spec.gates = Gates::zero, spec.betas = Betas::one;
  return spec;
}

// Shallow trees of several blocks. The second: a root of 15 children, of which the last has all other nodes below it;
// it ends the first block and is the deepest there.
std::vector<ProblemSpec> shallow(bool light, Keys keys) {
  std::vector<ProblemSpec> specs = {remembering("best-first", light ? 40 : 200, keys)};
  std::vector<std::int32_t> parents = {-1};
  for (int node = 1; node < 40; ++node) parents.push_back(node < 16 ? 0 : node % 6 == 4 ? 15 : node - 1);
  specs.push_back(remembering("chain", 40, keys));
  specs.back().trees = {*Tree::from_parents(parents)};
  return specs;
}

// Betas of 2, on chains as deep as the dispatcher may choose the series for and no deeper.
void series_doubled(Report& report, bool light, const Contender& contender) {
  for (const Keys keys : {Keys::equal, Keys::similar, Keys::alternating, Keys::opposite})
    for (int nodes = light ? kSeriesDepthDoubled + 1 : 1; nodes <= kSeriesDepthDoubled + 2; ++nodes) {
      ProblemSpec spec = remembering("chain", nodes, keys);
      spec.raw_gates = true;
      HostProblem problem = make(spec);
      problem.beta_doubled = true;
      const bool trusted = nodes <= kSeriesDepthDoubled + 1;
      VerifyParams params = *problem.verify();
      params.problem.device = CANOPY_CUDA;
      std::string wrong;
      if (contender.implementation->unless_named(params).empty() != trusted)
        wrong = text("left to those who name it: ", !trusted, " was expected for ", nodes, " nodes");
      double worst = 0;
      const Problem view = *problem.problem();
      if (trusted && wrong.empty()) wrong = judge(contender, view, solve(view), run(contender, problem), worst);
      report.add("series, doubled", contender.name, wrong.empty() ? "" : describe(spec) + ": " + wrong, worst);
    }
}

void series(Report& report, bool light) {
  for (const Contender& contender : contenders()) {
    if (!contender.series) continue;
    for (const Keys keys : {Keys::equal, Keys::similar, Keys::alternating, Keys::opposite}) {
      std::vector<ProblemSpec> specs = shallow(light, keys);
      for (int nodes = light ? kSeriesDepth + 1 : 1; nodes <= kSeriesDepth + 1; ++nodes)
        specs.push_back(remembering("chain", nodes, keys));
      for (const ProblemSpec& spec : specs) {
        HostProblem problem = make(spec);
        const Problem view = *problem.problem();
        double worst = 0;
        const std::string wrong = judge(contender, view, solve(view), run(contender, problem), worst);
        report.add("series, trusted", contender.name, wrong.empty() ? "" : describe(spec) + ": " + wrong, worst);
      }
    }
    VerifyParams hinted = verify_params();
    hinted.problem.nodes = 64, hinted.max_depth = kSeriesDepth;
    const auto unless_named = contender.implementation->unless_named;
    report.add("series, left alone", contender.name,
               unless_named && !unless_named(hinted).empty() ? "" : "picked on the word of max_depth");
    series_doubled(report, light, contender);
    // Past it: a chain of 64 equal keys has no digit right, or is not finite. A test that the limit is there at all.
    HostProblem problem = make(remembering("chain", 64, Keys::equal));
    const Problem view = *problem.problem();
    const Outputs out = run(contender, problem);
    const Closeness c = compare(view, solve(view).o, out.o);
    report.add("series, beyond", contender.name,
               !out.error.ok()                 ? out.error.message
               : c.finite && c.relative < 1e-2 ? text("relative ", c.relative, ": expected no digit to be right")
                                               : "");
  }
}

// In default precision a stored u asks the dispatcher's rows of calls with a stash, where the table has none that hold
// those of precise, for f32 inputs those of fp32; and whom they lead to is as exact with the call as it is.
void dispatched_with_stash(Report& report, bool light) {
  for (const canopy_dtype input : {CANOPY_BF16, CANOPY_F16, CANOPY_F32})
    for (const int nodes : light ? std::vector{5, 40} : std::vector{1, 5, 16, 40, 129, 256})
      for (const int batch : {1, 4}) {
        ProblemSpec spec = base("best-first", nodes);
        spec.input = input, spec.batch = batch;
        HostProblem problem = make(spec);
        VerifyParams params = *problem.verify();
        const Problem view = params.problem;
        HostTensor o = HostTensor::make(CANOPY_F32, {batch, nodes, view.heads_v, view.dim_v}), u = o,
                   l = HostTensor::make(CANOPY_F32, {batch, nodes, view.heads_v});
        params.o = o.view(), params.stash_u = u.view(), params.stash_l = l.view();
        params.problem.device = CANOPY_CUDA;
        const bool fp32 = input == CANOPY_F32;
        VerifyParams named = params;
        named.precision = fp32 ? CANOPY_PRECISION_FP32 : CANOPY_PRECISION_PRECISE;
        const auto choice = choose(params), by_name = choose(named);
        std::string wrong = !choice ? choice.error().message : !by_name ? by_name.error().message : "";
        double worst = -1;
        if (wrong.empty()) {
          const std::string why = text("; with stash_u, default asks the rows of ", fp32 ? "fp32" : "precise");
          const bool own_row = !fp32 && choice->because.find(": stash") != std::string::npos;
          if (!own_row && choice->because != by_name->because + why)
            wrong = choice->because + ", by name " + by_name->because;
        }
        if (wrong.empty()) {
          const Contender contender{choice->implementation, CANOPY_PRECISION_DEFAULT, fp32 ? 1e-5 : 2e-5, 0, "", false,
                                    CANOPY_MAX_NODES};
          wrong = judge(contender, view, solve(view), run(contender, problem), worst);
        }
        report.add("dispatched, stash", "default", wrong.empty() ? "" : describe(spec) + ": " + wrong, worst);
      }
}

}  // namespace

void test_strategies(Report& report, bool light) {
  same_bits(report, light);
  series(report, light);
  dispatched_with_stash(report, light);
}

}  // namespace canopy::gpu
