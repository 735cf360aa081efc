// canopy bench: what is measured of a shape, on the CPU and on a GPU, and the records of it (bench/schema.json).
#pragma once

#include <climits>
#include <functional>
#include <optional>

#include "measure.hpp"
#include "parity.hpp"

namespace canopy::cli {

// How much to measure.
struct Effort {
  // fast (all but the reference, default precision), all (every precision), or names with commas between them; on a GPU
  // the plan and the floor are among the first two and can be named too.
  std::string contenders = "fast";
  int threads = 1;                // CPU
  int repeat = 21, warm_ups = 0;  // timed runs of each contender, and those before them that are not kept
  double most_seconds = 1e9;      // CPU: no further round is begun after this much time in one state of the caches
  double replay_seconds = 2e-4, share = 0.1;  // GPU: of one replay, and of all of a contender (host/replays.hpp)
  int least = 20;                             // GPU: replays kept of a slow contender
  bool warm = true, cold = false;
  int checked = INT_MAX;  // sequences whose outputs are compared with the oracle, from the first live one to the last
  bool timed = true;      // false: errors only
  bool stash = false;     // GPU: u and l are stored too
};

// An implementation at one precision, as it is asked for.
struct Contender {
  const VerifyImplementation* implementation;
  int precision;                     // a canopy_precision
  std::string name;                  // "cuda_fused", "cuda_fused precise"
  std::vector<std::string> same_as;  // other precisions that would run the same code
  bool named_only;                   // the dispatcher may not pick it here
};
// Whether a list of contenders (Effort) names this one; "fast" and "all" name none.
bool names(const std::string& wanted, const std::string& name);
// Those that take the params, from the registry; `params.precision` is not read.
Result<std::vector<Contender>> contenders_for(const std::string& wanted, const VerifyParams& params);

struct BenchCell {
  std::string contender, strategy, precision;
  std::vector<std::string> same_as;
  bool named_only = false;
  std::string cache;  // "warm", "cold"; "" for errors only
  Quantiles seconds;
  int n = 0;                            // timed runs
  bool computes = true;                 // false: the floor, the plan, a copy
  std::string error_of = "o in f32";    // what `check` looked at, as records say it
  Check check;                          // against the oracle
  std::optional<Check> timed;           // of o as the timed calls write it, where that is another type
  std::optional<Check> stored;          // of u, where it is stored
  double flops = 0;                     // 0: not counted
  std::size_t stated = 0, touched = 0;  // bytes of workspace: asked for; of pages in use, CPU only
};

struct BenchShape {
  std::string family;
  host::ProblemSpec spec;
  Problem view;
  int depth = 0, copies = 1, checked = 0;
  double bytes = 0;  // inputs, state and outputs, each once
  bool stash = false;
  std::vector<BenchCell> cells;
};

// What they share: a cell without times, a shape without cells.
BenchCell cell_of(const Contender& contender);
Result<BenchShape> shape_of(host::HostProblem& problem, const host::ProblemSpec& spec, const std::string& family);

using Tick = std::function<void(int round)>;
Result<BenchShape> measure_on_cpu(const Effort& effort, host::HostProblem& problem, const host::ProblemSpec& spec,
                                  const std::string& family, const Tick& tick);
// Beside the implementations: "plan", and "floor" where its kernel covers the shape.
Result<BenchShape> measure_on_device(const Effort& effort, host::HostProblem& problem, const Oracle& oracle,
                                     const host::ProblemSpec& spec, const std::string& family);
// Commit of all layers in one launch, an accepted path of six nodes, beside a device copy of as many state bytes. The
// error is that of the committed states of the first and the last sequence in the first and the last layer.
Result<BenchShape> measure_commit_on_device(const Effort& effort, host::ProblemSpec spec, int layers);

// One line of a result file: a cell, or an accuracy record of a cell without times.
nlohmann::ordered_json record_of(const BenchShape& shape, const BenchCell& cell, const Effort& effort);
// Parts of it: which state of the caches and how long; how far from the oracle and what that is of.
void add_times(nlohmann::ordered_json& record, const BenchCell& cell);
void add_errors(nlohmann::ordered_json& record, const BenchCell& cell);
// The environment record; clocks, temperature and power "before". `peak`: flop/s, 0 where not measured.
nlohmann::ordered_json environment_record(const std::string& device, const Effort& effort, double peak);
// What the driver's tool says of the GPU now: clocks in MHz, degrees Celsius, watts; empty where there is none.
nlohmann::ordered_json gpu_state();

// canopy bench --requests (cli/bench_requests.cpp).
int answer_requests(const std::string& path);

}  // namespace canopy::cli
