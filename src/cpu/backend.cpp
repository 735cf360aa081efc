// The fast CPU implementations: plans once per sequence, then (sequence, head) pieces over OpenMP threads, each in its
// own part of the workspace.
#include <cstring>

#include "cpu/kernels.hpp"
#include "host_entry.hpp"
#include "registry.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace canopy {
namespace cpu {
namespace {

int max_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}
int thread_number() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// More threads than pieces would only add scratch.
int threads_for(std::int64_t pieces) {
  const std::int64_t most = pieces < 1 ? 1 : pieces;
  return static_cast<int>(max_threads() < most ? max_threads() : most);
}

template <class Work>  // Work(piece, scratch)
void spread(std::int64_t pieces, char* scratch, std::size_t scratch_bytes, Work work) {
  [[maybe_unused]] const int threads = threads_for(pieces);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece, scratch + thread_number() * scratch_bytes);
}

// ---- verify ------------------------------------------------------------------------------------------------------
struct Method {
  std::size_t (*scratch)(const Problem&);    // a thread
  std::size_t (*snapshots)(const Problem&);  // a (sequence, value head); 0: none
};
Method closed_form_method() { return {kernels().closed_form_scratch, nullptr}; }
Method resident_method() { return {kernels().serial_resident_scratch, nullptr}; }
Method snapshot_method() { return {kernels().serial_snapshot_scratch, kernels().snapshot_bytes}; }

// [plans][scratch of each thread][snapshots of each (sequence, value head)]
std::size_t verify_workspace(const VerifyParams& params, Method method) {
  const Problem& p = params.problem;
  const std::int64_t heads = std::int64_t{p.batch} * p.heads_v;
  std::size_t bytes = aligned(sizeof(Plan) * p.batch) + threads_for(heads) * aligned(method.scratch(p));
  if (method.snapshots) bytes += heads * aligned(method.snapshots(p));
  return bytes;
}

// Plans of the rows that are to run; a padding row or one that is skipped gets a plan of no nodes. Malformed trees are
// flagged and their outputs poisoned (without row_status, check() has refused them already).
void prepare(const VerifyParams& params, Plan* plans) {
  const Problem& p = params.problem;
  for (int b = 0; b < p.batch; ++b) {
    Plan& plan = plans[b];
    plan.nodes = 0;
    const std::int32_t flags = row_flags(p, b);
    if (params.row_status) params.row_status[b] = flags;
    if (slot_of(p, p.slot_index, b) < 0) continue;
    if (flags == CANOPY_ROW_BAD_TREE) kernels().poison(params, b, count_of(p, b));
    if (flags || count_of(p, b) == 0) continue;
    if (p.trees.plan) {
      plan = static_cast<const Plan*>(p.trees.plan)[b];
      continue;
    }
    std::int32_t parents[kMaxNodes];
    row_parents(p, b, parents);
    build_plan(parents, count_of(p, b), plan);
  }
}

template <class Work>  // Work(plan, b, hv, heads, scratch)
void run_heads(const VerifyParams& params, void* workspace, Method method, int heads_a_piece, Work work) {
  const Problem& p = params.problem;
  Plan* plans = static_cast<Plan*>(workspace);
  prepare(params, plans);
  const int pieces_a_row = p.heads_v / heads_a_piece;
  char* scratch = static_cast<char*>(workspace) + aligned(sizeof(Plan) * p.batch);
  spread(std::int64_t{p.batch} * pieces_a_row, scratch, aligned(method.scratch(p)), [&](std::int64_t piece, char* own) {
    const int b = static_cast<int>(piece / pieces_a_row), hv = static_cast<int>(piece % pieces_a_row) * heads_a_piece;
    if (plans[b].nodes > 0) work(plans[b], b, hv, heads_a_piece, own);
  });
}

