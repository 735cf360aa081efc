// Tests on a CUDA device, without a test framework: one executable that needs nothing but the driver. A case is a
// problem and the oracle's answer; a contender is a CUDA entry of the registry in one precision; the report is a table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/device.hpp"
#include "registry.hpp"

namespace canopy::gpu {

using host::DeviceMemory, host::DeviceProblem, host::HostProblem, host::HostTensor, host::ProblemSpec;

struct Contender {
  const VerifyImplementation* implementation;
  canopy_precision precision;
  double relative, absolute;  // docs/math.md, tolerances; absolute 0: only relative is stated for tensor cores
  std::string name;
  bool series;     // Neumann or squaring: right on shallow trees, and on deep ones where keys are not alike
  int most_nodes;  // that a tree may have: CANOPY_MAX_NODES, or what cuda_fused_small takes
};
// Every CUDA entry in every precision that it takes for K = V = 128; or those whose names hold what only() was given.
const std::vector<Contender>& contenders();
void only(const char* part_of_name);
// Depth to which a series is judged whatever the keys (src/cuda/blocks.cu).
inline constexpr int kSeriesDepth = 10, kSeriesDepthDoubled = 7;  // betas up to 1, to 2
// Whether it takes a stash: one operand a number is too little for a stored u.
inline bool stores_u(const Contender& contender) {
  return contender.precision != CANOPY_PRECISION_HALF && contender.precision != CANOPY_PRECISION_FAST;
}

// The oracle's o, u [B,T,HV,V] and l [B,T,HV]; zeros in rows that are not live.
struct Truth {
  std::vector<double> o, u, l;
};
Truth solve(const Problem& problem);
int live_nodes(const Problem& problem, int b);

struct Outputs {
  HostTensor o, u, l;
  std::vector<std::int32_t> status;
  Error error;
  bool refused = false, stashed = false;
};
struct RunOptions {
  canopy_dtype output = CANOPY_F32;
  bool stash = true;  // where the contender takes one
  // Numbers of the problem that no HostProblem holds, for the oracle and the device alike.
  std::function<void(Problem&)> set = {};
  // Changes to the params on the device; what it keeps alive goes into the vector.
  std::function<void(VerifyParams&, std::vector<DeviceMemory>&)> adjust = {};
  // Brings outputs that adjust has put elsewhere.
  std::function<void(Outputs&)> fetch = {};
};
// One call in outputs and a workspace of 0xff bytes (a NaN in every type) of exactly the size asked for.
Outputs run(const Contender& contender, HostProblem& problem, const RunOptions& options = {});

// Copies `count` values to the device; the memory is kept in `held`.
template <class T>
const T* on_device(const T* values, std::size_t count, std::vector<DeviceMemory>& held) {
  held.emplace_back(count * sizeof(T));
  if (!held.back().upload(values, count * sizeof(T)).ok()) return nullptr;
  return static_cast<const T*>(held.back().data());
}

struct Closeness {
  double relative = 0, absolute = 0;  // Frobenius; largest difference over max(1, largest reference)
  bool finite = true;
};
// Live rows of [B,T,...] values against the oracle.
Closeness compare(const Problem& problem, const std::vector<double>& reference, const HostTensor& values);
// "" if o and, where they were asked for, U and l are within the contender's tolerances and all else is untouched, else
// what is wrong. Adds to `worst` the relative error over its tolerance.
std::string judge(const Contender& contender, const Problem& problem, const Truth& truth, const Outputs& out,
                  double& worst);

// Row (b, t) of an output, all heads.
bool same_row(const HostTensor& x, int bx, const HostTensor& y, int by, int t);
bool untouched_row(const HostTensor& x, int b, int t);

// The table: a line for each group and name, with the number of checks and the first failure.
class Report {
 public:
  // `failure` "" is a pass. `worst`: how much of the tolerance was used, or a negative number.
  void add(const std::string& group, const std::string& name, const std::string& failure, double worst = -1);
  void note(const std::string& line) { notes_.push_back(line); }
  int checks() const;
  int failed() const;
  void print() const;

 private:
  struct Line {
    std::string group, name, first_failure;
    int checks = 0, failed = 0;
    double worst = -1;
  };
  std::vector<Line> lines_;
  std::vector<std::string> notes_;
};

ProblemSpec base(const std::string& family, int nodes);
HostProblem make(const ProblemSpec& spec);  // ends the program if it cannot be made
std::string describe(const ProblemSpec& spec);
// Every contender that takes it against the oracle; `change` is for both. Of the series, trees that they are trusted
// on.
void check_all(Report& report, const std::string& group, const ProblemSpec& spec, const RunOptions& options = {},
               const std::function<void(HostProblem&)>& change = {});

// Parts of group parity: what a call may ask beyond the defaults, where its tensors lie.
void test_options(Report& report, bool light);
void test_places(Report& report, bool light);

// The groups; `light` runs a few cases of each, for compute-sanitizer.
void test_parity(Report& report, bool light);
void test_isolation(Report& report, bool light);
void test_commit(Report& report, bool light);
void test_graphs(Report& report, bool light);
void test_copies(Report& report, bool light);
void test_rounds(Report& report, bool light);
void test_strategies(Report& report, bool light);

}  // namespace canopy::gpu
