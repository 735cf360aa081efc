// The hot path allocates nothing: malloc is counted while a registered CPU implementation runs in its workspace.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "host/host_problem.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CANOPY_MALLOC_IS_TAKEN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define CANOPY_MALLOC_IS_TAKEN 1
#endif

#ifndef CANOPY_MALLOC_IS_TAKEN
namespace {
std::atomic<long> allocations{0};
}
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
// The executable's own symbols come before the C library's, for every caller in the process.
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
}

namespace canopy {
namespace {

host::HostProblem problem_with_everything() {
  host::ProblemSpec spec;
  spec.batch = 3;
  spec.heads_k = 2, spec.heads_v = 4, spec.dim_k = 24, spec.dim_v = 40;
  spec.family.name = "chain";
  spec.family.nodes = 150;  // long enough for the closed form to fold a path
  spec.raw_gates = spec.l2norm = spec.slots = true;
  return *host::make_problem(spec);
}

bool fast(const char* name) { return std::string(name).rfind("cpu_", 0) == 0; }

TEST(Allocation, TheCounterSeesAllocations) {
  const long before = allocations;
  std::vector<int> grown(1000);
  EXPECT_GT(allocations, before) << grown.size();
}

TEST(Allocation, VerifyAllocatesNothing) {
  host::HostProblem problem = problem_with_everything();
  for (const auto& implementation : verify_implementations()) {
    if (!fast(implementation.name)) continue;
    VerifyParams params = *problem.verify();
    const Problem& p = params.problem;
    host::HostTensor o = host::HostTensor::make(CANOPY_BF16, {p.batch, p.nodes, p.heads_v, p.dim_v});
    host::HostTensor u = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v});
    params.o = o.view(), params.stash_u = u.view();
    void* workspace = std::aligned_alloc(64, (implementation.workspace(params) + 63) / 64 * 64);
    ASSERT_TRUE(implementation.run(params, workspace, nullptr).ok());  // OpenMP makes its threads in the first run
    const long before = allocations;
    const Error error = implementation.run(params, workspace, nullptr);
    EXPECT_EQ(allocations - before, 0) << implementation.name << error.message;
    std::free(workspace);
  }
}

TEST(Allocation, CommitAllocatesNothing) {
  host::HostProblem problem = problem_with_everything();
  const std::vector<std::int32_t> leaf{149, 3, 70};
  for (const auto& implementation : commit_implementations()) {
    if (!fast(implementation.name)) continue;
    CommitParams params = commit_params();
    params.problem = *problem.problem();
    params.leaf = leaf.data();
    const Problem& p = params.problem;
    host::HostTensor u = host::HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v});
    params.stash_u = u.view();
    for (const auto method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      params.method = method;
      if (implementation.refuses(params).empty()) break;
    }
    void* workspace = std::aligned_alloc(64, (implementation.workspace(params) + 63) / 64 * 64);
    ASSERT_TRUE(implementation.run(params, workspace, nullptr).ok());
    const long before = allocations;
    const Error error = implementation.run(params, workspace, nullptr);
    EXPECT_EQ(allocations - before, 0) << implementation.name << error.message;
    std::free(workspace);
  }
}

}  // namespace
}  // namespace canopy
#else
TEST(Allocation, NotCountedHere) { GTEST_SKIP() << "malloc belongs to a sanitizer, or this is not glibc"; }
#endif
