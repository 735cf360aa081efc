// The registry and the dispatcher: every table row leads somewhere, the first usable one wins and says so, and what
// cannot run is refused before anything is touched.
#include "dispatch/dispatch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "host/host_problem.hpp"

namespace canopy {
namespace {

host::HostProblem problem_of(int nodes, int batch = 1) {
  host::ProblemSpec spec;
  spec.batch = batch, spec.heads_k = 1, spec.heads_v = 2, spec.dim_k = 8, spec.dim_v = 8;
  spec.family.name = "chain", spec.family.nodes = nodes;
  auto made = host::make_problem(spec);
  EXPECT_TRUE(made) << made.error().message;
  return *std::move(made);
}

struct Call {
  host::HostProblem owner;
  host::HostTensor o;
  VerifyParams params;
  explicit Call(int nodes, int batch = 1) : owner(problem_of(nodes, batch)) {
    params = *owner.verify();
    o = host::HostTensor::make(CANOPY_F32, {batch, nodes, 2, 8});
    params.o = o.view();
  }
};

TEST(Registry, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const auto& implementation : verify_implementations()) {
    EXPECT_TRUE(names.insert(implementation.name).second) << implementation.name;
    EXPECT_EQ(find_verify(implementation.name), &implementation);
    EXPECT_GT(implementation.relative_tolerance, 0);
    EXPECT_GT(implementation.absolute_tolerance, 0);
  }
  for (const auto& implementation : commit_implementations()) {
    EXPECT_TRUE(names.insert(implementation.name).second) << implementation.name;
    EXPECT_EQ(find_commit(implementation.name), &implementation);
  }
  for (const char* name :
       {"cpu_closed_form", "cpu_serial_resident", "cpu_serial_snapshot", "reference_serial", "reference_closed_form"}) {
    EXPECT_NE(find_verify(name), nullptr) << name;
  }
  EXPECT_EQ(find_verify("no such name"), nullptr);
  EXPECT_EQ(find_commit(""), nullptr);
}

TEST(Dispatch, EveryRowNamesARegisteredImplementation) {
  const auto table = dispatch::verify_table(CANOPY_CPU);
  ASSERT_TRUE(table) << table.error().message;
  for (const auto& row : table->rows) EXPECT_NE(find_verify(row.implementation), nullptr) << row.implementation;
  for (const auto& row : dispatch::commit_table(CANOPY_CPU).rows)
    EXPECT_NE(find_commit(row.implementation), nullptr) << row.implementation;
}

TEST(Dispatch, FirstRowThatHoldsWins) {
  const auto table = dispatch::verify_table(CANOPY_CPU);
  ASSERT_TRUE(table) << table.error().message;
  const auto rows = table->rows;
  for (const int nodes : {1, 2, 3, 4, 5, 16, 64, 256}) {
    Call call(nodes);
    const auto choice = choose(call.params);
    ASSERT_TRUE(choice) << choice.error().message;
    const auto first = std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
      return dispatch::holds(row, {nodes, 2});
    });
    ASSERT_NE(first, rows.end());
    EXPECT_STREQ(choice->implementation->name, first->implementation);
    EXPECT_EQ(choice->because, "row " + std::to_string(first - rows.begin() + 1) + " of the cpu table: " +
                                   dispatch::condition(*first) + " -> " + first->implementation);
  }
}

