#include "selftest.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "parity.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;
using host::Betas, host::Gates, host::Keys, host::ProblemSpec;

struct Case {
  std::string group, label;
  ProblemSpec spec;
};

// One line of the table: an implementation over a group of cases.
struct Tally {
  std::string kind, name, group;
  int cases = 0, refused = 0, failed = 0;
  double worst = 0, tolerance = 0;  // relative error and tolerance of the case closest to its tolerance
  std::string first_failure;
};

class Table {
 public:
  Tally& line(const std::string& kind, const std::string& name, const std::string& group) {
    for (Tally& entry : lines)
      if (entry.kind == kind && entry.name == name && entry.group == group) return entry;
    return lines.emplace_back(Tally{kind, name, group, 0, 0, 0, 0, 0, ""});
  }
  void add(Tally& entry, const std::string& label, const Check& check, bool passed, const std::string& note) {
    ++entry.cases;
    const double error = check.deviation.relative;
    if (entry.tolerance == 0 || error * entry.tolerance > entry.worst * check.relative_tolerance) {
      entry.worst = error;
      entry.tolerance = check.relative_tolerance;
    }
    if (!passed)
      fail(entry,
           fmt::format("{}: relative {:.2e} (tolerance {:.0e}), max abs {:.2e} (tolerance {:.0e}){}", label, error,
                       check.relative_tolerance, check.deviation.max_abs, check.absolute_tolerance, note));
  }
  void fail(Tally& entry, const std::string& what) {
    if (entry.failed++ == 0) entry.first_failure = what;
  }
  std::vector<Tally> lines;
};

ProblemSpec base(const std::string& family, int nodes) {
  ProblemSpec spec;
  spec.heads_k = 1;
  spec.heads_v = 2;
  spec.dim_k = spec.dim_v = 64;
  spec.family.name = family;
  spec.family.nodes = nodes;
  spec.family.seed = spec.seed = 7;
  return spec;
}

std::vector<Case> tree_cases() {
  std::vector<Case> cases;
  for (const char* family : family_names())
    for (const int nodes : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 128, 129, 255, 256})
      cases.push_back({"trees", fmt::format("{} {}", family, nodes), base(family, nodes)});
  return cases;
}

std::vector<Case> input_cases() {
  std::vector<Case> cases;
  const std::pair<const char*, int> shapes[] = {
      {"chain", 17}, {"chain", 65}, {"best-first", 128}, {"random", 200}, {"chain", 256}};
  for (const auto& [family, nodes] : shapes) {
    const auto add = [&, family = family, nodes = nodes](const char* group, int number, auto change) {
      ProblemSpec spec = base(family, nodes);
      change(spec);
      cases.push_back({group, fmt::format("{} {} variant {}", family, nodes, number), spec});
    };
    for (int keys = 0; keys <= static_cast<int>(Keys::tiny); ++keys)
      for (const double cosine : {0.95, 0.99})
        add("keys", keys, [&](ProblemSpec& spec) {
          spec.keys = static_cast<Keys>(keys);
          spec.key_cosine = cosine;
          spec.gates = Gates::zero;
          spec.betas = Betas::one;
          spec.l2norm = spec.keys == Keys::tiny;
        });
    for (int gates = 0; gates <= static_cast<int>(Gates::positive); ++gates)
      add("gates", gates, [&](ProblemSpec& spec) { spec.gates = static_cast<Gates>(gates); });
    for (int betas = 0; betas <= static_cast<int>(Betas::mixed); ++betas)
      add("betas", betas, [&](ProblemSpec& spec) { spec.betas = static_cast<Betas>(betas); });
    for (const double scale : {1e4, 1e-4})
      add("state scale", scale > 1, [&](ProblemSpec& spec) { spec.state_scale = scale; });
  }
  return cases;
}

