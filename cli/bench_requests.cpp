// canopy bench --requests: one JSON object a line says what to measure; the records come back at once, a line each, and
// then {"type":"done"} or {"type":"failed"} with the request's id. bench/runner.py drives it. While a GPU is timed, the
// host makes the problem and the oracle's answer of the next line, if that has come already.
#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "bench.hpp"
#include "bench_extra.hpp"
#include "host/device.hpp"
#include "timing.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFields[] = {
    // clang-format off: a name a line is what it would make of them
    "id", "measure", "device", "family", "name", "T", "top_k", "depth", "seed", "trees", "B", "H", "HV", "K",
    "V", "input", "state", "keys", "cosine", "gates", "betas", "raw_gates", "l2norm", "contenders", "threads",
    "repeat", "warm_ups", "most_seconds", "replay_seconds", "share", "least", "caches", "checked", "layers",
    "rounds", "stash", "channels", "width", "silu"
    // clang-format on
};

template <class Enum>
Enum named(const Json& request, const char* key, Enum preset,
           std::initializer_list<std::pair<const char*, Enum>> names) {
  if (!request.contains(key)) return preset;
  const std::string name = request[key];
  std::string list;
  for (const auto& [known, value] : names) {
    if (name == known) return value;
    list += std::string(list.empty() ? "" : ", ") + known;
  }
  throw std::invalid_argument(fmt::format("{}: expected one of {}, got '{}'", key, list, name));
}

host::ProblemSpec spec_of(const Json& request) {
  host::ProblemSpec spec;
  spec.batch = request.value("B", 1);
  spec.heads_k = request.value("H", 16), spec.heads_v = request.value("HV", 32);
  spec.dim_k = request.value("K", 128), spec.dim_v = request.value("V", 128);
  spec.family = {.name = request.value("family", "best-first"),
                 .nodes = request.value("T", 64),
                 .top_k = request.value("top_k", 4),
                 .depth = request.value("depth", 8),
                 .seed = request.value("seed", std::uint64_t{0})};
  spec.seed = spec.family.seed;
  const auto dtypes = {std::pair{"f32", CANOPY_F32}, {"bf16", CANOPY_BF16}, {"f16", CANOPY_F16}};
  spec.input = named(request, "input", CANOPY_BF16, dtypes);
  spec.state = named(request, "state", CANOPY_F32, dtypes);
  using host::Betas, host::Gates, host::Keys;
  spec.keys = named(request, "keys", Keys::random,
                    {{"random", Keys::random}, {"similar", Keys::similar}, {"equal", Keys::equal}});
  spec.key_cosine = request.value("cosine", 0.95);
  spec.gates = named(request, "gates", Gates::natural, {{"natural", Gates::natural}, {"zero", Gates::zero}});
  spec.raw_gates = request.value("raw_gates", false), spec.l2norm = request.value("l2norm", false);
  spec.betas = named(request, "betas", Betas::natural, {{"natural", Betas::natural}, {"one", Betas::one}});
  for (const Json& parents : request.value("trees", Json::array())) {
    auto tree = Tree::from_parents(parents.get<std::vector<std::int32_t>>());
    if (!tree) throw std::invalid_argument("trees: " + tree.error().message);
    spec.trees.push_back(std::move(*tree));
  }
  return spec;
}

// Of measures conv and conv_commit.
host::ConvSpec conv_spec_of(const Json& request, const host::ProblemSpec& spec) {
  return {.batch = spec.batch,
          .channels = request.value("channels", 8192),
          .width = request.value("width", 4),
          .layers = request.value("layers", 1),
          .silu = request.value("silu", true),
          .input = spec.input,
          .family = spec.family};
}

bool on_gpu(const Json& request) { return request.value("device", "cpu") == "cuda"; }

