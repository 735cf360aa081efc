// verify: o of every node of every tree, through one layer. The pool is only read.
#include "call.hpp"

namespace canopy_torch {
namespace {

canopy_verify_params params_of(const Reader& reader, const Tensor& q, const Tensor& k, const Tensor& v,
                               const TreeArguments& trees, const GateArguments& gates, const PoolArguments& pool,
                               const NormArguments& with, int64_t precision, int64_t max_depth) {
  canopy_verify_params params;
  canopy_verify_params_init(&params);
  canopy_problem& p = params.problem;
  p.device = reader.cuda() ? CANOPY_CUDA : CANOPY_CPU;
  if (q.dim() != 4) fail("q: expected 4 axes [B,T,H,K], got ", q.dim(), "; reshape it");
  if (v.dim() != 4) fail("v: expected 4 axes [B,T,HV,V], got ", v.dim(), "; reshape it");
  const int64_t B = q.size(0), T = q.size(1), H = q.size(2), K = q.size(3), HV = v.size(2), V = v.size(3);
  p.batch = narrow("B", B), p.nodes = narrow("T", T), p.heads_k = narrow("H", H), p.heads_v = narrow("HV", HV);
  p.dim_k = narrow("K", K), p.dim_v = narrow("V", V);
  p.q = reader.view("q", q, "[B,T,H,K]", {B, T, H, K});
  p.k = reader.view("k", k, "[B,T,H,K]", {B, T, H, K});
  p.v = reader.view("v", v, "[B,T,HV,V]", {B, T, HV, V});
  reader.trees(p.trees, trees, B, T);
  reader.gates(p, gates);
  reader.pool(p, pool);
  norm(p, with);
  params.precision = narrow("precision", precision);
  params.max_depth = narrow("max_depth", max_depth);
  return params;
}

}  // namespace

Tensor verify(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state, const Maybe& parents,
              const Maybe& plan, const Maybe& g, const Maybe& beta, const Maybe& slot_index, const Maybe& count,
              const Maybe& a, const Maybe& b, const Maybe& a_log, const Maybe& dt_bias, const Maybe& next_token,
              const Maybe& next_sibling, bool beta_doubled, bool l2norm, double l2norm_eps, double scale,
              int64_t state_layout, int64_t padding_slot, int64_t precision, int64_t max_depth,
              const Name& implementation, const OutDtype& out_dtype) {
  const Reader reader("q", q, 0);
  canopy_verify_params params = params_of(
      reader, q, k, v, {parents, next_token, next_sibling, count, plan}, {g, beta, a, b, a_log, dt_bias, beta_doubled},
      {state, state_layout, slot_index, padding_slot}, {l2norm, l2norm_eps, scale}, precision, max_depth);
  const canopy_problem& p = params.problem;
  const int64_t shape[] = {p.batch, p.nodes, p.heads_v, p.dim_v};
  // Rows past a count and padding rows are not written by the library: a returned tensor has zeros there.
  const auto dtype = out_dtype ? *out_dtype : v.scalar_type();
  const bool partial = count.has_value() || slot_index.has_value();
  Tensor o = partial ? torch::stable::new_zeros(q, {shape, 4}, dtype) : torch::stable::new_empty(q, {shape, 4}, dtype);
  params.o = reader.view("o", o, "[B,T,HV,V]", {p.batch, p.nodes, p.heads_v, p.dim_v});
  call<canopy_verify_params>(reader, q, params, implementation, {}, canopy_verify_workspace, canopy_verify);
  return o;
}

void verify_out(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& state, const Tensor& o,
                const Maybe& workspace, const Maybe& parents, const Maybe& plan, const Maybe& g, const Maybe& beta,
                const Maybe& slot_index, const Maybe& count, const Maybe& a, const Maybe& b, const Maybe& a_log,
                const Maybe& dt_bias, const Maybe& next_token, const Maybe& next_sibling, const Maybe& stash_u,
                const Maybe& stash_l, const Maybe& row_status, bool beta_doubled, bool l2norm, double l2norm_eps,
                double scale, int64_t state_layout, int64_t padding_slot, int64_t precision, int64_t max_depth,
                const Name& implementation) {
  const Reader reader("q", q, 0);
  canopy_verify_params params = params_of(
      reader, q, k, v, {parents, next_token, next_sibling, count, plan}, {g, beta, a, b, a_log, dt_bias, beta_doubled},
      {state, state_layout, slot_index, padding_slot}, {l2norm, l2norm_eps, scale}, precision, max_depth);
  const canopy_problem& p = params.problem;
  const int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  params.o = reader.view("o", o, "[B,T,HV,V]", {B, T, HV, V});
  params.stash_u = reader.view("stash_u", stash_u, "[B,T,HV,V]", {B, T, HV, V});
  params.stash_l = reader.view("stash_l", stash_l, "[B,T,HV]", {B, T, HV});
  params.row_status = const_cast<int32_t*>(reader.ints("row_status", row_status, "[B]", {B}));
  call<canopy_verify_params>(reader, q, params, implementation, workspace, canopy_verify_workspace, canopy_verify);
}

}  // namespace canopy_torch