Error run_closed_form(const VerifyParams& params, void* workspace, void*) {
  const Problem& p = params.problem;
  // The value heads of a key head share its raw products; with more threads than key heads, speed comes from splitting.
  const int group = p.heads_v / p.heads_k;
  const bool share = std::int64_t{p.batch} * p.heads_k >= max_threads();
  run_heads(params, workspace, closed_form_method(), share ? group : 1,
            [&](const Plan& plan, int b, int hv, int heads, void* scratch) {
              kernels().closed_form(params, plan, b, hv, heads, scratch);
            });
  return {};
}

Error run_serial_resident(const VerifyParams& params, void* workspace, void*) {
  run_heads(params, workspace, resident_method(), 1, [&](const Plan& plan, int b, int hv, int, void* scratch) {
    kernels().serial_resident(params, plan, b, hv, scratch);
  });
  return {};
}

Error run_serial_snapshot(const VerifyParams& params, void* workspace, void*) {
  const Problem& p = params.problem;
  const Method method = snapshot_method();
  const std::size_t each = aligned(method.snapshots(p));
  char* end = static_cast<char*>(workspace) + verify_workspace(params, method);
  char* snapshots = end - std::int64_t{p.batch} * p.heads_v * each;
  run_heads(params, workspace, method, 1, [&](const Plan& plan, int b, int hv, int, void* scratch) {
    kernels().serial_snapshot(params, plan, b, hv, snapshots + (std::int64_t{b} * p.heads_v + hv) * each, scratch);
  });
  return {};
}

std::string refuses_verify(const VerifyParams& params) {
  if (std::string why = refuses_device(params); !why.empty()) return why;
  if (params.precision != CANOPY_PRECISION_DEFAULT && params.precision != CANOPY_PRECISION_FP32)
    return "precision = " + std::to_string(params.precision) +
           ": expected 0 (default) or 1 (fp32), all that the CPU computes in; the others are for GPUs";
  return {};
}

// ---- commit ------------------------------------------------------------------------------------------------------
// Root path of a node, per sequence: what the heads of all layers share.
struct CommitPaths {
  std::int32_t length, track_length;  // 0: not written
  std::int32_t path[kMaxNodes], track_path[kMaxNodes];
};

int path_to(const std::int32_t* parents, int leaf, std::int32_t* path) {
  int length = 0;
  for (int node = leaf; node >= 0; node = parents[node]) ++length;
  for (int node = leaf, j = length; node >= 0; node = parents[node]) path[--j] = node;
  return length;
}

std::size_t commit_workspace(const CommitParams& params) {
  const Problem& p = params.problem;
  return aligned(sizeof(CommitPaths) * p.batch) +
         threads_for(std::int64_t{params.layers} * p.batch * p.heads_v) * aligned(kernels().commit_scratch(p));
}

Error run_commit(const CommitParams& params, void* workspace, void*) {
  const Problem& p = params.problem;
  CommitPaths* paths = static_cast<CommitPaths*>(workspace);
  for (int b = 0; b < p.batch; ++b) {
    paths[b].length = paths[b].track_length = 0;
    const std::int32_t flags = row_flags(params, b);
    if (params.row_status) params.row_status[b] = flags;
    if (flags || slot_of(p, p.slot_index, b) < 0 || !leaf_live(p, params.leaf, b)) continue;
    std::int32_t parents[kMaxNodes];
    row_parents(p, b, parents);
    paths[b].length = path_to(parents, params.leaf[b], paths[b].path);
    if (leaf_live(p, params.track_leaf, b))
      paths[b].track_length = path_to(parents, params.track_leaf[b], paths[b].track_path);
  }
  char* scratch = static_cast<char*>(workspace) + aligned(sizeof(CommitPaths) * p.batch);
  const std::int64_t a_layer = std::int64_t{p.batch} * p.heads_v;
  spread(params.layers * a_layer, scratch, aligned(kernels().commit_scratch(p)), [&](std::int64_t piece, char* own) {
    CommitRow row;
    row.layer = static_cast<int>(piece / a_layer);
    row.b = static_cast<int>(piece % a_layer / p.heads_v);
    row.hv = static_cast<int>(piece % p.heads_v);
    const CommitPaths& of_row = paths[row.b];
    if (of_row.length == 0) return;
    row.src_slot = slot_of(p, p.slot_index, row.b);
    row.dst_slot = params.dst_slot ? slot_of(p, params.dst_slot, row.b) : row.src_slot;
    row.track_slot = of_row.track_length ? slot_of(p, params.track_slot, row.b) : -1;
    row.path = of_row.path;
    row.length = of_row.length;
    row.track_path = of_row.track_path;
    row.track_length = of_row.track_length;
    kernels().commit(params, row, own);
  });
  return {};
}

