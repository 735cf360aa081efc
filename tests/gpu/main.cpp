// gpu_test [parity isolation commit graphs copies rounds strategies conv] [--light] [--only PART]: PART of a
// contender's name, as in cuda_split. Exit status 0 all passed, 1 a check failed, 2 no device.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "gpu/conv.hpp"

int main(int argc, char** argv) {
  using namespace canopy::gpu;
  constexpr struct {
    const char* name;
    void (*test)(Report&, bool);
  } groups[] = {{"parity", test_parity}, {"isolation", test_isolation}, {"commit", test_commit},
                {"graphs", test_graphs}, {"copies", test_copies},       {"rounds", test_rounds},
                {"strategies", test_strategies}, {"conv", test_conv}};
  bool light = false, named = false;
  for (int i = 1; i < argc; ++i) {
    bool known = !std::strcmp(argv[i], "--light");
    light |= known;
    if (!std::strcmp(argv[i], "--only") && i + 1 < argc) {
      only(argv[++i]);
      continue;
    }
    for (const auto& group : groups) {
      if (std::strcmp(argv[i], group.name) != 0) continue;
      known = named = true;
    }
    if (known) continue;
    std::fprintf(stderr,
                 "gpu_test: expected parity, isolation, commit, graphs, copies, rounds, strategies, conv, --light or "
                 "--only PART, got '%s'\n",
                 argv[i]);
    return 2;
  }
  if (const std::string why = canopy::host::device_missing(); !why.empty()) {
    std::fprintf(stderr, "gpu_test: %s: nothing was tested\n", why.c_str());
    return 2;
  }
  Report report;
  const auto start = std::chrono::steady_clock::now();
  for (const auto& group : groups) {
    bool asked = !named;
    for (int i = 1; i < argc; ++i) asked |= !std::strcmp(argv[i], group.name);
    if (asked) group.test(report, light);
  }
  if (report.checks() == 0) {
    std::fprintf(stderr, "gpu_test: no entry's name holds what --only asked for: nothing was tested\n");
    return 2;
  }
  report.print();
  std::printf("%.0f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return report.failed() > 0 ? 1 : 0;
}
