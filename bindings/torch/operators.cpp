// The operators of PyTorch: schemas, and one kernel each for CPU and CUDA. Letters B, T, H, HV, K, V and the meaning of
// every argument are those of canopy/canopy.h; python/canopy_gdn/ops.py registers the fakes.
#include "operators.hpp"

#include <torch/csrc/stable/library.h>

using namespace canopy_torch;

// Tensors come first and scalars last, by keyword and with defaults: PyTorch's conversion of a Python int, float or
// bool costs more than that of a tensor (0.3 us, NOTES.md), and an argument left at its default is not converted at
// all.
#define CANOPY_TREES \
  "Tensor? slot_index, Tensor? parents, Tensor? next_token, Tensor? next_sibling, Tensor? count, Tensor? plan"
#define CANOPY_GATES "Tensor? g, Tensor? beta, Tensor? a, Tensor? b, Tensor? a_log, Tensor? dt_bias"
#define CANOPY_VERIFY "Tensor q, Tensor k, Tensor v, Tensor state, " CANOPY_TREES ", " CANOPY_GATES
#define CANOPY_NORM "bool beta_doubled=False, bool l2norm=False, float l2norm_eps=1e-6"
#define CANOPY_POOL "int state_layout=0, int padding_slot=-1"
#define CANOPY_VERIFY_OPTIONS \
  CANOPY_NORM ", float scale=0.0, " CANOPY_POOL ", int precision=0, str? implementation=None"

STABLE_TORCH_LIBRARY(canopy_gdn, m) {
  m.def(
      "plan(Tensor? parents, Tensor? next_token, Tensor? next_sibling, Tensor? count, Tensor? slot_index, *, "
      "int slots=0, int padding_slot=-1) -> Tensor");
  m.def(
      "plan_out(Tensor? parents, Tensor? next_token, Tensor? next_sibling, Tensor? count, Tensor? slot_index, "
      "Tensor(a!) plan, *, int slots=0, int padding_slot=-1) -> ()");
  m.def("verify(" CANOPY_VERIFY ", *, " CANOPY_VERIFY_OPTIONS ", ScalarType? out_dtype=None) -> Tensor");
  m.def("verify_out(" CANOPY_VERIFY
        ", Tensor(a!) o, Tensor(b!)? stash_u, Tensor(c!)? stash_l, Tensor(d!)? row_status, "
        "Tensor(e!)? workspace, *, " CANOPY_VERIFY_OPTIONS ") -> ()");
  m.def("commit(Tensor k, Tensor? v, Tensor leaf, Tensor(a!) state, " CANOPY_TREES ", " CANOPY_GATES
        ", Tensor? dst_slot, Tensor? track_leaf, Tensor? track_slot, Tensor? stash_u, Tensor? stash_l, "
        "Tensor(b!)? row_status, Tensor(c!)? workspace, *, " CANOPY_NORM ", " CANOPY_POOL
        ", int method=0, str? implementation=None) -> ()");
}

#define CANOPY_KERNELS(m)                       \
  m.impl("plan", TORCH_BOX(&plan));             \
  m.impl("plan_out", TORCH_BOX(&plan_out));     \
  m.impl("verify", TORCH_BOX(&verify));         \
  m.impl("verify_out", TORCH_BOX(&verify_out)); \
  m.impl("commit", TORCH_BOX(&commit))

STABLE_TORCH_LIBRARY_IMPL(canopy_gdn, CPU, m) { CANOPY_KERNELS(m); }
STABLE_TORCH_LIBRARY_IMPL(canopy_gdn, CUDA, m) { CANOPY_KERNELS(m); }
