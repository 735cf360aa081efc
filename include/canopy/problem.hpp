// The problem: shapes, trees, activations, gates and state pool of a GDN layer, and the checks every call makes first.
// The structs are the C ABI's own (canopy.h); this header names them for C++ and validates them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "canopy/result.hpp"

namespace canopy {

using Tensor = canopy_tensor;
using Problem = canopy_problem;
using VerifyParams = canopy_verify_params;
using CommitParams = canopy_commit_params;

inline VerifyParams verify_params() {
  VerifyParams params;
  canopy_verify_params_init(&params);
  return params;
}
inline CommitParams commit_params() {
  CommitParams params;
  canopy_commit_params_init(&params);
  return params;
}

// A view of contiguous row-major memory; the layer stride is the size of it all. Memory that is only read may be const.
inline Tensor contiguous(const void* data, canopy_dtype dtype, std::initializer_list<std::int64_t> shape) {
  Tensor tensor{const_cast<void*>(data), dtype, 0, {}};
  std::int64_t stride = 1;
  int axis = static_cast<int>(shape.size());
  for (const std::int64_t* extent = shape.end(); extent != shape.begin(); --axis) {
    tensor.stride[axis] = stride;
    stride *= *--extent;
  }
  tensor.stride[0] = stride;
  return tensor;
}

// The plain case, for a first try: contiguous fp32 on the host, sequence b in slot b, state layout VK. Fill by name.
struct DenseLayer {
  int batch = 1, nodes = 0, heads_k = 0, heads_v = 0, dim_k = 0, dim_v = 0;  // B T H HV K V
  const std::int32_t* parents = nullptr;  // [B,T]
  const float* q = nullptr;               // [B,T,H,K]
  const float* k = nullptr;               // [B,T,H,K]
  const float* v = nullptr;               // [B,T,HV,V]
  const float* g = nullptr;               // [B,T,HV] log gates
  const float* beta = nullptr;            // [B,T,HV]
  float* state = nullptr;                 // [B,HV,V,K]
  float* o = nullptr;                     // [B,T,HV,V] out
};
VerifyParams verify_params(const DenseLayer& layer);
CommitParams commit_params(const DenseLayer& layer);

// Shapes, dtypes, strides, missing or contradictory tensors, ABI version: everything that can be said without reading
// device memory. On the CPU also trees, counts and slots, unless row_status is given (then bad rows are flagged there).
Error check(const VerifyParams& params);
Error check(const CommitParams& params);

// Slot of sequence b: -1 for a padding row. `index` is slot_index, dst_slot or track_slot (nullptr: b itself).
std::int64_t slot_of(const Problem& problem, const void* index, int b);
// Live nodes of sequence b.
inline int count_of(const Problem& problem, int b) { return problem.trees.count ? problem.trees.count[b] : problem.nodes; }
// The parent array of sequence b into out[0..count): from parents, or from links. False if the tree is malformed;
// `bad` names the first bad node. parents[0] is set to -1.
bool row_parents(const Problem& problem, int b, std::int32_t* out, int* bad = nullptr);
// CANOPY_ROW_* bits of sequence b (CPU pointers only); a padding row is 0.
std::int32_t row_flags(const Problem& problem, int b);
// Whether leaf[b] names a live node; `leaf` may be nullptr (no leaves at all).
bool leaf_live(const Problem& problem, const std::int32_t* leaf, int b);
// The same for a commit: also its destination and track slots, where they would be written. A row that would write two
// states to one slot is a BAD_SLOT. A row with any bit set is skipped, its slots bitwise untouched.
std::int32_t row_flags(const CommitParams& params, int b);

}  // namespace canopy
