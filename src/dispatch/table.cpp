#include "dispatch/table.hpp"

#include "dispatch/file.hpp"
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
#include "dispatch/gpus.inc"

constexpr Row kCudaCommit[] = {
#include "dispatch/cuda_commit.inc"
};
#else
constexpr std::span<const Gpu> kGpus;
constexpr std::span<const Row> kCudaCommit;
#endif

}  // namespace

const Gpu& nearest(std::span<const Gpu> gpus, const Machine& machine) {
  const Gpu *same = nullptr, *older = nullptr;
  for (const Gpu& gpu : gpus) {
    if (machine.name == gpu.name) return gpu;
    if (!same && gpu.capability == machine.capability) same = &gpu;
    if (gpu.capability < machine.capability && (!older || gpu.capability > older->capability)) older = &gpu;
  }
  return same ? *same : older ? *older : gpus.front();
}

Result<Table> verify_table(int device) {
  const Result<Tables>& own = own_tables();
  if (!own) return own.error();
  if (device == CANOPY_CPU) {
    if (const FileTable* table = own->find(device)) return Table{table->title.c_str(), table->rows};
    return Table{"cpu table", kCpuVerify};
  }
  if (std::span<const Gpu>(kGpus).empty()) return Table{"cuda table", {}};
  if (const FileTable* table = own->find(device)) return Table{table->title.c_str(), table->rows};
  const Gpu& gpu = nearest(kGpus, machine(device));
  return Table{gpu.title, gpu.rows, machine(device).name == gpu.name ? nullptr : gpu.name};
}

Table commit_table(int device) {
  if (device == CANOPY_CPU) return {"cpu commit table", kCpuCommit};
  return {"cuda commit table", kCudaCommit};
}

bool holds(const Row& row, const Asked& asked) {
  const bool any_depth = row.min_depth == 0 && row.max_depth == INT_MAX;
  return asked.nodes >= row.min_nodes && asked.nodes <= row.max_nodes && asked.heads >= row.min_heads &&
         (asked.heads <= row.max_heads || row.max_heads == INT_MAX) &&
         (any_depth || (asked.depth > 0 && asked.depth >= row.min_depth && asked.depth <= row.max_depth)) &&
         (row.precision < 0 || row.precision == asked.precision) && (!row.stash || asked.stash) &&
         (row.method < 0 || row.method == asked.method);
}

std::string condition(const Row& row) {
  constexpr const char* methods[] = {"method resolve", "method stash", "method replay"};
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : " and ") + part; };
  if (row.method >= 0) add(methods[row.method]);
  if (row.precision >= 0) add(text("precision ", kPrecisions[row.precision]));
  if (row.stash) add("stash");
  if (row.min_nodes > 0) add(text("nodes >= ", row.min_nodes));
  if (row.max_nodes < INT_MAX) add(text("nodes <= ", row.max_nodes));
  if (row.min_heads > 0) add(text("heads >= ", row.min_heads));
  if (row.max_heads < INT_MAX) add(text("heads <= ", row.max_heads));
  if (row.min_depth > 0) add(text("depth >= ", row.min_depth));
  if (row.max_depth < INT_MAX) add(text("depth <= ", row.max_depth));
  return out.empty() ? "always" : out;
}

}  // namespace canopy::dispatch
