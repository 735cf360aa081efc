// canopy env: what this machine and this build are. It asks nothing of the rest, so that it works when the rest does
// not.
#include <dirent.h>
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "command.hpp"
#include "cpu/kernels.hpp"

namespace canopy::cli {
namespace {

using Json = nlohmann::ordered_json;

// The value of the first line "key : value" of a file under /proc; "" when there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

Json instruction_sets() {
  Json sets = Json::array();
#if defined(__x86_64__)
  __builtin_cpu_init();
  sets.push_back("sse2");
  if (__builtin_cpu_supports("avx")) sets.push_back("avx");
  if (__builtin_cpu_supports("avx2")) sets.push_back("avx2");
  if (__builtin_cpu_supports("fma")) sets.push_back("fma");
  if (__builtin_cpu_supports("avx512f")) sets.push_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) sets.push_back("avx512bw");
  if (__builtin_cpu_supports("avx512vl")) sets.push_back("avx512vl");
  if (__builtin_cpu_supports("avx512dq")) sets.push_back("avx512dq");
#elif defined(__aarch64__)
  sets.push_back("neon");
#endif
  return sets;
}

// What the driver's device files say; no driver library is loaded.
std::string gpu() {
  int devices = 0;
  if (DIR* folder = opendir("/dev")) {
    while (const dirent* entry = readdir(folder)) {
      const char* name = entry->d_name;
      if (std::strncmp(name, "nvidia", 6) == 0 && name[6] >= '0' && name[6] <= '9') ++devices;
    }
    closedir(folder);
  }
  if (devices == 0) return "none found";
  std::string driver = proc_value("/proc/driver/nvidia/version", "NVRM version");
  return fmt::format("{} NVIDIA device{}{}", devices, devices == 1 ? "" : "s", driver.empty() ? "" : ", " + driver);
}

template <class Registry>
void add_registry(Json& list, const char* kind, Registry registry) {
  for (const auto& implementation : registry) {
    const std::string missing = implementation.missing ? implementation.missing() : "";
    list.push_back(Json{{"kind", kind},
                        {"name", implementation.name},
                        {"description", implementation.description},
                        {"usable", missing.empty()},
                        {"missing", missing}});
  }
}

void print_environment(const Json& env) {
  const auto line = [](const char* label, const std::string& value) { fmt::print("{:<20}{}\n", label, value); };
  std::string sets;
  for (const auto& set : env["instruction_sets"]) sets += (sets.empty() ? "" : " ") + set.get<std::string>();
  line("canopy", fmt::format("{} (commit {})", env["canopy"].get<std::string>(), env["commit"].get<std::string>()));
  std::string compilers = env["compiler"].get<std::string>();
  if (env.contains("cuda_compiler")) compilers += ", " + env["cuda_compiler"].get<std::string>();
  line("build", fmt::format("{}, {}", env["build_type"].get<std::string>(), compilers));
  line("system", env["system"].get<std::string>());
  line("CPU", fmt::format("{}, {} cores usable", env["cpu"].get<std::string>(), env["cores"].get<int>()));
  line("memory", fmt::format("{:.1f} GiB", env["memory_bytes"].get<double>() / (1 << 30)));
  line("instruction sets", sets);
  line("kernels in use", env["instruction_set_in_use"].get<std::string>());
  line("OpenMP", env["openmp"].is_null() ? "not built in"
                                         : fmt::format("version {}, {} threads", env["openmp"]["version"].get<int>(),
                                                       env["openmp"]["threads"].get<int>()));
  line("GPU", env["gpu"].get<std::string>());
  for (const auto& entry : env["implementations"])
    line(entry["kind"].get<std::string>().c_str(),
         fmt::format("{:<24}{}{}", entry["name"].get<std::string>(), entry["description"].get<std::string>(),
                     entry["usable"].get<bool>() ? "" : " [not here: " + entry["missing"].get<std::string>() + "]"));
}

}  // namespace

Json environment() {
  Json env;
  env["canopy"] = canopy_version();
  env["commit"] = CANOPY_GIT_COMMIT;
  env["build_type"] = CANOPY_BUILD_TYPE;
#if defined(__clang__)
  env["compiler"] = "clang " __clang_version__;
#else
  env["compiler"] = "gcc " __VERSION__;
#endif
#ifdef CANOPY_CUDA_COMPILER
  env["cuda_compiler"] = CANOPY_CUDA_COMPILER;
#endif
  utsname system{};
  uname(&system);
  env["system"] = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  std::string cpu = proc_value("/proc/cpuinfo", "model name");
  env["cpu"] = cpu.empty() ? std::string("unknown") : cpu;
  env["cores"] = static_cast<int>(std::thread::hardware_concurrency());
  env["memory_bytes"] = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  env["instruction_sets"] = instruction_sets();
  env["instruction_set_in_use"] = cpu::kernels().name;
#ifdef _OPENMP
  env["openmp"] = Json{{"version", _OPENMP}, {"threads", omp_get_max_threads()}};
#else
  env["openmp"] = nullptr;
#endif
  env["gpu"] = gpu();
  Json list = Json::array();
  add_registry(list, "verify", verify_implementations());
  add_registry(list, "commit", commit_implementations());
  env["implementations"] = list;
  return env;
}

void add_env_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("env", "This machine, this build and the implementations that run here");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "as JSON");
  command->callback([json, &status] {
    const Json env = environment();
    if (*json)
      print_json(env);
    else
      print_environment(env);
    status = kGood;
  });
}

}  // namespace canopy::cli
