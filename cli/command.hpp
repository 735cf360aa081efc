// What the commands of the program share. Each command is a file NAME.cpp that adds itself to the application.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "host/host_problem.hpp"

namespace canopy::cli {

// Exit status of the program (docs/api.md).
enum : int { kGood = 0, kCheckFailed = 1, kBadInput = 2 };

// Each sets `status` when its command ran.
void add_tree_command(CLI::App& app, int& status);
void add_verify_command(CLI::App& app, int& status);
void add_commit_command(CLI::App& app, int& status);
void add_study_command(CLI::App& app, int& status);
void add_bench_command(CLI::App& app, int& status);
void add_tune_command(CLI::App& app, int& status);
void add_explain_command(CLI::App& app, int& status);
void add_env_command(CLI::App& app, int& status);
void add_demo_command(CLI::App& app, int& status);

// Prints "canopy: MESSAGE" to stderr and returns kBadInput.
int fail(const std::string& message);

// Seconds of a steady clock.
double now();

// The whole of a file, or of standard input for "-". On failure the error names the file and the reason.
Result<std::string> read_text(const std::string& path);

// --family, --nodes, --top-k, --depth, --seed: a FamilySpec.
void add_family_options(CLI::App& command, FamilySpec& family);
// The family options, --batch, --heads H (HV: --heads-v), --dim-k, --dim-v, --input, --state, --layout, --raw-gates,
// --l2norm, --ragged, --keys, --key-cosine, --gates, --betas, --state-scale: a ProblemSpec.
void add_problem_options(CLI::App& command, host::ProblemSpec& spec);

// --device: cpu or cuda.
void add_device_option(CLI::App& command, std::string& device);
// Names the device in a checked problem; an error if this machine or build has none. Its pointers stay those of the host:
// run_verify, TimedRun and run_commit copy to the device of their implementation.
Error use_device(const std::string& device, Problem& problem);

// The problem of a command that takes either a file or the options of add_problem_options: read or made. An error when
// both or neither were given.
Result<host::HostProblem> load_problem(const CLI::App& command, const std::string& path, const host::ProblemSpec& spec);

// One JSON document to standard output.
void print_json(const nlohmann::ordered_json& document);

// A line of progress on a terminal, nothing in a pipe: "\r<label> 12/300 <rest>" at most ten times a second, from two
// seconds after construction; cleared at the end.
class Progress {
 public:
  Progress(std::string label, int total);
  ~Progress();
  void step(int done, const std::string& rest = {});

 private:
  std::string label_;
  int total_;
  double start_, last_ = 0;
  bool terminal_, shown_ = false;
};

// CPU model, cores, instruction set in use, compiler, versions, git commit: also `canopy env`.
nlohmann::ordered_json environment();

}  // namespace canopy::cli
