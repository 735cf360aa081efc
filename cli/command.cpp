#include "command.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>

#include "check.hpp"
#include "host/device.hpp"

namespace canopy::cli {
namespace {

constexpr const char* kGenerated = "Generated problem";  // the group that load_problem looks for

// An option that takes one of the names of an enumeration.
template <class Enum>
void add_choice(CLI::App& command, const std::string& flag, Enum& value, const std::map<std::string, Enum>& names,
                const std::string& description) {
  std::string list, preset;
  for (const auto& [name, meaning] : names) {
    list += (list.empty() ? "" : "|") + name;
    if (meaning == value) preset = name;
  }
  command
      .add_option_function<std::string>(
          flag, [&value, names](const std::string& name) { value = names.at(name); }, description)
      ->check(CLI::Validator(
          [names, list](const std::string& name) {
            return names.count(name) ? std::string() : fmt::format("expected one of {}, got '{}'", list, name);
          },
          ""))
      ->type_name(list)
      ->default_str(preset)
      ->group(kGenerated);
}

// A problem file whose every row is sound; what is not is told with the file's name.
Result<host::HostProblem> read_checked(const std::string& path) {
  auto problem = host::read_problem(path);
  if (!problem) return problem;
  auto params = problem->verify();
  if (!params) return params.error();
  params->o = stand_in_output(params->problem);
  if (const Error error = check(*params); !error.ok()) return Error{error.status, path + ": " + error.message};
  return problem;
}

// CLI11 wraps a negative number and caps one that is too large: another seed than was asked for.
std::string is_seed(const std::string& text) {
  std::uint64_t seed;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seed);
  return code == std::errc{} && end == text.data() + text.size() ? std::string()
                                                                 : "expected an integer 0 to 2^64 - 1, got '" + text + "'";
}

}  // namespace

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int fail(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "canopy: %s\n", message.c_str());
  return kBadInput;
}

