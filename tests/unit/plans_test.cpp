// canopy_plan: made once, it gives what each call would have planned for itself; bad requests are refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "host/host_problem.hpp"

namespace canopy {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
std::unique_ptr<void, Free> aligned(std::size_t bytes) {
  return std::unique_ptr<void, Free>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
}

host::HostProblem small_problem() {
  host::ProblemSpec spec;
  spec.batch = 4;
  spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = spec.dim_v = 16;
  spec.family.nodes = 40;
  spec.ragged = spec.slots = true;
  return *host::make_problem(spec);
}

std::vector<std::byte> verified(host::HostProblem& problem, const VerifyImplementation& implementation, const void* plan) {
  VerifyParams params = *problem.verify();
  const Problem& p = params.problem;
  host::HostTensor o = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v});
  params.o = o.view();
  params.problem.trees.plan = plan;
  const auto workspace = aligned(implementation.workspace(params));
  EXPECT_TRUE(implementation.run(params, workspace.get(), nullptr).ok()) << implementation.name;
  return o.bytes;
}

TEST(Plans, SharedPlanGivesTheSameBits) {
  host::HostProblem problem = small_problem();
  const Problem view = *problem.problem();
  const std::size_t bytes = canopy_plan_bytes(&view);
  const auto plan = aligned(bytes);
  canopy_error error;
  ASSERT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_OK) << error.message;
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    EXPECT_EQ(verified(problem, implementation, nullptr), verified(problem, implementation, plan.get()))
        << implementation.name;
  }
}

// Python keeps plans as a tensor [B, bytes of one], on a GPU too: asking for its bytes needs none.
TEST(Plans, OfManyTreesTakeAsManyTimesTheBytesOfOne) {
  for (const int device : {CANOPY_CPU, CANOPY_CUDA}) {
    Problem problem{};
    problem.device = device, problem.nodes = 17, problem.batch = 1;
    const std::size_t one = canopy_plan_bytes(&problem);
    EXPECT_EQ(one > 0, device == CANOPY_CPU || CANOPY_WITH_CUDA) << device;
    for (const int batch : {0, 1, 2, 3, 4, 5, 16, 33, 1000}) {
      problem.batch = batch, problem.nodes = 1 + batch % 7;
      EXPECT_EQ(canopy_plan_bytes(&problem), one * (batch > 0 ? batch : 1)) << "device " << device << ", B = " << batch;
    }
  }
}

TEST(Plans, RefusesWhatItCannotFill) {
  host::HostProblem problem = small_problem();
  Problem view = *problem.problem();
  const std::size_t bytes = canopy_plan_bytes(&view);
  const auto plan = aligned(bytes);
  canopy_error error;
  EXPECT_EQ(canopy_plan(nullptr, plan.get(), bytes, nullptr, &error), CANOPY_INVALID);
  EXPECT_EQ(canopy_plan(&view, plan.get(), bytes - 1, nullptr, &error), CANOPY_WORKSPACE);
  EXPECT_NE(std::string(error.message).find(std::to_string(bytes)), std::string::npos) << error.message;
  EXPECT_EQ(canopy_plan(&view, nullptr, bytes, nullptr, &error), CANOPY_WORKSPACE);
  EXPECT_EQ(canopy_plan(&view, static_cast<char*>(plan.get()) + 4, bytes, nullptr, &error), CANOPY_WORKSPACE);
  view.nodes = 257;
  EXPECT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_INVALID);
  EXPECT_NE(std::string(error.message).find("257"), std::string::npos) << error.message;
  view = *problem.problem();
  view.trees.parents = nullptr;
  EXPECT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_INVALID);
  view = *problem.problem();
  view.device = 7;
  EXPECT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_INVALID);
  for (const std::int64_t stride : {std::int64_t{-40}, std::int64_t{0}, std::int64_t{INT64_MAX}}) {
    view = *problem.problem();
    view.trees.row_stride = stride;
    EXPECT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_INVALID) << stride;
    EXPECT_NE(std::string(error.message).find("trees.row_stride"), std::string::npos) << error.message;
  }
  view = *problem.problem();
  view.slot_index_dtype = CANOPY_BF16;
  EXPECT_EQ(canopy_plan(&view, plan.get(), bytes, nullptr, &error), CANOPY_INVALID);
}

}  // namespace
}  // namespace canopy
