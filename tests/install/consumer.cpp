// C++20: trees, the registry and a refused call.
#include <canopy/canopy.hpp>
#include <cstdio>

int main() {
  const auto tree = canopy::make_family({.name = "chain", .nodes = 5});
  if (!tree || tree->depth() != 4) return std::fprintf(stderr, "a chain of 5 has depth 4\n"), 1;
  if (!canopy::find_verify("reference_serial")) return std::fprintf(stderr, "the registry is empty\n"), 1;
  canopy::VerifyParams params = canopy::verify_params();
  const canopy::Error error = canopy::verify(params, {}, nullptr, 0);
  if (error.status != CANOPY_INVALID) return std::fprintf(stderr, "an empty problem was taken\n"), 1;
  std::printf("canopy %s from C++: %s\n", canopy_version(), error.message.c_str());
}