Result<std::string> read_text(const std::string& path) {
  const bool standard = path == "-";
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (!file) return Error::invalid(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  std::string text;
  char buffer[1 << 16];
  std::size_t got;
  while ((got = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, got);
  const int reason = std::ferror(file) ? errno : 0;
  if (!standard) std::fclose(file);
  if (reason) return Error::invalid(fmt::format("{}: cannot read: {}", path, std::strerror(reason)));
  return text;
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "where the implementations run: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

Error use_device(const std::string& device, Problem& problem) {
  if (device == "cpu") return {};
  if (const std::string why = host::device_missing(); !why.empty())
    return Error::unsupported("--device cuda: " + why + "; expected a machine with an NVIDIA GPU, or --device cpu");
  problem.device = CANOPY_CUDA;
  return {};
}

void add_family_options(CLI::App& command, FamilySpec& family) {
  std::string names;
  for (const char* name : family_names()) names += (names.empty() ? "" : ", ") + std::string(name);
  command.add_option("--family", family.name, "tree family: " + names)->capture_default_str()->group(kGenerated);
  command.add_option("--nodes", family.nodes, "nodes T, 1 to " + std::to_string(kMaxNodes))
      ->check(CLI::Range(1, kMaxNodes))
      ->capture_default_str()
      ->group(kGenerated);
  command.add_option("--top-k", family.top_k, "children a node (balanced, best-first, specla)")
      ->check(CLI::Range(1, kMaxNodes))
      ->capture_default_str()
      ->group(kGenerated);
  command
      .add_option("--depth", family.depth,
                  "depth limit of best-first; spine of skewed and spine; levels of specla")
      ->check(CLI::Range(0, kMaxNodes))
      ->capture_default_str()
      ->group(kGenerated);
  command.add_option("--seed", family.seed, "seed of everything random, 0 to 2^64 - 1")
      ->check(CLI::Validator(is_seed, ""))
      ->capture_default_str()
      ->group(kGenerated);
}

void add_problem_options(CLI::App& command, host::ProblemSpec& spec) {
  using host::Betas, host::Gates, host::Keys;
  add_family_options(command, spec.family);
  const auto number = [&](const char* flag, int& value, int least, int most, const char* description) {
    command.add_option(flag, value, description)
        ->check(CLI::Range(least, most))
        ->capture_default_str()
        ->group(kGenerated);
  };
  number("--batch", spec.batch, 1, 1 << 16, "sequences B");
  number("--heads", spec.heads_k, 1, 1 << 12, "key heads H");
  number("--heads-v", spec.heads_v, 1, 1 << 12, "value heads HV, a multiple of H");
  number("--dim-k", spec.dim_k, 1, 1 << 12, "key width K");
  number("--dim-v", spec.dim_v, 1, 1 << 12, "value width V");
  const std::map<std::string, canopy_dtype> dtypes{{"f32", CANOPY_F32}, {"bf16", CANOPY_BF16}, {"f16", CANOPY_F16}};
  add_choice(command, "--input", spec.input, dtypes, "type of q, k, v");
  add_choice(command, "--state", spec.state, dtypes, "type of the state");
  add_choice(command, "--layout", spec.layout,
             std::map<std::string, canopy_state_layout>{{"vk", CANOPY_STATE_VK}, {"kv", CANOPY_STATE_KV}},
             "state layout");
  const auto flag = [&](const char* name, bool& value, const char* description) {
    command.add_flag(name, value, description)->group(kGenerated);
  };
  flag("--raw-gates", spec.raw_gates, "a, b, A_log, dt_bias instead of g and beta");
  flag("--l2norm", spec.l2norm, "q and k are normalised by the layer");
  flag("--ragged", spec.ragged, "each sequence its own node count");
  flag("--slots", spec.slots, "a shuffled state pool with a padding row");
  add_choice(command, "--keys", spec.keys,
             std::map<std::string, Keys>{{"random", Keys::random},
                                         {"equal", Keys::equal},
                                         {"similar", Keys::similar},
                                         {"alternating", Keys::alternating},
                                         {"opposite", Keys::opposite},
                                         {"zero", Keys::zero},
                                         {"tiny", Keys::tiny}},
             "how the keys relate");
  command.add_option("--key-cosine", spec.key_cosine, "cosine of --keys similar")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(kGenerated);
  add_choice(command, "--gates", spec.gates,
             std::map<std::string, Gates>{{"natural", Gates::natural},
                                          {"zero", Gates::zero},
                                          {"all-strong", Gates::all_strong},
                                          {"root-strong", Gates::root_strong},
                                          {"root-912", Gates::root_912},
                                          {"eighth", Gates::eighth},
                                          {"half-half", Gates::half_half},
                                          {"inf-root", Gates::inf_root},
                                          {"inf-middle", Gates::inf_middle},
                                          {"inf-leaf", Gates::inf_leaf},
                                          {"tiny", Gates::tiny},
                                          {"positive", Gates::positive}},
             "log gates");
  add_choice(command, "--betas", spec.betas,
             std::map<std::string, Betas>{
                 {"natural", Betas::natural}, {"zero", Betas::zero}, {"one", Betas::one}, {"mixed", Betas::mixed}},
             "betas");
  command.add_option("--state-scale", spec.state_scale, "factor on the state S0")
      ->check(CLI::Range(0.0, 1e30))
      ->capture_default_str()
      ->group(kGenerated);
}

Result<host::HostProblem> load_problem(const CLI::App& command, const std::string& path,
                                       const host::ProblemSpec& spec) {
  const CLI::Option* given = nullptr;
  for (const CLI::Option* option : command.get_options())
    if (option->get_group() == kGenerated && option->count() > 0) given = option;
  if (!path.empty() && given)
    return Error::invalid(fmt::format("{} makes a problem, but the file {} was given too: expected one of the two",
                                      given->get_name(), path));
  if (!path.empty()) return read_checked(path);
  if (!given)
    return Error::invalid(
        fmt::format("no problem: expected a .safetensors file or a shape to make one from, as in "
                    "'canopy {} --family best-first --nodes 64'",
                    command.get_name()));
  host::ProblemSpec seeded = spec;
  seeded.seed = spec.family.seed;
  return host::make_problem(seeded);
}

void print_json(const nlohmann::ordered_json& document) {
  // File names need not be UTF-8; JSON must be.
  fmt::print("{}\n", document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

Progress::Progress(std::string label, int total)
    : label_(std::move(label)), total_(total), start_(now()), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::step(int done, const std::string& rest) {
  const double time = now();
  if (!terminal_ || time - start_ < 2.0 || time - last_ < 0.1) return;
  last_ = time;
  shown_ = true;
  std::fprintf(stderr, "\r\033[K%s %d/%d %s", label_.c_str(), done, total_, rest.c_str());
  std::fflush(stderr);
}

}  // namespace canopy::cli
