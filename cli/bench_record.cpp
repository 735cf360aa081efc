// Records of what was measured, as bench/schema.json has them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "bench.hpp"
#include "cpu/kernels.hpp"
#include "dispatch/file.hpp"
#include "host/device_bench.hpp"

namespace canopy::cli {

using Json = nlohmann::ordered_json;

namespace {

bool names_a_device(const std::string& name) { return name.rfind("cpu_", 0) == 0 || name.rfind("cuda_", 0) == 0; }

// "closed_form" of "cpu_closed_form", "fused" of "cuda_fused precise".
std::string strategy_of(const std::string& contender) {
  const std::string name = contender.substr(0, contender.find(' '));
  return names_a_device(name) ? name.substr(name.find('_') + 1) : name;
}

// Precisions that run the same code as the default: fp32 on the CPU and where the recurrence is walked, precise in the
// series, half in the rest of those on tensor cores, which a stored u makes precise.
std::vector<std::string> same_as_default(const VerifyImplementation& implementation, bool stash) {
  const std::string name = implementation.name;
  const auto any = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return name.find(part) != std::string::npos; });
  };
  if (implementation.device == CANOPY_CPU || any({"serial", "hybrid"})) return {"fp32"};
  return {stash || any({"neumann", "squaring"}) ? "precise" : "half"};
}

// What the driver's tool says of the GPU, values with commas between them; "" where there is none.
std::string ask_driver(const std::string& fields) {
  const std::string command = fmt::format("nvidia-smi -i {} --query-gpu={} --format=csv,noheader,nounits 2>/dev/null",
                                          host::device_info().pci, fields);
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return {};
  char line[256] = {};
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  return pclose(pipe) == 0 && read ? line : "";
}

double four_digits(double value) { return std::stod(fmt::format("{:.4g}", value)); }

// null: NaN, or overflow.
Json finite(const host::Deviation& deviation, double value) {
  return deviation.finite && std::isfinite(value) ? Json(four_digits(value)) : Json(nullptr);
}

}  // namespace

bool names(const std::string& wanted, const std::string& name) {
  return ("," + wanted + ",").find("," + name + ",") != std::string::npos;
}

Result<std::vector<Contender>> contenders_for(const std::string& wanted, const VerifyParams& given) {
  std::vector<Contender> list;
  std::string refused;
  std::istringstream listed(wanted);
  for (std::string name; std::getline(listed, name, ',');)
    if (name != "fast" && name != "all" && name != "plan" && name != "floor" && !find_verify(name))
      return Error::invalid(fmt::format(
          "--impl {}: no implementation is called '{}'; expected fast, all or names that `canopy env` lists", wanted,
          name));
  const bool every_precision = wanted == "all" && given.problem.device == CANOPY_CUDA;
  for (const auto& implementation : verify_implementations()) {
    const std::string name = implementation.name;
    if (implementation.device != given.problem.device) continue;
    if (wanted != "all" && !names(wanted, name) && (wanted != "fast" || name.rfind("reference_", 0) == 0)) continue;
    const auto same = same_as_default(implementation, given.stash_u.data != nullptr);
    for (int precision = 0; precision <= (every_precision ? CANOPY_PRECISION_FAST : 0); ++precision) {
      if (precision != 0 && same.front() == dispatch::kPrecisions[precision]) continue;
      VerifyParams params = given;
      params.precision = precision;
      std::string reason = implementation.missing();
      if (reason.empty()) reason = implementation.refuses(params);
      if (!reason.empty()) {
        refused += precision == 0 ? "; " + name + ": " + reason : "";
        continue;
      }
      const bool named_only = implementation.unless_named && !implementation.unless_named(params).empty();
      list.push_back({&implementation, precision, precision ? name + " " + dispatch::kPrecisions[precision] : name,
                      precision ? std::vector<std::string>{} : same, named_only});
    }
  }
  if (list.empty())
    return Error::invalid(
        fmt::format("--impl {}: expected fast, all or a name that `canopy env` lists{}", wanted, refused));
  return list;
}

BenchCell cell_of(const Contender& contender) {
  BenchCell cell;
  cell.contender = contender.name;
  cell.strategy = strategy_of(contender.name);
  cell.precision = contender.implementation->device == CANOPY_CPU ? "fp32" : dispatch::kPrecisions[contender.precision];
  cell.same_as = contender.same_as;
  cell.named_only = contender.named_only;
  return cell;
}

