// check(): everything about a call that can be said from its structs, argument by argument, before anything runs.
#include "check.hpp"

#include <climits>
#include <cmath>

#include "message.hpp"

namespace canopy {
namespace {

constexpr unsigned kF32 = 1u << CANOPY_F32;

// Which activations a call reads. Commit by stash takes its decays from the gates where it has them (they are more
// exact than differences of a stored l) and does without.
struct Reads {
  bool q, v, gates_needed;
};

Error check_batch(const Problem& p) {
  if (p.abi_version != CANOPY_ABI_VERSION) {
    return Error::invalid(
        text("abi_version = ", p.abi_version, ": expected ", CANOPY_ABI_VERSION,
             "; call canopy_verify_params_init or canopy_commit_params_init, and build against this library's "
             "canopy.h"));
  }
  if (p.device != CANOPY_CPU && p.device != CANOPY_CUDA) {
    return Error::invalid(text("device = ", p.device, ": expected 0 (CANOPY_CPU) or 1 (CANOPY_CUDA)"));
  }
  if (p.batch < 0) return Error::invalid(text("batch = ", p.batch, ": expected 0 or more sequences"));
  if (p.nodes < 1 || p.nodes > CANOPY_MAX_NODES) {
    return Error::invalid(
        text("nodes = ", p.nodes, ": expected 1 to ", CANOPY_MAX_NODES, " nodes a tree; split or prune larger trees"));
  }
  return {};
}

Error check_dims(const Problem& p) {
  if (Error error = check_batch(p); !error.ok()) return error;
  if (p.heads_k < 1) return Error::invalid(text("heads_k = ", p.heads_k, ": expected 1 or more key heads"));
  if (p.heads_v < 1 || p.heads_v % p.heads_k != 0) {
    return Error::invalid(text("heads_v = ", p.heads_v, ": expected a positive multiple of heads_k = ", p.heads_k,
                               "; give every key head as many value heads"));
  }
  const struct {
    const char* name;
    int value;
  } dims[] = {{"dim_k", p.dim_k}, {"dim_v", p.dim_v}};
  for (const auto& dim : dims) {
    if (dim.value < 8 || dim.value > 256 || dim.value % 8 != 0) {
      return Error::invalid(
          text(dim.name, " = ", dim.value, ": expected a multiple of 8 from 8 to 256; pad the head with zeros"));
    }
  }
  return {};
}

Error check_options(const Problem& p) {
  if (!std::isfinite(p.scale)) {
    return Error::invalid(text("scale = ", p.scale, ": expected a finite factor on q, or 0 for K^-0.5"));
  }
  if (p.l2norm && !(p.l2norm_eps >= 0 && std::isfinite(p.l2norm_eps))) {
    return Error::invalid(
        text("l2norm_eps = ", p.l2norm_eps, ": expected a finite value of 0 or more (1e-6 is usual)"));
  }
  if (p.state_layout != CANOPY_STATE_VK && p.state_layout != CANOPY_STATE_KV) {
    return Error::invalid(
        text("state_layout = ", p.state_layout,
             ": expected 0 (CANOPY_STATE_VK, [slots,HV,V,K]) or 1 (CANOPY_STATE_KV, [slots,HV,K,V])"));
  }
  return {};
}

Error check_slots(const Problem& p) {
  if (p.slot_index_dtype != CANOPY_I32 && p.slot_index_dtype != CANOPY_I64) {
    return Error::invalid(
        text("slot_index_dtype = ", dtype_name(p.slot_index_dtype), ": expected i32 or i64; convert the indices"));
  }
  if (p.padding_slot < -1) {
    return Error::invalid(
        text("padding_slot = ", p.padding_slot, ": expected -1 or more, so that negative indices are padding"));
  }
  if (p.slots < 0) return Error::invalid(text("slots = ", p.slots, ": expected 0 or more state slots"));
  if (!p.slot_index && p.slots < p.batch) {
    return Error::invalid(
        text("slots = ", p.slots, ": expected at least batch = ", p.batch,
             " because slot_index is NULL (sequence b uses slot b); give slot_index or a larger pool"));
  }
  return {};
}

Error check_trees(const Problem& p) {
  const canopy_trees& t = p.trees;
  const bool links = t.next_token || t.next_sibling;
  if (t.parents && links) {
    return Error::invalid(
        "trees: expected either parents or next_token with next_sibling, got both; leave one form NULL");
  }
  if (!t.parents && !links && p.batch > 0) {
    return missing("trees.parents", "[B,T] int32", ", or next_token with next_sibling");
  }
  if (links && !(t.next_token && t.next_sibling)) {
    return missing(t.next_token ? "trees.next_sibling" : "trees.next_token", "[B,T] int32",
                   ": the two links come together");
  }
  if (p.batch > 1 && t.row_stride < p.nodes) {
    return Error::invalid(text("trees.row_stride = ", t.row_stride, ": expected at least nodes = ", p.nodes,
                               " int32 elements from one sequence's row to the next"));
  }
  if (p.batch > 1 && t.row_stride > (std::int64_t{1} << 60) / p.batch) {
    return Error::invalid(text("trees.row_stride = ", t.row_stride, ": expected rows within 2^60 elements for batch = ",
                               p.batch, "; give the stride in elements"));
  }
  return {};
}

Error same_dtype(const char* name, const Tensor& tensor, const char* as, const Tensor& model) {
  if (!tensor.data || !model.data || tensor.dtype == model.dtype) return {};
  return Error::invalid(text(name, ".dtype = ", dtype_name(tensor.dtype), ": expected ", dtype_name(model.dtype),
                             ", the dtype of ", as, "; convert one of them"));
}

Error check_gates(const Problem& p, int layers, bool needed) {
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v;
  const bool direct = p.g.data || p.beta.data, raw = p.a.data || p.b.data || p.a_log.data || p.dt_bias.data;
  if (direct && raw) {
    return Error::invalid(
        "gates: expected either g and beta, or a, b, a_log and dt_bias, got tensors of both forms; leave one form "
        "NULL");
  }
  if (!direct && !raw && needed && B > 0) {
    return Error::invalid(
        "gates: expected g and beta [B,T,HV], or a, b [B,T,HV] with a_log, dt_bias [HV], got neither form; "
        "give one");
  }
  const TensorRule rules[] = {
      {"g", "[B,T,HV]", {B, T, HV}, 3, kF32},    {"beta", "[B,T,HV]", {B, T, HV}, 3, kF32},
      {"a", "[B,T,HV]", {B, T, HV}, 3, kFloats}, {"b", "[B,T,HV]", {B, T, HV}, 3, kFloats},
      {"a_log", "[HV]", {HV}, 1, kFloats},       {"dt_bias", "[HV]", {HV}, 1, kFloats},
  };
  const Tensor* tensors[] = {&p.g, &p.beta, &p.a, &p.b, &p.a_log, &p.dt_bias};
  for (int i = 0; i < 6; ++i) {
    const bool with_it = B > 0 && (i < 2 ? direct : raw);  // the tensors of a form come together
    if (Error error = need(*tensors[i], rules[i], layers, with_it); !error.ok()) return error;
  }
  if (p.beta_doubled && direct) {
    return Error::invalid(
        "beta_doubled = 1: expected 0 with g and beta (it belongs to the raw form); double beta yourself");
  }
  return same_dtype("b", p.b, "a", p.a);
}

Error check_problem(const Problem& p, int layers, Reads reads, bool state_written) {
  for (Error (*step)(const Problem&) : {check_dims, check_options, check_slots, check_trees}) {
    if (Error error = step(p); !error.ok()) return error;
  }
  const std::int64_t B = p.batch, T = p.nodes, H = p.heads_k, HV = p.heads_v, K = p.dim_k, V = p.dim_v;
  const TensorRule q{"q", "[B,T,H,K]", {B, T, H, K}, 4, kFloats}, k{"k", "[B,T,H,K]", {B, T, H, K}, 4, kFloats},
      v{"v", "[B,T,HV,V]", {B, T, HV, V}, 4, kFloats};
  if (reads.q) {
    if (Error error = need(p.q, q, layers, B > 0); !error.ok()) return error;
  }
  if (Error error = need(p.k, k, layers, B > 0); !error.ok()) return error;
  if (reads.q) {
    if (Error error = same_dtype("k", p.k, "q", p.q); !error.ok()) return error;
  }
  if (reads.v) {
    if (Error error = need(p.v, v, layers, B > 0); !error.ok()) return error;
    if (Error error = same_dtype("v", p.v, "k", p.k); !error.ok()) return error;
  }
  if (Error error = check_gates(p, layers, reads.gates_needed); !error.ok()) return error;
  const bool vk = p.state_layout == CANOPY_STATE_VK;
  const TensorRule state{
      "state",      vk ? "[slots,HV,V,K]" : "[slots,HV,K,V]", {p.slots, HV, vk ? V : K, vk ? K : V}, 4, kFloats,
      state_written};
  return need(p.state, state, layers, B > 0 && p.slots > 0);
}

// U and l of verification: both or neither, f32.
Error check_stash(const Problem& p, const Tensor& u, const Tensor& l, int layers, bool written) {
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  if (!u.data != !l.data) {
    return missing(u.data ? "stash_l" : "stash_u", u.data ? "[B,T,HV] f32" : "[B,T,HV,V] f32",
                   ": U and l of the stash come together");
  }
  const TensorRule rule_u{"stash_u", "[B,T,HV,V]", {B, T, HV, V}, 4, kF32, written};
  const TensorRule rule_l{"stash_l", "[B,T,HV]", {B, T, HV}, 3, kF32, written};
  if (Error error = need(u, rule_u, layers, false); !error.ok()) return error;
  return need(l, rule_l, layers, false);
}

}  // namespace

Error missing(const char* name, const char* shape, const char* why) {
  return Error::invalid(text(name, " is NULL: expected ", shape, why));
}

Error need(const Tensor& tensor, const TensorRule& rule, int layers, bool needed) {
  if (!tensor.data && needed) return missing(rule.name, rule.shape, "");
  return tensor.data ? check_tensor(tensor, rule, layers) : Error{};
}

Tensor stand_in_output(const Problem& p) {
  alignas(64) static float nowhere;  // no implementation is to refuse it for its address
  // Unsigned: the extents are not checked yet and may be anything.
  const std::uint64_t width = static_cast<std::uint64_t>(p.dim_v), row = width * static_cast<std::uint64_t>(p.heads_v);
  const std::uint64_t sequence = row * static_cast<std::uint64_t>(p.nodes);
  return {
      &nowhere, CANOPY_F32, 0, {0, static_cast<std::int64_t>(sequence), static_cast<std::int64_t>(row), p.dim_v, 1}};
}

Error check_plan(const Problem& p) {
  for (Error (*step)(const Problem&) : {check_batch, check_slots, check_trees}) {
    if (Error error = step(p); !error.ok()) return error;
  }
  return {};
}

Error check(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (Error error = check_problem(p, 1, {.q = true, .v = true, .gates_needed = true}, false); !error.ok()) return error;
  if (params.precision < CANOPY_PRECISION_DEFAULT || params.precision > CANOPY_PRECISION_FAST) {
    return Error::invalid(
        text("precision = ", params.precision, ": expected 0 (default) to 4 (fast), a canopy_precision"));
  }
  if (params.max_depth < 0) {
    return Error::invalid(
        text("max_depth = ", params.max_depth, ": expected the depth of the deepest node, or 0 if unknown"));
  }
  const TensorRule o{"o", "[B,T,HV,V]", {p.batch, p.nodes, p.heads_v, p.dim_v}, 4, kFloats, true};
  if (Error error = need(params.o, o, 1, p.batch > 0); !error.ok()) return error;
  if (Error error = check_stash(p, params.stash_u, params.stash_l, 1, true); !error.ok()) return error;
  return p.device == CANOPY_CPU && !params.row_status ? check_rows(p) : Error{};
}

Error check(const CommitParams& params) {
  const Problem& p = params.problem;
  if (Error error = check_dims(p); !error.ok()) return error;  // first: another ABI may place what follows elsewhere
  if (params.method < CANOPY_COMMIT_RESOLVE || params.method > CANOPY_COMMIT_REPLAY) {
    return Error::invalid(text("method = ", params.method, ": expected 0 (resolve), 1 (stash) or 2 (replay)"));
  }
  if (params.layers < 1) return Error::invalid(text("layers = ", params.layers, ": expected 1 or more"));
  const bool stash = params.method == CANOPY_COMMIT_STASH;
  const Reads reads{.q = false, .v = !stash, .gates_needed = !stash};
  if (Error error = check_problem(p, params.layers, reads, true); !error.ok()) return error;
  if (stash) {
    if (p.batch > 0 && !params.stash_u.data) {
      return missing("stash_u", "[L,B,T,HV,V] f32",
                     " with method stash; let verify write U and l, or use method resolve");
    }
    if (Error error = check_stash(p, params.stash_u, params.stash_l, params.layers, false); !error.ok()) return error;
  }
  if (!params.leaf && p.batch > 0) return missing("leaf", "[B] int32", ", the accepted node of each sequence");
  if (!params.track_leaf != !params.track_slot) {
    return missing(params.track_leaf ? "track_slot" : "track_leaf", "[B]", ": the two come together");
  }
  return p.device == CANOPY_CPU && !params.row_status ? check_rows(params) : Error{};
}

}  // namespace canopy