Effort effort_of(const Json& request) {
  Effort effort;
  effort.contenders = request.value("contenders", "fast");
  effort.threads = request.value("threads", 1);
  effort.repeat = request.value("repeat", 21), effort.warm_ups = request.value("warm_ups", 0);
  effort.most_seconds = request.value("most_seconds", 1e9);
  effort.replay_seconds = request.value("replay_seconds", effort.replay_seconds);
  effort.share = request.value("share", effort.share), effort.least = request.value("least", effort.least);
  effort.checked = request.value("checked", INT_MAX);
  const std::string measure = request.value("measure", "time");
  effort.timed = measure == "time";
  const Json stash = request.value("stash", Json(false));
  if (!stash.is_boolean()) throw std::invalid_argument("stash: expected true or false, got " + stash.dump());
  effort.stash = stash.get<bool>();
  if (effort.stash && (!on_gpu(request) || (measure != "time" && measure != "accuracy")))
    throw std::invalid_argument(
        fmt::format("stash: expected with device cuda and measure time or accuracy, got device {}, measure {}; leave "
                    "it out, or use that device and one of these",
                    request.value("device", "cpu"), measure));
  const Json caches = request.value("caches", Json::array({"warm"}));
  effort.warm = effort.cold = false;
  for (const Json& cache : caches) (cache == "cold" ? effort.cold : effort.warm) = true;
  if (effort.threads < 1 || effort.repeat < 1 || effort.warm_ups < 0 || effort.checked < 1 || effort.least < 1)
    throw std::invalid_argument("threads, repeat, least, checked: expected 1 or more; warm_ups: 0 or more");
  if (!(effort.replay_seconds > 0) || !(effort.share > 0))
    throw std::invalid_argument("replay_seconds, share: expected more than 0 seconds");
  return effort;
}

// What a request adds to its records beside the shape.
void add_inputs(const Json& request, Json& record) {
  if (request.contains("name")) record["family"] = request["name"];
  for (const char* key : {"keys", "cosine", "gates", "betas", "raw_gates", "l2norm"})
    if (request.contains(key)) record[key] = request[key];
}

// The host's part of a request for a GPU.
struct Prepared {
  Result<host::HostProblem> problem;
  Result<Oracle> oracle;
};
Prepared prepare(const host::ProblemSpec& spec, const Effort& effort) {
  auto problem = host::make_problem(spec);
  if (!problem) return {problem.error(), problem.error()};
  auto oracle = run_oracle(*problem, effort.checked);
  return {std::move(problem), std::move(oracle)};
}

// `prepared` is empty where nothing was done in advance.
Result<Json> records_of(const Json& request, std::optional<Prepared> prepared) {
  for (const auto& field : request.items())
    if (std::none_of(std::begin(kFields), std::end(kFields), [&](const char* known) { return field.key() == known; }))
      return Error::invalid(
          fmt::format("\"{}\": no such field of a request; docs/benchmarks.md lists them", field.key()));
  const host::ProblemSpec spec = spec_of(request);
  const Effort effort = effort_of(request);
  const std::string measure = request.value("measure", "time");
  const bool device = on_gpu(request);
  if (device)
    if (const std::string why = host::device_missing(); !why.empty()) return Error::unsupported("device cuda: " + why);
  const canopy_device on = device ? CANOPY_CUDA : CANOPY_CPU;
  if (measure == "memory") return memory_records(spec, on, request.value("layers", 24));
  if (measure == "rounds") return rounds_records(spec, on, effort, request.value("rounds", 100));
  if (measure == "environment")
    return Json::array(
        {environment_record(device ? "cuda" : "cpu", effort, device ? 0 : measured_peak(effort.threads))});
  Json all = Json::array();
  const auto add = [&](const BenchShape& shape) {
    for (const BenchCell& cell : shape.cells) all.push_back(record_of(shape, cell, effort));
  };
  if (measure == "commit") {
    if (!device) return Error::invalid("measure commit: expected device cuda");
    Effort timed = effort;
    timed.timed = true;
    const auto shape = measure_commit_on_device(timed, spec, request.value("layers", 24));
    if (!shape) return shape.error();
    add(*shape);
    return all;
  }
  if (measure == "conv" || measure == "conv_commit") {
    if (!device)
      return Error::invalid(
          fmt::format("measure {}: expected device cuda, got cpu; name that device on a machine with a GPU", measure));
    return conv_records(conv_spec_of(request, spec), spec.family.name, effort, measure == "conv_commit");
  }
  if (measure != "time" && measure != "accuracy")
    return Error::invalid(
        fmt::format("measure: expected time, accuracy, memory, rounds, commit, conv, conv_commit or environment, got "
                    "'{}'",
                    measure));
  const std::string family = request.value("family", "best-first");
  const auto measured = [&]() -> Result<BenchShape> {
    if (device) {
      if (!prepared) prepared = prepare(spec, effort);
      if (!prepared->oracle) return prepared->oracle.error();
      return measure_on_device(effort, *prepared->problem, *prepared->oracle, spec, family);
    }
    auto problem = host::make_problem(spec);
    if (!problem) return problem.error();
    return measure_on_cpu(effort, *problem, spec, family, nullptr);
  };
  const auto shape = measured();
  if (!shape) return shape.error();
  add(*shape);
  return all;
}

