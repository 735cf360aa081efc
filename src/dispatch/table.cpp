#include "dispatch/table.hpp"

#include "message.hpp"

namespace canopy::dispatch {
namespace {

constexpr Row kCpuVerify[] = {
#include "dispatch/cpu.inc"
};

constexpr Row kCpuCommit[] = {
#include "dispatch/cpu_commit.inc"
};

#if CANOPY_WITH_CUDA
constexpr Row kCudaVerify[] = {
#include "dispatch/cuda.inc"
};

constexpr Row kCudaCommit[] = {
#include "dispatch/cuda_commit.inc"
};
#else
constexpr std::span<const Row> kCudaVerify, kCudaCommit;
#endif

}  // namespace

Table verify_table(int device) {
  if (device == CANOPY_CPU) return {"cpu table", kCpuVerify};
  return {"cuda table", kCudaVerify};
}

Table commit_table(int device) {
  if (device == CANOPY_CPU) return {"cpu commit table", kCpuCommit};
  return {"cuda commit table", kCudaCommit};
}

bool holds(const Row& row, const Problem& problem, int method) {
  return problem.nodes >= row.min_nodes && problem.nodes <= row.max_nodes && problem.batch >= row.min_batch &&
         problem.batch <= row.max_batch && (row.method < 0 || row.method == method);
}

std::string condition(const Row& row) {
  constexpr const char* methods[] = {"method resolve", "method stash", "method replay"};
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : " and ") + part; };
  if (row.method >= 0) add(methods[row.method]);
  if (row.min_nodes > 0) add(text("nodes >= ", row.min_nodes));
  if (row.max_nodes < INT_MAX) add(text("nodes <= ", row.max_nodes));
  if (row.min_batch > 0) add(text("batch >= ", row.min_batch));
  if (row.max_batch < INT_MAX) add(text("batch <= ", row.max_batch));
  return out.empty() ? "always" : out;
}

}  // namespace canopy::dispatch
