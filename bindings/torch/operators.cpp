// The operators of PyTorch: schemas, and one kernel each for CPU and CUDA. Letters B, T, H, HV, K, V and the meaning of
// every argument are those of canopy/canopy.h; python/canopy_gdn/ops.py registers the fakes.
#include "operators.hpp"

#include <torch/csrc/stable/library.h>

using namespace canopy_torch;

// What most calls pass stands first, what few pass last, and scalars by keyword, all with defaults: PyTorch converts
// every argument that is passed (0.1 us a tensor or None, 0.3 us an int, float or bool) and none that is left out.
#define CANOPY_INPUTS                                                                                     \
  "Tensor? parents=None, Tensor? plan=None, Tensor? g=None, Tensor? beta=None, Tensor? slot_index=None, " \
  "Tensor? count=None, Tensor? a=None, Tensor? b=None, Tensor? a_log=None, Tensor? dt_bias=None, "        \
  "Tensor? next_token=None, Tensor? next_sibling=None"
#define CANOPY_NORM "bool beta_doubled=False, bool l2norm=False, float l2norm_eps=1e-6"
#define CANOPY_POOL "int state_layout=0, int padding_slot=-1"
#define CANOPY_VERIFY_OPTIONS \
  CANOPY_NORM ", float scale=0.0, " CANOPY_POOL ", int precision=0, int max_depth=0, str? implementation=None"

#define CANOPY_CONV_TREES                                                                                           \
  "Tensor? parents=None, Tensor? plan=None, Tensor? slot_index=None, Tensor? count=None, Tensor? next_token=None, " \
  "Tensor? next_sibling=None"

STABLE_TORCH_LIBRARY(canopy_gdn, m) {
  m.def(
      "plan(Tensor? parents, Tensor? next_token, Tensor? next_sibling, Tensor? count, Tensor? slot_index, *, "
      "int slots=0, int padding_slot=-1) -> Tensor");
  m.def(
      "plan_out(Tensor? parents, Tensor? next_token, Tensor? next_sibling, Tensor? count, Tensor? slot_index, "
      "Tensor(a!) plan, *, int slots=0, int padding_slot=-1) -> ()");
  m.def("verify(Tensor q, Tensor k, Tensor v, Tensor state, " CANOPY_INPUTS ", *, " CANOPY_VERIFY_OPTIONS
        ", ScalarType? out_dtype=None) -> Tensor");
  m.def(
      "verify_out(Tensor q, Tensor k, Tensor v, Tensor state, Tensor(a!) o, Tensor(b!)? workspace=None, " CANOPY_INPUTS
      ", Tensor(c!)? stash_u=None, Tensor(d!)? stash_l=None, Tensor(e!)? row_status=None, *, " CANOPY_VERIFY_OPTIONS
      ") -> ()");
  m.def("commit(Tensor k, Tensor? v, Tensor leaf, Tensor(a!) state, Tensor(b!)? workspace=None, " CANOPY_INPUTS
        ", Tensor? dst_slot=None, Tensor? track_leaf=None, Tensor? track_slot=None, Tensor? stash_u=None, "
        "Tensor? stash_l=None, Tensor(c!)? row_status=None, *, " CANOPY_NORM ", " CANOPY_POOL
        ", int method=0, str? implementation=None) -> ()");
  m.def("conv1d_tree(Tensor x, Tensor state, Tensor weight, Tensor? bias=None, " CANOPY_CONV_TREES
        ", *, bool silu=False, int padding_slot=-1, str? implementation=None, ScalarType? out_dtype=None) -> Tensor");
  m.def("conv1d_tree_out(Tensor x, Tensor state, Tensor weight, Tensor(a!) o, Tensor? bias=None, " CANOPY_CONV_TREES
        ", Tensor(b!)? row_status=None, *, bool silu=False, int padding_slot=-1, str? implementation=None) -> ()");
  m.def("conv1d_commit(Tensor x, Tensor leaf, Tensor(a!) state, " CANOPY_CONV_TREES
        ", Tensor? dst_slot=None, Tensor? track_leaf=None, Tensor? track_slot=None, Tensor(b!)? row_status=None, *, "
        "int padding_slot=-1, str? implementation=None) -> ()");
}

#define CANOPY_KERNELS(m)                                 \
  m.impl("plan", TORCH_BOX(&plan));                       \
  m.impl("plan_out", TORCH_BOX(&plan_out));               \
  m.impl("verify", TORCH_BOX(&verify));                   \
  m.impl("verify_out", TORCH_BOX(&verify_out));           \
  m.impl("commit", TORCH_BOX(&commit));                   \
  m.impl("conv1d_tree", TORCH_BOX(&conv1d_tree));         \
  m.impl("conv1d_tree_out", TORCH_BOX(&conv1d_tree_out)); \
  m.impl("conv1d_commit", TORCH_BOX(&conv1d_commit))

STABLE_TORCH_LIBRARY_IMPL(canopy_gdn, CPU, m) { CANOPY_KERNELS(m); }
STABLE_TORCH_LIBRARY_IMPL(canopy_gdn, CUDA, m) { CANOPY_KERNELS(m); }