TEST(Dispatch, ConditionsReadAsWords) {
  EXPECT_EQ(dispatch::condition({}), "always");
  EXPECT_EQ(dispatch::condition({.min_nodes = 4, .max_heads = 2}), "nodes >= 4 and heads <= 2");
  EXPECT_EQ(dispatch::condition({.max_nodes = 3, .min_heads = 8, .method = CANOPY_COMMIT_STASH}),
            "method stash and nodes <= 3 and heads >= 8");
  EXPECT_EQ(dispatch::condition({.min_nodes = 9, .precision = CANOPY_PRECISION_FAST}), "precision fast and nodes >= 9");
  EXPECT_EQ(dispatch::condition({.max_heads = 8, .min_depth = 9, .max_depth = 20}),
            "heads <= 8 and depth >= 9 and depth <= 20");
  const dispatch::Asked p{.nodes = 4, .heads = 16};
  EXPECT_TRUE(dispatch::holds({.min_nodes = 4, .max_nodes = 4, .min_heads = 16, .max_heads = 16}, p));
  EXPECT_FALSE(dispatch::holds({.min_nodes = 5}, p));
  EXPECT_FALSE(dispatch::holds({.max_nodes = 3}, p));
  EXPECT_FALSE(dispatch::holds({.min_heads = 17}, p));
  EXPECT_FALSE(dispatch::holds({.max_heads = 15}, p));
  EXPECT_FALSE(dispatch::holds({.method = 1}, {.method = 2}));
  EXPECT_TRUE(dispatch::holds({.precision = CANOPY_PRECISION_FP32}, {.precision = CANOPY_PRECISION_FP32}));
  EXPECT_FALSE(dispatch::holds({.precision = CANOPY_PRECISION_FP32}, p));
  EXPECT_TRUE(dispatch::holds({.min_heads = 1 << 30}, {.heads = std::int64_t{1} << 35}));  // past 32 bits
  // An unknown depth is no depth: rows that ask for one are passed over.
  for (const dispatch::Row& row : {dispatch::Row{.min_depth = 1}, dispatch::Row{.max_depth = 8}}) {
    EXPECT_FALSE(dispatch::holds(row, p));
    EXPECT_TRUE(dispatch::holds(row, {.depth = 8}));
  }
  EXPECT_FALSE(dispatch::holds({.min_depth = 9}, {.depth = 8}));
  EXPECT_FALSE(dispatch::holds({.max_depth = 7}, {.depth = 8}));
}

// In every build, also one without the kernels that it names.
TEST(Dispatch, TheTableOfTheH200GoesByDepthWhereItIsNamed) {
  constexpr dispatch::Row rows[] = {
#include "dispatch/nvidia_h200.inc"
  };
  const auto choice = [&](const dispatch::Asked& asked) {
    return std::string(std::find_if(std::begin(rows), std::end(rows), [&](const auto& row) {
                         return dispatch::holds(row, asked);
                       })->implementation);
  };
  EXPECT_EQ(choice({.nodes = 256, .heads = 32, .depth = 255}), "cuda_split");
  EXPECT_EQ(choice({.nodes = 256, .heads = 32, .depth = 8}), "cuda_fused");
  EXPECT_EQ(choice({.nodes = 256, .heads = 32}), "cuda_fused");
  const int fp32 = CANOPY_PRECISION_FP32;
  EXPECT_EQ(choice({.nodes = 128, .heads = 32, .depth = 8, .precision = fp32}), "cuda_hybrid");
  EXPECT_EQ(choice({.nodes = 128, .heads = 32, .depth = 127, .precision = fp32}), "cuda_serial_resident");
  EXPECT_EQ(choice({.nodes = 128, .heads = 32, .precision = fp32}), "cuda_serial_resident");
}

