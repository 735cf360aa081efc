// canopy study: how accurate each solver of (E6) is, against depth and the similarity of keys (docs/numerics.md).
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "command.hpp"
#include "reference/sample.hpp"
#include "reference/system.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;
using reference::Solver;

struct StudyOptions {
  bool json = false, quick = false;
  std::string out;
};

struct StudyKeys {
  const char* name;
  double cosine;
  bool opposite;
};
constexpr StudyKeys kKeys[] = {{"random", 0, false},         {"cosine 0.5", 0.5, false},   {"cosine 0.9", 0.9, false},
                               {"cosine 0.95", 0.95, false}, {"cosine 0.99", 0.99, false}, {"equal", 1, false},
                               {"opposite", 1, true}};
constexpr int kPrinted[] = {2, 4, 8, 16, 32, 64, 128, 256};                               // chain lengths of the table
constexpr int kStored[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};  // and of the JSON
constexpr int kWidthK = 128, kWidthV = 16;  // columns of V are independent: 16 samples a node are enough

struct Norms {
  double relative = 0, max_abs = 0;  // infinity: overflow
};

// One line of the result: a solver in one precision on one kind of input; the worst of the seeds.
struct Series {
  std::string memory, keys, precision;
  Solver solver = Solver::row;
  std::vector<Norms> chain;  // [n - 1]: a chain of n nodes
  Norms tree;                // the depth-8 tree
  double threshold() const { return precision == "fp32" ? 1e-4 : 1e-10; }
  // The largest depth up to which every chain stays under the threshold; -1 if none does.
  int trusted_depth() const {
    int nodes = 0;
    while (nodes < int(chain.size()) && chain[nodes].relative < threshold()) ++nodes;
    return nodes - 1;
  }
};

// Errors of the first n nodes, for every n. A node's output depends on its root path alone and the series' terms beyond
// its depth are exactly zero for it, so the first n nodes of a long chain are the chain of n nodes.
std::vector<Norms> errors_by_length(const std::vector<double>& truth, const std::vector<double>& got, int nodes) {
  std::vector<Norms> errors;
  double difference = 0, norm = 0, most = 0;
  for (int i = 0; i < nodes; ++i) {
    for (int e = i * kWidthV; e < (i + 1) * kWidthV; ++e) {
      const double d = std::abs(got[e] - truth[e]);
      difference += d * d, norm += truth[e] * truth[e];
      most = std::isfinite(d) ? std::max(most, d) : HUGE_VAL;
    }
    const double relative = std::sqrt(difference / norm);
    errors.push_back(std::isfinite(relative) && std::isfinite(most) ? Norms{relative, most}
                                                                    : Norms{HUGE_VAL, HUGE_VAL});
  }
  return errors;
}

template <class Real>
std::vector<double> output_of(const reference::System<Real>& system, const Tree& tree, Solver solver) {
  const std::vector<Real> o = reference::outputs(system, reference::solve(system, tree, solver, kBlockRows));
  return {o.begin(), o.end()};
}

void keep_worst(Norms& worst, const Norms& error) {
  worst.relative = std::max(worst.relative, error.relative);
  worst.max_abs = std::max(worst.max_abs, error.max_abs);
}

// Adds one head's errors to the six series of one precision.
template <class Real>
void measure(const reference::Head<double>& head, const std::vector<double>& truth, Series* series) {
  const Tree& tree = *head.tree;
  const auto system = reference::build_system(reference::convert<Real>(head), reference::ancestor_sets(tree));
  const bool chain = tree.depth() == tree.size() - 1;
  for (const Solver solver : reference::kSolvers) {
    const auto errors = errors_by_length(truth, output_of(system, tree, solver), tree.size());
    if (chain) {
      series->chain.resize(errors.size());
      for (std::size_t n = 0; n < errors.size(); ++n) keep_worst(series->chain[n], errors[n]);
    } else {
      keep_worst(series->tree, errors.back());
    }
    ++series;
  }
}

Result<std::vector<Series>> run_study(const StudyOptions& options) {
  const int nodes = options.quick ? 64 : 256, seeds = options.quick ? 1 : 3;
  const auto chain = make_family({.name = "chain", .nodes = nodes});
  const auto tree = make_family({.name = "best-first", .nodes = nodes, .top_k = 4, .depth = 8});
  if (!chain) return chain.error();
  if (!tree) return tree.error();
  std::vector<Series> all;
  Progress progress("study", 2 * int(std::size(kKeys)) * seeds);
  int done = 0;
  for (const bool full : {true, false}) {
    for (const StudyKeys& keys : kKeys) {
      const std::size_t first = all.size();
      for (const char* precision : {"fp64", "fp32"}) {
        for (const Solver solver : reference::kSolvers) {
          all.push_back({full ? "full" : "natural", keys.name, precision, solver, {}, {}});
        }
      }
      for (int seed = 0; seed < seeds; ++seed) {
        reference::Sample spec;
        spec.dim_k = kWidthK, spec.dim_v = kWidthV, spec.seed = 1 + seed;
        spec.cosine = keys.cosine, spec.opposite = keys.opposite;
        if (full) {
          spec.gate = [](int, int) { return 0.0; };
          spec.beta = [](int, int) { return 1.0; };
        }
        for (const Tree* shape : {&*chain, &*tree}) {
          const auto head = reference::sample_head(*shape, spec);
          const auto truth = reference::oracle(head).o;
          measure<double>(head, truth, &all[first]);
          measure<float>(head, truth, &all[first + std::size(reference::kSolvers)]);
        }
        progress.step(++done, keys.name);
      }
    }
  }
  return all;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }  // null: overflow