Result<BenchShape> shape_of(host::HostProblem& problem, const host::ProblemSpec& spec, const std::string& family) {
  const auto view = problem.problem();
  if (!view) return view.error();
  const auto trees = read_trees(*view);
  if (!trees) return trees.error();
  BenchShape shape;
  shape.family = family, shape.spec = spec, shape.view = *view;
  for (const Tree& tree : trees->trees) shape.depth = std::max(shape.depth, tree.depth());
  shape.bytes = least_bytes(problem, *trees);
  return shape;
}

void add_times(Json& record, const BenchCell& cell) {
  record["cache"] = cell.cache;
  record["n"] = cell.n;
  record["median_us"] = four_digits(cell.seconds.median * 1e6);
  record["p10_us"] = four_digits(cell.seconds.p10 * 1e6);
  record["p90_us"] = four_digits(cell.seconds.p90 * 1e6);
}

void add_errors(Json& record, const BenchCell& cell) {
  const auto relative = [](const Check& check) { return finite(check.deviation, check.deviation.relative); };
  record["relative"] = relative(cell.check);
  record["max_abs"] = finite(cell.check.deviation, cell.check.deviation.max_abs);
  record["passed"] = cell.check.passed;
  record["error_of"] = cell.error_of;
  if (cell.timed) record["relative_timed"] = relative(*cell.timed);
  if (cell.stored) record["relative_u"] = relative(*cell.stored);
}

Json record_of(const BenchShape& shape, const BenchCell& cell, const Effort& effort) {
  const Problem& p = shape.view;
  const bool timed = !cell.cache.empty(), cpu = p.device == CANOPY_CPU;
  Json json{{"type", timed ? "cell" : "accuracy"},
            {"schema", 1},
            {"contender", cell.contender},
            {"strategy", cell.strategy.empty() ? strategy_of(cell.contender) : cell.strategy},
            {"device", cpu ? "cpu" : "cuda"}};
  if (cpu) json["instruction_set"] = cpu::kernels().name, json["threads"] = effort.threads;
  json["precision"] = cell.precision.empty() ? "default" : cell.precision;
  if (!cell.same_as.empty()) json["same_as"] = cell.same_as;
  if (cell.named_only) json["named_only"] = true;
  json.update(Json{{"B", p.batch},
                   {"T", p.nodes},
                   {"depth", shape.depth},
                   {"family", shape.family},
                   {"seed", shape.spec.family.seed},
                   {"H", p.heads_k},
                   {"HV", p.heads_v},
                   {"K", p.dim_k},
                   {"V", p.dim_v},
                   {"input", name_of(shape.spec.input)},
                   {"state", name_of(shape.spec.state)}});
  if (shape.stash) json["stash"] = true;
  if (timed) {
    add_times(json, cell);
    json["bytes"] = shape.bytes;
    if (cell.flops > 0) json["flops"] = cell.flops;
  }
  if (cell.computes) {
    add_errors(json, cell);
    if (shape.checked < p.batch) json["checked_sequences"] = shape.checked;
  }
  if (cell.stated > 0) json["workspace_bytes"] = cell.stated;
  if (cell.touched > 0) json["touched_bytes"] = cell.touched;
  return json;
}

Json gpu_state() {
  constexpr const char* fields[] = {"clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw"};
  Json state = Json::object();
  std::istringstream values(ask_driver(fmt::format("{}", fmt::join(fields, ","))));
  for (const char* field : fields) {
    double value = 0;
    if (!(values >> value)) break;  // "[N/A]"
    state[field] = value;
    values.ignore(1);  // the comma
  }
  return state;
}

Json environment_record(const std::string& device, const Effort& effort, double peak) {
  Json env{{"type", "environment"}, {"schema", 1}};
  env.update(environment());
  if (device == "cpu") {
    env["threads"] = effort.threads;
    if (peak > 0) env["peak_flops"] = peak;
    return env;
  }
  const host::DeviceInfo info = host::device_info();
  env["gpu"] = {{"name", info.name},
                {"multiprocessors", info.multiprocessors},
                {"compute_capability", info.compute_capability},
                {"l2_bytes", info.l2_bytes},
                {"driver", info.driver},
                {"runtime", info.runtime},
                {"before", gpu_state()}};
  std::string version = info.driver_version;
  if (version.empty()) std::istringstream(ask_driver("driver_version")) >> version;
  if (!version.empty()) env["gpu"]["driver_version"] = version;
  return env;
}

}  // namespace canopy::cli
