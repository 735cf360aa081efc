// What every CPU kernel reads of a head before it starts: keys and queries as fp32 rows, gates along the root paths.
#pragma once

#include "canopy/plan.hpp"
#include "cpu/tile.hpp"
#include "gates.hpp"
#include "two_float.hpp"

namespace canopy::cpu::CANOPY_ISA {

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// Hands out 64-byte aligned pieces of a scratch block; with a null base it only counts.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <class T>
  T* take(std::size_t count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  std::size_t used() const { return used_; }

 private:
  char* base_;
  std::size_t used_ = 0;
};

// Log gate and beta of one node, from either form; the raw form in fp64, since exp(A_log) may leave the fp32 range.
inline void load_gate(const Problem& p, int layer, int b, int node, int hv, float& g, float& beta) {
  const auto element = [&](const canopy_tensor& t) {
    return load_scalar(t.dtype, t.data,
                       layer * t.stride[0] + b * t.stride[1] + node * t.stride[2] + hv * t.stride[3]);
  };
  if (p.g.data) {
    g = clamp_log_gate(element(p.g));
    beta = element(p.beta);
    return;
  }
  const auto of_head = [&](const canopy_tensor& t) {
    return load_scalar(t.dtype, t.data, layer * t.stride[0] + hv * t.stride[1]);
  };
  g = static_cast<float>(log_gate_from_raw<double>(of_head(p.a_log), double(element(p.a)) + of_head(p.dt_bias)));
  beta = static_cast<float>(beta_from_raw<double>(element(p.b), p.beta_doubled != 0));
}

// Key of a node: fp32, normalised on request.
inline void load_key(const Problem& p, int layer, int b, int node, int h, float* out) {
  const auto& s = p.k.stride;
  load_row(p.k.dtype, at(p.k, layer * s[0] + b * s[1] + node * s[2] + h * s[3]), p.dim_k, out);
  if (p.l2norm) normalise(out, p.dim_k, true, p.l2norm_eps, 1.0f);
}
// Query of a node: fp32, normalised on request, scaled.
inline void load_query(const Problem& p, int b, int node, int h, float* out) {
  const auto& s = p.q.stride;
  const float scale = p.scale != 0.0f ? p.scale : static_cast<float>(1.0 / __builtin_sqrt(double(p.dim_k)));
  load_row(p.q.dtype, at(p.q, b * s[1] + node * s[2] + h * s[3]), p.dim_k, out);
  normalise(out, p.dim_k, p.l2norm != 0, p.l2norm_eps, scale);
}
inline const char* value_row(const Problem& p, int layer, int b, int node, int hv) {
  const auto& s = p.v.stride;
  return at(p.v, layer * s[0] + b * s[1] + node * s[2] + hv * s[3]);
}

// One node's results: o, and the stash where the caller wants it.
inline void write_outputs(const VerifyParams& params, int b, int node, int hv, const float* o, const float* u, float l) {
  const auto row = [&](const canopy_tensor& t) {
    return b * t.stride[1] + node * t.stride[2] + hv * t.stride[3];
  };
  store_row(params.o.dtype, at_out(params.o, row(params.o)), params.problem.dim_v, o);
  if (params.stash_u.data)
    store_row(CANOPY_F32, at_out(params.stash_u, row(params.stash_u)), params.problem.dim_v, u);
  if (params.stash_l.data) static_cast<float*>(params.stash_l.data)[row(params.stash_l)] = l;
}

// Gates of a set of nodes in path order: l as two floats (E2), exp(l), beta.
struct GateRows {
  float* hi;     // [T]
  float* lo;     // [T]
  float* decay;  // [T] the log gate while reading, then exp(l)
  float* beta;   // [T]

  void take(Arena& arena, int rows) {
    rows = round_up(rows, W);
    hi = arena.take<float>(rows);
    lo = arena.take<float>(rows);
    decay = arena.take<float>(rows);
    beta = arena.take<float>(rows);
  }
  // l of row r from the log gate that stands in decay[r] and the row of its parent (-1: none).
  void extend(int r, int parent) const {
    const float g = decay[r];
    const TwoFloat<float> l = parent < 0 ? TwoFloat<float>{g, 0.0f} : add(TwoFloat<float>{hi[parent], lo[parent]}, g);
    hi[r] = l.hi;
    lo[r] = l.lo;
  }
  // decay of rows first .. end - 1 from the state of row `base` (-1: from S0).
  void finish(int first, int end, int base) const {
    const float base_hi = base < 0 ? 0.0f : hi[base], base_lo = base < 0 ? 0.0f : lo[base];
    for (int r = first; r < end; r += W) store(decay + r, exp((load(hi + r) - base_hi) + (load(lo + r) - base_lo)));
  }
};

}  // namespace canopy::cpu::CANOPY_ISA