struct Line {
  std::string text;
  std::optional<Prepared> prepared;
};

// What can be done before a line's turn; a line that is wrong is looked at when it has its turn.
Line line_of(std::string text) {
  Line line{std::move(text), {}};
  try {
    const Json request = Json::parse(line.text);
    const std::string measure = request.value("measure", "time");
    if (on_gpu(request) && host::device_missing().empty() && (measure == "time" || measure == "accuracy"))
      line.prepared = prepare(spec_of(request), effort_of(request));
  } catch (const std::exception&) {
    line.prepared.reset();
  }
  return line;
}

// Lines in order, each prepared by a thread that is at most one ahead of who takes them.
class Lines {
 public:
  explicit Lines(std::istream& in) : reader_([this, &in] { read(in); }) {}
  ~Lines() { reader_.join(); }
  // Waits for the next; nothing at the end.
  std::optional<Line> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_ || ended_; });
    std::optional<Line> line = std::exchange(ready_, std::nullopt);
    changed_.notify_all();
    return line;
  }

 private:
  void read(std::istream& in) {
    const ThreadCount threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1));
    for (std::string text; std::getline(in, text);) {
      if (text.empty()) continue;
      Line line = line_of(std::move(text));
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !ready_; });
      ready_ = std::move(line);
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Line> ready_;
  bool ended_ = false;
  std::thread reader_;  // last: it uses what stands before it
};

void say(const Json& record) {
  fmt::print("{}\n", record.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace

int answer_requests(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) return fail(fmt::format("--requests {}: cannot open it; expected a file of requests, or -", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  bool failed = false;
  Lines lines(in);
  while (auto line = lines.next()) {
    Json id;
    const double begun = now();
    std::string why;
    try {
      const Json request = Json::parse(line->text);
      id = request.value("id", Json());
      auto records = records_of(request, std::move(line->prepared));
      if (!records)
        why = records.error().message;
      else
        for (Json& record : *records) {
          if (record["type"] != "environment") add_inputs(request, record);
          say(record);
        }
    } catch (const std::bad_alloc&) {
      why = "out of memory";
    } catch (const Json::parse_error& error) {
      why = fmt::format("expected one JSON object a line; this one is no JSON from byte {} on", error.byte);
    } catch (const Json::exception&) {
      why = "expected one JSON object a line, its fields of the types that docs/benchmarks.md says";
    } catch (const std::exception& error) {
      why = error.what();
    }
    Json answer{{"type", why.empty() ? "done" : "failed"}, {"id", id}, {"seconds", now() - begun}};
    if (!why.empty()) answer["message"] = why, failed = true;
    // A kernel that went wrong has spoilt the device for this process: whoever asks has to start another one.
    const bool ends = !why.empty() && host::device_missing().empty() && !host::device_synchronize().ok();
    if (ends) answer["ends"] = true;
    say(answer);
    if (ends) std::_Exit(kCheckFailed);  // the reader may wait for a line for ever
  }
  return failed ? kCheckFailed : kGood;
}

}  // namespace canopy::cli