// A stored u makes the tensor-core kernels' default precise, fp32 where the inputs are (src/precision.hpp); the rows of
// calls with a stash are for the former. Nothing is run.
TEST(Dispatch, AStashAsksItsOwnRowsAndThoseOfWhatItIsComputedIn) {
  Call call(5);
  host::HostTensor u = host::HostTensor::make(CANOPY_F32, {1, 5, 2, 8});
  const auto asked = [&](int device, int input, int precision, bool stash) {
    VerifyParams params = call.params;
    params.problem.device = device, params.problem.q.dtype = input, params.precision = precision;
    if (stash) params.stash_u = u.view();
    const dispatch::Asked found = dispatch::asked(params);
    EXPECT_EQ(found.stash, stash && device == CANOPY_CUDA && precision == 0 && input != CANOPY_F32);
    return found.precision;
  };
  EXPECT_EQ(asked(CANOPY_CUDA, CANOPY_BF16, CANOPY_PRECISION_DEFAULT, true), CANOPY_PRECISION_PRECISE);
  EXPECT_EQ(asked(CANOPY_CUDA, CANOPY_F16, CANOPY_PRECISION_DEFAULT, true), CANOPY_PRECISION_PRECISE);
  EXPECT_EQ(asked(CANOPY_CUDA, CANOPY_F32, CANOPY_PRECISION_DEFAULT, true), CANOPY_PRECISION_FP32);
  EXPECT_EQ(asked(CANOPY_CPU, CANOPY_F32, CANOPY_PRECISION_DEFAULT, true), CANOPY_PRECISION_DEFAULT);
  for (const int device : {CANOPY_CPU, CANOPY_CUDA})
    for (const int input : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (int precision = CANOPY_PRECISION_DEFAULT; precision <= CANOPY_PRECISION_FAST; ++precision)
        for (const bool stash : {false, true}) {  // a precision asked for by name is that one
          if (precision == CANOPY_PRECISION_DEFAULT && stash) continue;
          EXPECT_EQ(asked(device, input, precision, stash), precision);
        }
}

TEST(Dispatch, ADepthIsAHintThatMustMakeSense) {
  Call call(5);
  call.params.max_depth = -1;
  const auto refused = choose(call.params);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "max_depth = -1: expected the depth of the deepest node, or 0 if unknown");
  call.params.max_depth = 1000;  // a bound may be loose
  EXPECT_TRUE(choose(call.params));
}

TEST(Dispatch, CommitGoesByMethod) {
  Call call(5);
  CommitParams params = commit_params();
  params.problem = call.params.problem;
  const std::int32_t leaf[] = {4};
  params.leaf = leaf;
  host::HostTensor u = host::HostTensor::make(CANOPY_F32, {1, 5, 2, 8}),
                   l = host::HostTensor::make(CANOPY_F32, {1, 5, 2});
  params.stash_u = u.view(), params.stash_l = l.view();
  const char* names[] = {"cpu_commit_resolve", "cpu_commit_stash", "cpu_commit_replay"};
  for (int method = 0; method < 3; ++method) {
    params.method = method;
    const auto choice = choose(params);
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_STREQ(choice->implementation->name, names[method]);
  }
  const Error error = commit(params, "reference_resolve", nullptr, 0);  // method is replay
  EXPECT_EQ(error.status, CANOPY_UNSUPPORTED);
  EXPECT_EQ(error.message, "reference_resolve: method is replay: expected resolve; use reference_replay");
  EXPECT_EQ(commit(params, "cpu_commit_stash", nullptr, 0).message,
            "cpu_commit_stash: method = replay: this implementation commits by stash; use cpu_commit_replay");
}

TEST(Dispatch, RefusesWhatNothingHereCanRun) {
  Call call(5);
  call.params.problem.device = CANOPY_CUDA;
  const auto choice = choose(call.params);
  const VerifyImplementation* const kernel = find_verify("cuda_serial_resident");  // in builds with CUDA
  EXPECT_EQ(choice.ok(), kernel && kernel->missing().empty());
  if (!choice) {
    EXPECT_EQ(choice.error().status, CANOPY_UNSUPPORTED);
    EXPECT_NE(choice.error().message.find(
                  kernel ? "cuda_serial_resident: not on this machine: " + kernel->missing()
                         : "device = 1 (cuda): expected a device this build has implementations for; copy the tensors "
                           "to the host and use 0 (cpu)"),
              std::string::npos)
        << choice.error().message;
  }
  call.params.problem.device = CANOPY_CPU;
  call.params.precision = CANOPY_PRECISION_HALF;
  const auto half = choose(call.params);
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().status, CANOPY_UNSUPPORTED);
  EXPECT_NE(half.error().message.find("no implementation on cpu takes this problem; cpu_closed_form: precision = 3"),
            std::string::npos)
      << half.error().message;
  EXPECT_NE(half.error().message.find("; change what the reasons name"), std::string::npos) << half.error().message;
  EXPECT_EQ(
      verify(call.params, "cpu_closed_form", nullptr, 0).message,
      "cpu_closed_form: precision = 3: expected 0 (default) or 1 (fp32), all that the CPU computes in; the others "
      "are for GPUs");
  const Error error = verify(call.params, "reference_serial", nullptr, 0);
  EXPECT_EQ(error.message,
            "reference_serial: precision = 3: expected 0 (default) or 1 (fp32), the others are for tensor cores");
}