std::vector<Case> form_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* group, const std::string& label, auto change) {
    ProblemSpec spec = base("best-first", 100);
    change(spec);
    cases.push_back({group, label, spec});
  };
  for (const canopy_dtype input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
    for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV})
        add("types", fmt::format("q {} state {} layout {}", name_of(input), name_of(state), static_cast<int>(layout)),
            [&](ProblemSpec& spec) {
              spec.input = input;
              spec.state = state;
              spec.layout = layout;
            });
  add("forms", "raw gates", [](ProblemSpec& spec) { spec.raw_gates = true; });
  add("forms", "L2 norm", [](ProblemSpec& spec) { spec.l2norm = true; });
  add("forms", "raw gates and L2 norm", [](ProblemSpec& spec) { spec.raw_gates = spec.l2norm = true; });
  add("forms", "ragged batch", [](ProblemSpec& spec) {
    spec.batch = 5;
    spec.ragged = true;
  });
  add("forms", "slots", [](ProblemSpec& spec) {
    spec.batch = 5;
    spec.slots = true;
  });
  add("forms", "ragged batch in slots", [](ProblemSpec& spec) {
    spec.batch = 6;
    spec.ragged = spec.slots = true;
  });
  for (const int ratio : {1, 3, 4, 8})
    add("forms", fmt::format("HV/H = {}", ratio), [&](ProblemSpec& spec) {
      spec.heads_k = 2;
      spec.heads_v = 2 * ratio;
    });
  for (const auto& [k, v] : {std::pair{128, 128}, {8, 256}, {256, 8}, {24, 40}})
    add("forms", fmt::format("K {} V {}", k, v), [&, k = k, v = v](ProblemSpec& spec) {
      spec.dim_k = k;
      spec.dim_v = v;
    });
  return cases;
}

// The deepest node of each sequence.
std::vector<std::int32_t> deepest(const Oracle& oracle) {
  std::vector<std::int32_t> leaves;
  for (std::size_t b = 0; b < oracle.live.size(); ++b) {
    const auto depths = oracle.trees[b].depths();
    leaves.push_back(oracle.live[b] == 0
                         ? -1
                         : static_cast<std::int32_t>(std::max_element(depths.begin(), depths.end()) - depths.begin()));
  }
  return leaves;
}

Error run_commits(Table& table, const Case& item, host::HostProblem& problem, const Oracle& oracle,
                  host::VerifyRun& stash) {
  const auto view = problem.problem();
  if (!view) return view.error();
  const auto leaves = deepest(oracle);
  for (const CommitImplementation& implementation : commit_implementations()) {
    if (!std::string(implementation.missing()).empty()) continue;
    for (const canopy_commit_method method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      const CommitParams params =
          commit_params_of(*view, leaves, method, method == CANOPY_COMMIT_STASH ? &stash : nullptr);
      if (!implementation.refuses(params).empty()) continue;
      Tally& line = table.line("commit", implementation.name, item.group);
      auto run = run_commit(problem, params, implementation);
      if (!run) {
        table.fail(line, fmt::format("{}: {}", item.label, run.error().message));
        continue;
      }
      const CommitCheck check = check_commit(problem, oracle, leaves, run->state, implementation.relative_tolerance,
                                             implementation.absolute_tolerance);
      table.add(line, item.label, check.check, check.passed(), check.untouched ? "" : ", another slot changed");
    }
  }
  return {};
}

Error run_case(Table& table, const Case& item) {
  auto problem = host::make_problem(item.spec);
  if (!problem) return Error::invalid(item.label + ": " + problem.error().message);
  const auto oracle = run_oracle(*problem);
  if (!oracle) return oracle.error();
  auto params = problem->verify();
  if (!params) return params.error();
  const Problem& view = params->problem;
  host::HostTensor o = host::HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
  params->o = o.view();
  host::VerifyRun stash;
  const auto choice = choose(*params);
  for (const VerifyImplementation& implementation : verify_implementations()) {
    if (!std::string(implementation.missing()).empty()) continue;
    Tally& line = table.line("verify", implementation.name, item.group);
    if (!implementation.refuses(*params).empty()) {
      ++line.refused;
      continue;
    }
    auto run = host::run_verify(*problem, implementation, CANOPY_F32, true);
    if (!run) {
      table.fail(line, fmt::format("{}: {}", item.label, run.error().message));
      continue;
    }
    const Check out =
        check_rows(*oracle, oracle->o, run->o, implementation.relative_tolerance, implementation.absolute_tolerance);
    const Check u =
        check_rows(*oracle, oracle->u, run->u, implementation.relative_tolerance, implementation.absolute_tolerance);
    table.add(line, item.label, out, out.passed && u.passed,
              u.passed ? "" : fmt::format(", stash U relative {:.2e}", u.deviation.relative));
    if (choice && choice->implementation == &implementation) stash = std::move(*run);
  }
  if (stash.u.shape.empty()) return Error::invalid(item.label + ": the dispatcher's implementation did not run");
  return run_commits(table, item, *problem, *oracle, stash);
}