template <canopy_commit_method method>
std::string refuses_commit(const CommitParams& params) {
  static constexpr const char* kNames[] = {"resolve", "stash", "replay"};
  if (std::string why = refuses_device(params); !why.empty()) return why;
  if (params.method != method)
    return std::string("method = ") + kNames[params.method] + ": this implementation commits by " + kNames[method] +
           "; use cpu_commit_" + kNames[params.method];
  return {};
}

const Kernels* chosen = nullptr;

}  // namespace

int kernel_sets(const Kernels* (&sets)[3]) {
  int count = 0;
  sets[count++] = &kernels_baseline;
#if defined(__x86_64__) || defined(_M_X64)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets[count++] = &kernels_avx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    sets[count++] = &kernels_avx512;
#endif
  return count;
}

const Kernels& kernels() {
  static const Kernels* widest = [] {
    const Kernels* sets[3];
    return sets[kernel_sets(sets) - 1];
  }();
  return chosen ? *chosen : *widest;
}

void use_kernels(const Kernels* set) { chosen = set; }

}  // namespace cpu

std::span<const VerifyImplementation> cpu_verify_implementations() {
  static const VerifyImplementation kTable[] = {
      {"cpu_closed_form", "path-compressed triangular solve, fp32, vectorised", CANOPY_CPU, 1e-5, 1e-5, nothing_missing,
       cpu::refuses_verify, [](const VerifyParams& p) { return cpu::verify_workspace(p, cpu::closed_form_method()); },
       cpu::run_closed_form},
      {"cpu_serial_resident", "recurrence node by node, the state stays in cache while parent = previous node",
       CANOPY_CPU, 1e-5, 1e-5, nothing_missing, cpu::refuses_verify,
       [](const VerifyParams& p) { return cpu::verify_workspace(p, cpu::resident_method()); },
       cpu::run_serial_resident},
      {"cpu_serial_snapshot", "recurrence node by node, a state written per node and the parent's read back",
       CANOPY_CPU, 1e-5, 1e-5, nothing_missing, cpu::refuses_verify,
       [](const VerifyParams& p) { return cpu::verify_workspace(p, cpu::snapshot_method()); },
       cpu::run_serial_snapshot},
  };
  return kTable;
}

std::span<const CommitImplementation> cpu_commit_implementations() {
  static const CommitImplementation kTable[] = {
      {"cpu_commit_resolve", "solves the accepted path's chain again; verification stores nothing", CANOPY_CPU, 1e-5,
       1e-5, nothing_missing, cpu::refuses_commit<CANOPY_COMMIT_RESOLVE>, cpu::commit_workspace, cpu::run_commit},
      {"cpu_commit_stash", "rebuilds the state from the u that verification stored", CANOPY_CPU, 1e-5, 1e-5,
       nothing_missing, cpu::refuses_commit<CANOPY_COMMIT_STASH>, cpu::commit_workspace, cpu::run_commit},
      {"cpu_commit_replay", "the recurrence along the accepted path, in order", CANOPY_CPU, 1e-5, 1e-5, nothing_missing,
       cpu::refuses_commit<CANOPY_COMMIT_REPLAY>, cpu::commit_workspace, cpu::run_commit},
  };
  return kTable;
}

}  // namespace canopy
