// conv1d_tree: the short convolution in front of a layer, every node's window along its root path (E9); conv1d_commit:
// the window after the accepted nodes, all layers in one call.
#include "call.hpp"

namespace canopy_torch {
namespace {

void read_rows(canopy_conv_problem& p, const Reader& reader, const Reader& shared, const Tensor& x, const Tensor& state,
               const TreeArguments& trees, const Maybe& slot_index, int64_t padding_slot, SlotDtype* dtype) {
  const int64_t B = p.batch, T = p.nodes, C = p.channels;
  p.device = reader.cuda() ? CANOPY_CUDA : CANOPY_CPU;
  p.x = reader.view("x", x, "[B,T,C]", {B, T, C});
  p.slots = state.dim() >= 3 ? state.size(state.dim() - 3) : 0;
  p.state = reader.view("state", state, "[slots,C,W-1]", {p.slots, C, p.width - 1});
  shared.trees(p.trees, trees, B, T);
  p.slot_index = shared.slots("slot_index", slot_index, B, dtype);
  p.slot_index_dtype = dtype->value;
  p.padding_slot = padding_slot;
}

canopy_conv_verify_params params_of(const Reader& reader, const Tensor& x, const Tensor& state, const Tensor& weight,
                                    const Maybe& bias, const TreeArguments& trees, const Maybe& slot_index, bool silu,
                                    int64_t padding_slot) {
  canopy_conv_verify_params params;
  canopy_conv_verify_params_init(&params);
  canopy_conv_problem& p = params.problem;
  if (x.dim() != 3) fail("x: expected 3 axes [B,T,C], got ", x.dim(), "; reshape it");
  if (weight.dim() != 2)
    fail("weight: expected 2 axes [C,W], got ", weight.dim(), "; of a Conv1d's weight [C,1,W] pass weight[:, 0]");
  p.batch = narrow("B", x.size(0)), p.nodes = narrow("T", x.size(1)), p.channels = narrow("C", x.size(2));
  p.width = narrow("W", weight.size(1));
  SlotDtype dtype;
  read_rows(p, reader, reader, x, state, trees, slot_index, padding_slot, &dtype);
  params.weight = reader.view("weight", weight, "[C,W]", {p.channels, p.width});
  params.bias = reader.view("bias", bias, "[C]", {p.channels});
  params.silu = silu;
  return params;
}

}  // namespace

Tensor conv1d_tree(const Tensor& x, const Tensor& state, const Tensor& weight, const Maybe& bias, const Maybe& parents,
                   const Maybe& plan, const Maybe& slot_index, const Maybe& count, const Maybe& next_token,
                   const Maybe& next_sibling, bool silu, int64_t padding_slot, const Name& implementation,
                   const OutDtype& out_dtype) {
  const Reader reader("x", x, 0);
  canopy_conv_verify_params params = params_of(
      reader, x, state, weight, bias, {parents, next_token, next_sibling, count, plan}, slot_index, silu, padding_slot);
  const canopy_conv_problem& p = params.problem;
  const int64_t shape[] = {p.batch, p.nodes, p.channels};
  const auto dtype = out_dtype ? *out_dtype : x.scalar_type();
  // Rows past a count and padding rows are not written by the library: a returned tensor has zeros there.
  const bool partial = count.has_value() || slot_index.has_value();
  Tensor o = partial ? torch::stable::new_zeros(x, {shape, 3}, dtype) : torch::stable::new_empty(x, {shape, 3}, dtype);
  params.o = reader.view("o", o, "[B,T,C]", {p.batch, p.nodes, p.channels});
  call<canopy_conv_verify_params>(reader, x, params, implementation, {}, canopy_conv_verify_workspace,
                                  canopy_conv_verify);
  return o;
}

void conv1d_tree_out(const Tensor& x, const Tensor& state, const Tensor& weight, const Tensor& o, const Maybe& bias,
                     const Maybe& parents, const Maybe& plan, const Maybe& slot_index, const Maybe& count,
                     const Maybe& next_token, const Maybe& next_sibling, const Maybe& row_status, bool silu,
                     int64_t padding_slot, const Name& implementation) {
  const Reader reader("x", x, 0);
  canopy_conv_verify_params params = params_of(
      reader, x, state, weight, bias, {parents, next_token, next_sibling, count, plan}, slot_index, silu, padding_slot);
  const canopy_conv_problem& p = params.problem;
  params.o = reader.view("o", o, "[B,T,C]", {p.batch, p.nodes, p.channels});
  params.row_status = const_cast<int32_t*>(reader.ints("row_status", row_status, "[B]", {p.batch}));
  call<canopy_conv_verify_params>(reader, x, params, implementation, {}, canopy_conv_verify_workspace,
                                  canopy_conv_verify);
}

void conv1d_commit(const Tensor& x, const Tensor& leaf, const Tensor& state, const Maybe& parents, const Maybe& plan,
                   const Maybe& slot_index, const Maybe& count, const Maybe& next_token, const Maybe& next_sibling,
                   const Maybe& dst_slot, const Maybe& track_leaf, const Maybe& track_slot, const Maybe& row_status,
                   int64_t padding_slot, const Name& implementation) {
  canopy_conv_commit_params params;
  canopy_conv_commit_params_init(&params);
  canopy_conv_problem& p = params.problem;
  const int64_t lead = state.dim() == 4 ? 1 : 0;
  if (state.dim() != 3 && state.dim() != 4)
    fail("state: expected 3 axes [slots,C,W-1], or 4 with L layers before them, got ", state.dim(), "; reshape it");
  if (x.dim() != 3 + lead)
    fail("x: expected ", (lead ? "4 axes [L,B,T,C], as state has a layer axis" : "3 axes [B,T,C]"), ", got ", x.dim(),
         "; reshape it");
  const int64_t layers = lead ? state.size(0) : 0;
  const Reader reader("x", x, layers), shared("x", x, 0);  // trees, leaves and slots have no layer axis
  params.layers = lead ? narrow("L", layers) : 1;
  p.batch = narrow("B", x.size(lead)), p.nodes = narrow("T", x.size(lead + 1));
  p.channels = narrow("C", x.size(lead + 2)), p.width = narrow("W", state.size(lead + 2) + 1);
  SlotDtype dtype;
  read_rows(p, reader, shared, x, state, {parents, next_token, next_sibling, count, plan}, slot_index, padding_slot,
            &dtype);
  const int64_t B = p.batch;
  params.leaf = shared.ints("leaf", Maybe(leaf), "[B]", {B});
  params.dst_slot = shared.slots("dst_slot", dst_slot, B, &dtype);
  params.track_leaf = shared.ints("track_leaf", track_leaf, "[B]", {B});
  params.track_slot = shared.slots("track_slot", track_slot, B, &dtype);
  p.slot_index_dtype = dtype.value;
  params.row_status = const_cast<int32_t*>(shared.ints("row_status", row_status, "[B]", {B}));
  call<canopy_conv_commit_params>(reader, x, params, implementation, {}, canopy_conv_commit_workspace,
                                  canopy_conv_commit);
}

}  // namespace canopy_torch
