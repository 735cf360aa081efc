// Any bytes as a safetensors file: an error or a problem that check() can look at and that writes back to the same
// tensors.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "host/host_problem.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace canopy;
  auto problem = host::parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!problem) {
    if (problem.error().message.empty()) std::abort();
    return 0;
  }
  auto params = problem->verify();
  if (!params) std::abort();
  (void)check(*params);
  const std::map<std::string, std::string> layout{{"state_layout", problem->layout == CANOPY_STATE_VK ? "vk" : "kv"}};
  const auto again = host::parse_safetensors(host::format_safetensors(problem->tensors, layout), "again");
  if (!again || again->tensors.size() != problem->tensors.size()) std::abort();
  for (const auto& [name, tensor] : problem->tensors) {
    if (again->tensors.at(name).bytes != tensor.bytes) std::abort();
  }
  return 0;
}
