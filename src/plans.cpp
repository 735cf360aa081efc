// The plans of a batch: made once per step, shared by the layers.
#include "canopy/plan.hpp"
#include "canopy/problem.hpp"
#include "capi.hpp"
#include "check.hpp"
#include "message.hpp"
#include "registry.hpp"

namespace canopy {
namespace {

Error check_plans(const Problem& problem, const void* plans, std::size_t bytes) {
  if (Error error = check_plan(problem); !error.ok()) return error;
  const std::size_t needed = plans_bytes(problem);
  if (needed == 0)
    return Error::unsupported(text("problem.device = ", problem.device, ": this build plans for 0 (cpu)",
                                   CANOPY_WITH_CUDA ? " and 1 (cuda)" : "; copy the trees to the host"));
  if (!plans || bytes < needed || reinterpret_cast<std::uintptr_t>(plans) % 64 != 0)
    return {CANOPY_WORKSPACE, text("plan: expected 64-byte aligned memory of ", needed,
                                   " bytes (canopy_plan_bytes), got ", plans ? bytes : 0, " bytes at an address of ",
                                   reinterpret_cast<std::uintptr_t>(plans) % 64, " modulo 64")};
  return {};
}

}  // namespace

std::size_t plans_bytes(const Problem& problem) {
#if CANOPY_WITH_CUDA
  if (problem.device == CANOPY_CUDA) return cuda_plans_bytes(problem);
#endif
  if (problem.device != CANOPY_CPU) return 0;
  return sizeof(Plan) * (problem.batch > 0 ? problem.batch : 1);
}

Error make_plans(const Problem& problem, void* plans, std::size_t bytes, [[maybe_unused]] void* stream) {
  if (Error error = check_plans(problem, plans, bytes); !error.ok()) return error;
#if CANOPY_WITH_CUDA
  if (problem.device == CANOPY_CUDA) return cuda_make_plans(problem, plans, stream);
#endif
  Plan* plan = static_cast<Plan*>(plans);
  for (int b = 0; b < problem.batch; ++b, ++plan) {
    plan->nodes = 0;
    const int count = count_of(problem, b);
    if (slot_of(problem, problem.slot_index, b) < 0 || row_flags(problem, b) || count == 0) continue;
    std::int32_t parents[kMaxNodes];
    row_parents(problem, b, parents);
    build_plan(parents, count, *plan);
  }
  return {};
}

}  // namespace canopy

extern "C" {

size_t canopy_plan_bytes(const canopy_problem* problem) { return problem ? canopy::plans_bytes(*problem) : 0; }

canopy_status canopy_plan(const canopy_problem* problem, void* plan, size_t bytes, void* stream, canopy_error* error) {
  if (!problem) return canopy::null_argument("problem", error);
  return canopy::report(canopy::make_plans(*problem, plan, bytes, stream), error);
}
}
