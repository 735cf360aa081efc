// Times variants of the fused kernel's CTAs beside one another: graph replays in turn, warm and cold, as `canopy bench`
// takes them (docs/benchmarks.md), each checked against the fp64 oracle first.
//
// tile_times NAME=FILE... FAMILY,TOP_K,DEPTH,NODES,BATCH... [SHARE]
//
// A line of JSON at a time: {"trying": NAME} before the first launch of a variant on a shape, so that whoever reads
// knows which one hangs; {"failed": ...} if it could not be run or its outputs are wrong, after which it is left out of
// that shape; {"timing": N} when N of them begin to take turns; then their times in one state of the caches. 16 key
// heads, 32 value heads, bf16 inputs, fp32 states of 128 x 128.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "canopy/reference.hpp"
#include "host/device_bench.hpp"
#include "host/device_copies.hpp"
#include "module.hpp"

namespace canopy::tiles {
namespace {

constexpr int kMostCopies = 80;              // as canopy bench
constexpr double kHalf = 1e-3;               // cuda_fused's tolerance; absolute twice as much
constexpr double kBf16Rounding = 1.0 / 256;  // of the exact answer to the outputs' type

[[noreturn]] void stop(const Error& error) {
  std::fprintf(stderr, "tile_times: %s\n", error.message.c_str());
  std::exit(1);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}
void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// o of the first sequence, [T,HV,V].
std::vector<double> oracle_outputs(const Problem& view, const Tree& tree) {
  const int heads = view.heads_v, width = view.dim_v;
  std::vector<double> o(static_cast<std::size_t>(view.nodes) * heads * width);
#pragma omp parallel for schedule(dynamic)
  for (int hv = 0; hv < heads; ++hv) {
    const auto out = reference::oracle(reference::load_head(view, 0, hv, tree));
    for (int t = 0; t < view.nodes; ++t)
      std::copy_n(&out.o[static_cast<std::size_t>(t) * width], width,
                  &o[(static_cast<std::size_t>(t) * heads + hv) * width]);
  }
  return o;
}

// One launch on outputs of NaN; "" if they are within the tolerance, else what is wrong.
std::string check(const Variant& variant, host::DeviceCopies& copies, void* workspace,
                  const std::vector<double>& expected, double& relative) {
  if (Error error = copies.spoil_output(0); !error.ok()) stop(error);
  if (Error error = launch(variant, copies.params(0), workspace, nullptr); !error.ok()) return error.message;
  if (Error error = host::device_synchronize(); !error.ok()) return error.message;
  std::vector<std::uint16_t> bits(expected.size());
  if (Error error = copies.read_output(0, bits.data(), 2 * bits.size()); !error.ok()) return error.message;
  std::vector<float> o(bits.size());
  double largest = 1;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    o[i] = host::load(CANOPY_BF16, bits.data(), static_cast<std::int64_t>(i));
    largest = std::max(largest, std::abs(expected[i]));
  }
  const host::Deviation found = host::deviation(expected.data(), o.data(), static_cast<std::int64_t>(o.size()));
  relative = found.relative;
  if (!found.finite) return "outputs that are not finite";
  if (found.relative > kHalf + kBf16Rounding || found.max_abs > (2 * kHalf + kBf16Rounding) * largest)
    return "wrong outputs: relative error " + std::to_string(found.relative) + ", largest " +
           std::to_string(found.max_abs);
  return {};
}

void time_shape(const std::string& shape, const std::vector<Variant>& variants, double share) {
  char family[32] = {};
  host::ProblemSpec spec;
  if (std::sscanf(shape.c_str(), "%31[^,],%d,%d,%d,%d", family, &spec.family.top_k, &spec.family.depth,
                  &spec.family.nodes, &spec.batch) != 5)
    stop(Error::invalid("expected FAMILY,TOP_K,DEPTH,NODES,BATCH, got '" + shape + "'"));
  spec.family.name = family;
  auto problem = host::make_problem(spec);
  if (!problem) stop(problem.error());
  const auto view = problem->problem();
  if (!view) stop(view.error());
  const auto tree = Tree::from_parents({view->trees.parents, static_cast<std::size_t>(view->nodes)});
  if (!tree) stop(tree.error());
  const std::vector<double> expected = oracle_outputs(*view, *tree);

  double bytes = 2.0 * view->batch * static_cast<double>(expected.size());
  for (const auto& [name, tensor] : problem->tensors) bytes += static_cast<double>(tensor.bytes.size());
  const double wanted = 2.0 * static_cast<double>(host::device_info().l2_bytes) / bytes;
  const int round = host::copies_for(std::clamp(static_cast<int>(wanted) + 1, 2, kMostCopies));
  auto made = host::DeviceCopies::make(*problem, CANOPY_BF16, round);
  if (!made) stop(made.error());
  host::DeviceCopies& copies = *made;
  const host::DeviceMemory workspace(workspace_bytes(*view));
  if (!workspace.data()) stop({CANOPY_INTERNAL, "no device memory for the workspace"});

  std::vector<host::TimedLaunch> launches;
  std::vector<double> errors;
  for (const Variant& variant : variants) {
    say("{\"shape\": " + quoted(shape) + ", \"trying\": " + quoted(variant.name) + "}");
    double relative = 0;
    if (const std::string why = check(variant, copies, workspace.data(), expected, relative); !why.empty()) {
      say("{\"shape\": " + quoted(shape) + ", \"variant\": " + quoted(variant.name) + ", \"failed\": " + quoted(why) +
          "}");
      // What went wrong on the device stays with the process.
      if (Error error = host::device_synchronize(); !error.ok()) stop(error);
      continue;
    }
    launches.push_back({variant.name, [&copies, &workspace, own = &variant](int copy, void* stream) {
                          return launch(*own, copies.params(copy), workspace.data(), stream);
                        }});
    errors.push_back(relative);
  }
  say("{\"shape\": " + quoted(shape) + ", \"timing\": " + std::to_string(launches.size()) + "}");
  host::ReplayEffort effort;
  effort.replay_seconds = 1e-3, effort.share = share;
  for (const bool cold : {false, true}) {
    for (auto& each : launches) each.seconds.clear();
    if (Error error = host::time_in_graphs(launches, cold ? copies.size() : 1, effort); !error.ok()) stop(error);
    for (std::size_t i = 0; i < launches.size(); ++i) {
      std::vector<double>& seconds = launches[i].seconds;
      std::sort(seconds.begin(), seconds.end());
      const auto at = [&](double q) {
        return seconds[static_cast<std::size_t>(std::lround(q * static_cast<double>(seconds.size() - 1)))];
      };
      char line[256];
      std::snprintf(line, sizeof line,
                    ", \"cache\": \"%s\", \"us\": %.4f, \"p10\": %.4f, \"p90\": %.4f, \"n\": %zu, \"relative\": %.2e}",
                    cold ? "cold" : "warm", 1e6 * at(0.5), 1e6 * at(0.1), 1e6 * at(0.9), seconds.size(), errors[i]);
      say("{\"shape\": " + quoted(shape) + ", \"variant\": " + quoted(launches[i].name) + line);
    }
  }
}

}  // namespace
}  // namespace canopy::tiles

int main(int count, char** arguments) {
  using namespace canopy;
  std::vector<tiles::Variant> variants;
  std::vector<std::string> shapes;
  double share = 0.05;
  if (const std::string why = host::device_missing(); !why.empty()) tiles::stop(Error::unsupported(why));
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      auto variant = tiles::load_variant(argument.substr(0, equals), argument.substr(equals + 1));
      if (!variant) tiles::stop(variant.error());
      variants.push_back(*variant);
    } else if (argument.find(',') != std::string::npos) {
      shapes.push_back(argument);
    } else {
      share = std::atof(argument.c_str());
    }
  }
  if (variants.empty() || shapes.empty() || !(share > 0))
    tiles::stop(Error::invalid("expected NAME=FILE... FAMILY,TOP_K,DEPTH,NODES,BATCH... [SHARE], seconds"));
  const host::DeviceInfo info = host::device_info();
  tiles::say("{\"gpu\": " + tiles::quoted(info.name) +
             ", \"architecture\": " + std::to_string(info.compute_capability) + "}");
  for (const std::string& shape : shapes) tiles::time_shape(shape, variants, share);
  return 0;
}