TEST(Explain, GivesTheChoiceAndEveryRefusal) {
  Call call(64);
  call.params.o.data = nullptr;  // asked before the outputs exist
  const auto text = explain(call.params);
  ASSERT_TRUE(text) << text.error().message;
  Call with_output(64);
  const auto choice = choose(with_output.params);
  ASSERT_TRUE(choice);
  const std::string head =
      std::string("runs ") + choice->implementation->name + "\n  because " + choice->because + "\n";
  EXPECT_EQ(text->substr(0, head.size()), head);
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    EXPECT_NE(text->find(std::string("  ") + implementation.name + ": can run it"), std::string::npos) << *text;
  }
  call.params.precision = CANOPY_PRECISION_FAST;
  const auto refused = explain(call.params);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->rfind("runs nothing\n", 0), 0u) << *refused;
  EXPECT_NE(refused->find("  reference_serial: refuses: precision = 4"), std::string::npos) << *refused;
  call.params.problem.nodes = 0;
  EXPECT_FALSE(explain(call.params));
}

TEST(Workspace, SizeAndAlignmentAreChecked) {
  Call call(8);
  const auto bytes = verify_workspace(call.params, "cpu_closed_form");
  ASSERT_TRUE(bytes) << bytes.error().message;
  ASSERT_GT(*bytes, 64u);
  void* memory = std::aligned_alloc(64, (*bytes + 128) / 64 * 64);
  const std::string size = std::to_string(*bytes);
  const Error none = verify(call.params, "cpu_closed_form", nullptr, 0);
  EXPECT_EQ(none.status, CANOPY_WORKSPACE);
  EXPECT_EQ(none.message, "workspace is NULL: expected " + size +
                              " bytes for cpu_closed_form; ask the workspace query and pass that much");
  const Error small = verify(call.params, "cpu_closed_form", memory, *bytes - 1);
  EXPECT_EQ(small.status, CANOPY_WORKSPACE);
  EXPECT_EQ(small.message, "workspace bytes = " + std::to_string(*bytes - 1) + ": expected at least " + size +
                               " for cpu_closed_form; ask the workspace query with the same params");
  const Error odd = verify(call.params, "cpu_closed_form", static_cast<char*>(memory) + 8, *bytes);
  EXPECT_EQ(odd.status, CANOPY_WORKSPACE);
  EXPECT_EQ(odd.message.rfind("workspace: expected an address that is a multiple of 64", 0), 0u);
  EXPECT_TRUE(verify(call.params, "cpu_closed_form", memory, *bytes).ok());
  std::free(memory);
}

TEST(Verify, AnEmptyBatchRunsNothing) {
  VerifyParams params = verify_params();
  Problem& p = params.problem;
  p.nodes = 6, p.heads_k = 1, p.heads_v = 2, p.dim_k = 8, p.dim_v = 8;
  for (const auto& implementation : verify_implementations()) {
    if (implementation.device != CANOPY_CPU) continue;
    const auto bytes = verify_workspace(params, implementation.name);
    ASSERT_TRUE(bytes) << bytes.error().message;
    void* memory = std::aligned_alloc(64, (*bytes + 128) / 64 * 64);
    EXPECT_EQ(verify(params, implementation.name, memory, *bytes).message, "");
    std::free(memory);
  }
  EXPECT_EQ(verify(params, "nobody", nullptr, 0)
                .message.rfind("implementation = \"nobody\": expected one of cpu_closed_form, ", 0),
            0u);
}

}  // namespace
}  // namespace canopy
