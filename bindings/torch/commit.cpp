// commit: the state after the accepted node of each sequence, all layers in one call.
#include "call.hpp"

namespace canopy_torch {

void commit(const Tensor& k, const Maybe& v, const Tensor& leaf, const Tensor& state, const Maybe& workspace,
            const Maybe& parents, const Maybe& plan, const Maybe& g, const Maybe& beta, const Maybe& slot_index,
            const Maybe& count, const Maybe& a, const Maybe& b, const Maybe& a_log, const Maybe& dt_bias,
            const Maybe& next_token, const Maybe& next_sibling, const Maybe& dst_slot, const Maybe& track_leaf,
            const Maybe& track_slot, const Maybe& stash_u, const Maybe& stash_l, const Maybe& row_status,
            bool beta_doubled, bool l2norm, double l2norm_eps, int64_t state_layout, int64_t padding_slot,
            int64_t method, const Name& implementation) {
  canopy_commit_params params;
  canopy_commit_params_init(&params);
  canopy_problem& p = params.problem;
  const int64_t lead = state.dim() == 5 ? 1 : 0;
  if (state.dim() != 4 && state.dim() != 5)
    fail("state: expected 4 axes [slots,HV,V,K], or 5 with L layers before them, got ", state.dim(), "; reshape it");
  if (k.dim() != 4 + lead)
    fail("k: expected ", (lead ? "5 axes [L,B,T,H,K], as state has a layer axis" : "4 axes [B,T,H,K]"), ", got ",
         k.dim(), "; reshape it");
  const int64_t layers = lead ? state.size(0) : 0;
  const Reader reader("k", k, layers), shared("k", k, 0);  // trees, leaves and slots have no layer axis
  p.device = reader.cuda() ? CANOPY_CUDA : CANOPY_CPU;
  params.layers = lead ? narrow("L", layers) : 1;
  const bool vk = state_layout == CANOPY_STATE_VK;
  const int64_t B = k.size(lead), T = k.size(lead + 1), H = k.size(lead + 2), K = k.size(lead + 3);
  const int64_t HV = state.size(lead + 1), V = state.size(lead + (vk ? 2 : 3));
  p.batch = narrow("B", B), p.nodes = narrow("T", T), p.heads_k = narrow("H", H), p.heads_v = narrow("HV", HV);
  p.dim_k = narrow("K", K), p.dim_v = narrow("V", V);
  p.k = reader.view("k", k, "[B,T,H,K]", {B, T, H, K});
  p.v = reader.view("v", v, "[B,T,HV,V]", {B, T, HV, V});
  shared.trees(p.trees, {parents, next_token, next_sibling, count, plan}, B, T);
  reader.gates(p, {g, beta, a, b, a_log, dt_bias, beta_doubled});
  SlotDtype dtype = reader.pool(p, {state, state_layout, slot_index, padding_slot});
  norm(p, {l2norm, l2norm_eps, 0});

  params.method = narrow("method", method);
  params.leaf = shared.ints("leaf", Maybe(leaf), "[B]", {B});
  params.dst_slot = shared.slots("dst_slot", dst_slot, B, &dtype);
  params.track_leaf = shared.ints("track_leaf", track_leaf, "[B]", {B});
  params.track_slot = shared.slots("track_slot", track_slot, B, &dtype);
  p.slot_index_dtype = dtype.value;
  params.stash_u = reader.view("stash_u", stash_u, "[B,T,HV,V]", {B, T, HV, V});
  params.stash_l = reader.view("stash_l", stash_l, "[B,T,HV]", {B, T, HV});
  params.row_status = const_cast<int32_t*>(shared.ints("row_status", row_status, "[B]", {B}));
  call<canopy_commit_params>(reader, k, params, implementation, workspace, canopy_commit_workspace, canopy_commit);
}

}  // namespace canopy_torch