Json to_json(const Series& series) {
  Json line{{"type", "study"},
            {"schema", 1},
            {"memory", series.memory},
            {"keys", series.keys},
            {"precision", series.precision},
            {"solver", reference::name_of(series.solver)},
            {"stable", reference::stable(series.solver)},
            {"trusted_depth", series.trusted_depth()},
            {"threshold", series.threshold()},
            {"tested_depth", series.chain.size() - 1}};
  line["nodes"] = line["relative"] = line["max_abs"] = Json::array();
  for (const int nodes : kStored) {
    if (nodes > int(series.chain.size())) break;
    line["nodes"].push_back(nodes);
    line["relative"].push_back(number(series.chain[nodes - 1].relative));
    line["max_abs"].push_back(number(series.chain[nodes - 1].max_abs));
  }
  line["tree_depth8"] = {{"relative", number(series.tree.relative)}, {"max_abs", number(series.tree.max_abs)}};
  return line;
}

std::string cell(double value) { return std::isfinite(value) ? fmt::format("{:.1e}", value) : "overflow"; }

// The substitutions differ in order only; here they agree to the bit, and one line stands for the worst of them.
std::vector<Series> merged(const std::vector<Series>& all, const std::string& memory, const std::string& precision,
                           const char* group) {
  std::vector<Series> lines;
  for (const Series& series : all) {
    const std::string own =
        reference::stable(series.solver) ? "substitution" : std::string(reference::name_of(series.solver));
    if (series.memory != memory || series.precision != precision || own != group) continue;
    if (lines.empty() || lines.back().keys != series.keys) {
      lines.push_back(series);
      continue;
    }
    for (std::size_t n = 0; n < series.chain.size(); ++n) keep_worst(lines.back().chain[n], series.chain[n]);
    keep_worst(lines.back().tree, series.tree);
  }
  return lines;
}

void print_table(const std::vector<Series>& all) {
  const int longest = int(all.front().chain.size());
  fmt::print("Relative Frobenius error of the outputs against the fp64 oracle (E1), worst of the seeds, K = {}.\n",
             kWidthK);
  for (const char* memory : {"full", "natural"}) {
    fmt::print("\n{}\n", memory == std::string("full") ? "Nothing forgotten: alpha = 1, beta = 1"
                                                       : "Natural gates: log alpha = -0.7 u^2, beta = u, u uniform");
    for (const char* precision : {"fp32", "fp64"}) {
      for (const char* group : {"substitution", "neumann", "squaring"}) {
        const auto lines = merged(all, memory, precision, group);
        fmt::print("\n  {} {:<13}chain of", precision, group);
        for (const int nodes : kPrinted) {
          if (nodes <= longest) fmt::print("{:>9}", nodes);
        }
        fmt::print("   depth-8 tree   trusted to depth ({:.0e})\n", lines.front().threshold());
        for (const Series& line : lines) {
          fmt::print("    {:<22}  ", line.keys);
          for (const int nodes : kPrinted) {
            if (nodes <= longest) fmt::print("{:>9}", cell(line.chain[nodes - 1].relative));
          }
          const int depth = line.trusted_depth();
          fmt::print("{:>15}   {}\n", cell(line.tree.relative),
                     depth == longest - 1 ? fmt::format("{} (all tested)", depth) : std::to_string(depth));
        }
      }
    }
  }
}

int run(const StudyOptions& options) {
  const auto result = run_study(options);
  if (!result) return fail(result.error().message);
  if (!options.out.empty()) {
    std::string lines;
    for (const Series& series : *result) lines += to_json(series).dump() + "\n";
    if (const auto error = host::write_file(options.out, lines); !error.ok()) return fail(error.message);
  }
  if (options.json) {
    Json document{{"dim_k", kWidthK}, {"dim_v", kWidthV}, {"series", Json::array()}};
    for (const Series& series : *result) document["series"].push_back(to_json(series));
    print_json(document);
  } else {
    print_table(*result);
    if (!options.out.empty()) fmt::print("\n{} lines written to {}\n", result->size(), options.out);
  }
  return kGood;
}

}  // namespace

void add_study_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("study", "Accuracy of every solver against depth and key similarity");
  auto options = std::make_shared<StudyOptions>();
  command->add_flag("--json", options->json, "as JSON");
  command->add_flag("--quick", options->quick, "chains up to 64 nodes, one seed");
  command->add_option("--out", options->out, "also write JSON lines, one a solver, precision and kind of input");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace canopy::cli
