// What a call may ask beyond the defaults: beta doubled, scale, the norm's epsilon, the types of raw gates and of their
// parameters, padding slots. Alone in the full set, all at once in the light one.
#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

// Trees of one block and of several.
std::vector<ProblemSpec> shapes(bool light = false) {
  std::vector<ProblemSpec> specs = {base("random", 13), base("best-first", light ? 20 : 90)};
  for (ProblemSpec& spec : specs) spec.raw_gates = spec.l2norm = true;
  return specs;
}

void retype(HostProblem& problem, const char* name, canopy_dtype dtype) {
  HostTensor& tensor = problem.tensors.at(name);
  HostTensor out = HostTensor::make(dtype, tensor.shape);
  for (std::int64_t i = 0; i < out.elements(); ++i) out.set(i, tensor.get(i));
  tensor = std::move(out);
}

// The parameters of the raw gates, every third element of memory of NaN.
RunOptions spread_parameters(const HostProblem& problem) {
  return {.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
    const std::pair<const char*, canopy_tensor*> all[] = {{"A_log", &params.problem.a_log},
                                                          {"dt_bias", &params.problem.dt_bias}};
    for (const auto& [name, view] : all) {
      const HostTensor& tensor = problem.tensors.at(name);
      HostTensor apart = HostTensor::make(tensor.dtype, {3 * tensor.elements()});
      std::fill(apart.bytes.begin(), apart.bytes.end(), std::byte{0xff});
      for (std::int64_t i = 0; i < tensor.elements(); ++i) apart.set(3 * i, tensor.get(i));
      view->data = const_cast<std::byte*>(on_device(apart.bytes.data(), apart.bytes.size(), held));
      view->stride[1] = 3;
    }
  }};
}

void beta_doubled(Report& report) {
  for (const ProblemSpec& spec : shapes())
    check_all(report, "beta doubled", spec, {}, [](HostProblem& problem) { problem.beta_doubled = true; });
}

void scales(Report& report) {
  for (const ProblemSpec& spec : shapes())
    for (const float scale : {0.37f, -2.5f})
      check_all(report, "scale", spec, {}, [&](HostProblem& problem) { problem.scale = scale; });
}

// Of the size of the keys' squares, where it is felt, and 0; and one that keeps keys of length 1e-7 from becoming 1e-4.
void epsilons(Report& report) {
  for (ProblemSpec spec : shapes())
    for (const float epsilon : {0.25f, 0.f, 1e-14f}) {
      spec.keys = epsilon == 1e-14f ? host::Keys::tiny : host::Keys::random;
      check_all(report, "l2norm epsilon", spec, {.set = [&](Problem& p) { p.l2norm_eps = epsilon; }});
    }
}

// a and b in a type of their own; A_log and dt_bias in one each.
void gate_types(Report& report) {
  constexpr canopy_dtype types[] = {CANOPY_F32, CANOPY_BF16, CANOPY_F16};
  for (ProblemSpec spec : shapes())
    for (int i = 0; i < 3; ++i) {
      spec.input = i < 2 ? CANOPY_BF16 : CANOPY_F16;
      HostProblem problem;  // which the views are spread from
      RunOptions options = spread_parameters(problem);
      check_all(report, "gate types", spec, options, [&](HostProblem& made) {
        retype(made, "a", types[i]), retype(made, "b", types[i]);
        retype(made, "A_log", types[(i + 1) % 3]), retype(made, "dt_bias", types[(i + 2) % 3]);
        problem = made;
      });
    }
}

void all_at_once(Report& report, std::vector<ProblemSpec> specs) {
  for (const ProblemSpec& spec : specs) {
    HostProblem problem;
    RunOptions options = spread_parameters(problem);
    options.set = [](Problem& p) { p.l2norm_eps = 0.25f; };
    check_all(report, "options", spec, options, [&](HostProblem& made) {
      made.beta_doubled = true, made.scale = 0.37f;
      retype(made, "a", CANOPY_F32), retype(made, "b", CANOPY_F32);
      retype(made, "A_log", CANOPY_BF16), retype(made, "dt_bias", CANOPY_F16);
      problem = made;
    });
  }
}

// Indices at and below a padding slot that is not -1 are rows that nobody asks for; without indices there are none.
void padding(Report& report, bool light) {
  for (const int nodes : {13, light ? 20 : 70})
    for (const int last : {0, 2}) {
      if (light && (last == 0) != (nodes == 13)) continue;
      const std::int64_t values[] = {last, 5, last == 0 ? -1 : 0, last + 1};
      ProblemSpec spec = base("random", nodes);
      spec.batch = 4, spec.slots = true;
      check_all(report, "padding slot", spec, {.set = [&](Problem& p) { p.padding_slot = last; }},
                [&](HostProblem& problem) {
                  HostTensor slots = HostTensor::make(last == 0 ? CANOPY_I64 : CANOPY_I32, {4});
                  for (int b = 0; b < 4; ++b) {
                    if (last == 0)
                      reinterpret_cast<std::int64_t*>(slots.bytes.data())[b] = values[b];
                    else
                      slots.i32()[b] = static_cast<std::int32_t>(values[b]);
                  }
                  problem.tensors["slots"] = slots;
                });
    }
  ProblemSpec unnamed = base("random", light ? 5 : 40);
  unnamed.batch = 2;
  check_all(report, "padding slot", unnamed, {.set = [](Problem& p) { p.padding_slot = 0; }});
}

}  // namespace

void test_options(Report& report, bool light) {
  std::vector<ProblemSpec> specs = shapes(light);
  if (!light) {
    specs.push_back(specs.front());  // more heads than SMs
    specs.back().family = base("random", 50).family;
    specs.back().batch = 24, specs.back().heads_k = 4, specs.back().heads_v = 8;
    beta_doubled(report), scales(report), epsilons(report), gate_types(report);
  }
  all_at_once(report, specs);
  padding(report, light);
}

}  // namespace canopy::gpu