// A branch full of NaN, Inf or 1e30 changes no bit of a node outside it.
Error run_poison(Table& table, const std::string& family, int nodes, int node, float poison) {
  const std::string label = fmt::format("{} {}, {} at node {}", family, nodes, poison, node);
  auto clean = host::make_problem(base(family, nodes));
  if (!clean) return clean.error();
  host::HostProblem dirty = *clean;
  const auto trees = read_trees(*clean->problem());
  if (!trees) return trees.error();
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    host::HostTensor& tensor = dirty.tensors.at(name);
    const std::int64_t row = tensor.elements() / nodes;
    for (std::int64_t i = node * row; i < (node + 1) * row; ++i) tensor.set(i, poison);
  }
  for (const VerifyImplementation& implementation : verify_implementations()) {
    if (!std::string(implementation.missing()).empty() || !implementation.refuses(*clean->verify()).empty()) continue;
    Tally& line = table.line("verify", implementation.name, "poisoned branch");
    auto expected = host::run_verify(*clean, implementation);
    auto got = host::run_verify(dirty, implementation);
    if (!expected || !got) {
      table.fail(line, label + ": " + (expected ? got : expected).error().message);
      continue;
    }
    const std::size_t row = expected->o.bytes.size() / nodes;
    int touched = -1;
    for (int i = 0; i < nodes; ++i) {
      const bool inside = i == node || contains(trees->trees[0].ancestors(i), node);
      if (!inside && std::memcmp(&expected->o.bytes[i * row], &got->o.bytes[i * row], row) != 0) touched = i;
    }
    ++line.cases;
    if (touched >= 0) table.fail(line, fmt::format("{}: node {} outside the branch changed", label, touched));
  }
  return {};
}

void print_table(const Table& table) {
  fmt::print("{:<7} {:<22} {:<16} {:>5}  {:>9} {:>9}  {}\n", "", "implementation", "cases", "", "worst", "tolerance",
             "verdict");
  for (const Tally& line : table.lines) {
    const bool exact = line.tolerance == 0;
    fmt::print("{:<7} {:<22} {:<16} {:>5}  {:>9} {:>9}  {}{}\n", line.kind, line.name, line.group, line.cases,
               exact ? "same bits" : fmt::format("{:.1e}", line.worst),
               exact ? "" : fmt::format("{:.1e}", line.tolerance),
               line.failed ? fmt::format("{} FAILED: {}", line.failed, line.first_failure) : "ok",
               line.refused ? fmt::format(" ({} refused)", line.refused) : "");
  }
}

Json to_json(const Tally& line) {
  return Json{{"kind", line.kind},
              {"name", line.name},
              {"group", line.group},
              {"cases", line.cases},
              {"refused", line.refused},
              {"failed", line.failed},
              {"worst_relative", line.worst},
              {"tolerance", line.tolerance},
              {"first_failure", line.first_failure}};
}

}  // namespace

int self_test(bool json) {
  std::vector<Case> cases = tree_cases();
  for (auto more : {input_cases(), form_cases()}) cases.insert(cases.end(), more.begin(), more.end());
  Table table;
  {
    Progress progress("self-test", static_cast<int>(cases.size()));
    int done = 0;
    for (const Case& item : cases) {
      if (const Error error = run_case(table, item); !error.ok()) return fail(error.message);
      progress.step(++done, item.group);
    }
  }
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f})
    for (const auto& [family, nodes, node] :
         {std::tuple{"best-first", 128, 5}, {"random", 200, 30}, {"chain", 65, 40}, {"star", 33, 9}})
      if (const Error error = run_poison(table, family, nodes, node, poison); !error.ok()) return fail(error.message);

  std::stable_sort(table.lines.begin(), table.lines.end(), [](const Tally& a, const Tally& b) {
    return std::tie(b.kind, a.name) < std::tie(a.kind, b.name);  // verify before commit
  });
  const bool passed =
      std::none_of(table.lines.begin(), table.lines.end(), [](const Tally& line) { return line.failed > 0; });
  const bool empty = table.lines.empty();
  if (json) {
    Json document{{"lines", Json::array()}, {"passed", passed && !empty}};
    for (const Tally& line : table.lines) document["lines"].push_back(to_json(line));
    print_json(document);
  } else {
    print_table(table);
    fmt::print("\n{}\n", empty ? "no implementation ran" : passed ? "all checks passed" : "some checks FAILED");
  }
  return passed && !empty ? kGood : kCheckFailed;
}

}  // namespace canopy::cli
