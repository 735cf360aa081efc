// Moving data: rows of activations and tiles of the state, between their storage types and fp32 scratch; and the one
// matrix product that every kernel uses.
#pragma once

#include "canopy/problem.hpp"
#include "cpu/simd.hpp"

namespace canopy::cpu::CANOPY_ISA {

// Floats from one scratch row (a key, a query, a row of R, O or U) to the next. A constant, so that a register tile
// addresses its rows from one pointer; not a power of two, so that rows fall into different cache sets.
inline constexpr int kRow = 256 + 16;

inline std::int64_t element_bytes(int dtype) { return dtype == CANOPY_F32 ? 4 : 2; }
inline const char* at(const canopy_tensor& t, std::int64_t element) {
  return static_cast<const char*>(t.data) + element * element_bytes(t.dtype);
}
inline char* at_out(const canopy_tensor& t, std::int64_t element) {
  return static_cast<char*>(t.data) + element * element_bytes(t.dtype);
}

inline float load_scalar(int dtype, const void* p, std::int64_t i) {
  if (dtype == CANOPY_F32) return static_cast<const float*>(p)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(p)[i];
  if (dtype == CANOPY_F16) return half_to_float(bits);
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
template <int Dtype>
CANOPY_INLINE Vec load_as(const char* p, int i) {
  if constexpr (Dtype == CANOPY_F32) return load(reinterpret_cast<const float*>(p) + i);
  if constexpr (Dtype == CANOPY_BF16) return from_bf16(reinterpret_cast<const std::uint16_t*>(p) + i);
  if constexpr (Dtype == CANOPY_F16) return from_f16(reinterpret_cast<const std::uint16_t*>(p) + i);
}
template <int Dtype>
CANOPY_INLINE void store_as(char* p, int i, Vec x) {
  if constexpr (Dtype == CANOPY_F32) store(reinterpret_cast<float*>(p) + i, x);
  if constexpr (Dtype == CANOPY_BF16) to_bf16(reinterpret_cast<std::uint16_t*>(p) + i, x);
  if constexpr (Dtype == CANOPY_F16) to_f16(reinterpret_cast<std::uint16_t*>(p) + i, x);
}
// Calls f with the dtype as a constant.
template <class F>
CANOPY_INLINE void with_dtype(int dtype, F f) {
  if (dtype == CANOPY_F32) f(std::integral_constant<int, CANOPY_F32>{});
  else if (dtype == CANOPY_BF16) f(std::integral_constant<int, CANOPY_BF16>{});
  else f(std::integral_constant<int, CANOPY_F16>{});
}

// n contiguous elements (a multiple of 8) to or from fp32; a rest shorter than a vector goes through a bounce buffer.
inline void load_row(int dtype, const char* p, int n, float* out) {
  with_dtype(dtype, [&](auto type) {
    int i = 0;
    for (; i + W <= n; i += W) store(out + i, load_as<type()>(p, i));
    if (i < n) {
      alignas(64) char bounce[4 * W] = {};
      std::memcpy(bounce, p + i * element_bytes(type()), (n - i) * element_bytes(type()));
      alignas(64) float wide[W];
      store(wide, load_as<type()>(bounce, 0));
      std::memcpy(out + i, wide, (n - i) * sizeof(float));
    }
  });
}
inline void store_row(int dtype, char* p, int n, const float* in) {
  with_dtype(dtype, [&](auto type) {
    int i = 0;
    for (; i + W <= n; i += W) store_as<type()>(p, i, load(in + i));
    if (i < n) {
      alignas(64) float wide[W] = {};
      std::memcpy(wide, in + i, (n - i) * sizeof(float));
      alignas(64) char bounce[4 * W];
      store_as<type()>(bounce, 0, load(wide));
      std::memcpy(p + i * element_bytes(type()), bounce, (n - i) * element_bytes(type()));
    }
  });
}

inline float dot(const float* x, const float* y, int n) {
  Vec total{};
  int i = 0;
  for (; i + W <= n; i += W) total += load(x + i) * load(y + i);
  float rest = 0;
  for (; i < n; ++i) rest += x[i] * y[i];
  return sum(total) + rest;
}

// x (n values) times `scale`, first times rsqrt(sum x^2 + eps) if `l2norm`.
inline void normalise(float* x, int n, bool l2norm, float eps, float scale) {
  const float factor = l2norm ? scale / __builtin_sqrtf(dot(x, x, n) + eps) : scale;
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

// out[j][i] = in[i][j] for W rows of W columns; rows at and past `rows` read as zero.
CANOPY_INLINE void transpose_block(const float* in, std::int64_t in_row, int rows, float* out, std::int64_t out_row) {
  Vec r[W];
  if (rows >= W) {
    CANOPY_UNROLL
    for (int i = 0; i < W; ++i) r[i] = load(in + i * in_row);
  } else {
    for (int i = 0; i < W; ++i) r[i] = i < rows ? load(in + i * in_row) : Vec{};
  }
  transpose(r);
  CANOPY_UNROLL
  for (int i = 0; i < W; ++i) store(out + i * out_row, r[i]);
}

// Where head hv of a slot starts, in bytes.
inline char* state_head(const Problem& p, int layer, std::int64_t slot, int hv) {
  return at_out(p.state, layer * p.state.stride[0] + slot * p.state.stride[1] + hv * p.state.stride[2]);
}

// S[kk][j] = state(kk, column + j), a [K][NV] tile of fp32; columns past V are zero. The pool's rows are V (layout VK)
// or K (layout KV) apart.
inline void load_state_tile(const Problem& p, const char* head, int column, float* tile) {
  const int columns = p.dim_v - column < NV ? p.dim_v - column : NV;
  const std::int64_t row_bytes = p.state.stride[3] * element_bytes(p.state.dtype);
  if (p.state_layout == CANOPY_STATE_KV) {
    for (int kk = 0; kk < p.dim_k; ++kk) {
      float* row = tile + kk * NV;
      if (columns < NV) std::memset(row, 0, NV * sizeof(float));
      load_row(p.state.dtype, head + kk * row_bytes + column * element_bytes(p.state.dtype), columns, row);
    }
    return;
  }
  with_dtype(p.state.dtype, [&](auto type) {
    for (int n = 0; n < NR; ++n) {
      const int live = columns - n * W;
      const char* first = head + (column + n * W) * row_bytes;
      int kk = 0;
      for (; kk + W <= p.dim_k; kk += W) {
        Vec r[W];
        if (live >= W) {
          CANOPY_UNROLL
          for (int i = 0; i < W; ++i) r[i] = load_as<type()>(first + i * row_bytes, kk);
        } else {
          for (int i = 0; i < W; ++i) r[i] = i < live ? load_as<type()>(first + i * row_bytes, kk) : Vec{};
        }
        transpose(r);
        CANOPY_UNROLL
        for (int i = 0; i < W; ++i) store(tile + (kk + i) * NV + n * W, r[i]);
      }
      for (; kk < p.dim_k; ++kk)
        for (int i = 0; i < W; ++i)
          tile[kk * NV + n * W + i] = i < live ? load_scalar(type(), first + i * row_bytes, kk) : 0.0f;
    }
  });
}

inline void store_state_tile(const Problem& p, char* head, int column, const float* tile) {
  const int columns = p.dim_v - column < NV ? p.dim_v - column : NV;
  const std::int64_t row_bytes = p.state.stride[3] * element_bytes(p.state.dtype);
  if (p.state_layout == CANOPY_STATE_KV) {
    for (int kk = 0; kk < p.dim_k; ++kk)
      store_row(p.state.dtype, head + kk * row_bytes + column * element_bytes(p.state.dtype), columns, tile + kk * NV);
    return;
  }
  with_dtype(p.state.dtype, [&](auto type) {
    for (int n = 0; n < NR; ++n) {
      const int live = columns - n * W;
      char* first = head + (column + n * W) * row_bytes;
      int kk = 0;
      for (; kk + W <= p.dim_k && live >= W; kk += W) {
        Vec r[W];
        CANOPY_UNROLL
        for (int i = 0; i < W; ++i) r[i] = load(tile + (kk + i) * NV + n * W);
        transpose(r);
        CANOPY_UNROLL
        for (int i = 0; i < W; ++i) store_as<type()>(first + i * row_bytes, kk, r[i]);
      }
      float rest[256];
      for (int i = 0; i < live && i < W && kk < p.dim_k; ++i) {
        for (int j = kk; j < p.dim_k; ++j) rest[j] = tile[j * NV + n * W + i];
        store_row(type(), first + i * row_bytes + kk * element_bytes(type()), p.dim_k - kk, rest + kk);
      }
    }
  });
}

// c[m][n] = sum over k of a[m][k] b[k][n], one register tile of M rows (kRow apart) and N vectors. Every element sums
// over k in order, whatever M and N: a row's result does not depend on the rows it is computed with.
template <int M, int N>
CANOPY_INLINE void product_tile(const float* a, const float* b, std::int64_t b_row, int depth, float* c, std::int64_t c_row) {
  Vec acc[M][N] = {};
  for (int k = 0; k < depth; ++k) {
    Vec right[N];
    CANOPY_UNROLL
    for (int n = 0; n < N; ++n) right[n] = load(b + k * b_row + n * W);
    CANOPY_UNROLL
    for (int m = 0; m < M; ++m) {
      const Vec left = splat(a[m * kRow + k]);
      CANOPY_UNROLL
      for (int n = 0; n < N; ++n) acc[m][n] += left * right[n];
    }
  }
  CANOPY_UNROLL
  for (int m = 0; m < M; ++m) {
    CANOPY_UNROLL
    for (int n = 0; n < N; ++n) store(c + m * c_row + n * W, acc[m][n]);
  }
}

template <int M, int N>
__attribute__((noinline)) void product_rows(const float* a, const float* b, std::int64_t b_row, int depth, float* c,
                                            std::int64_t c_row) {
  product_tile<M, N>(a, b, b_row, depth, c, c_row);
}

template <int N>
inline void product_columns(const float* a, int rows, const float* b, std::int64_t b_row, int depth, float* c,
                            std::int64_t c_row) {
  int m = 0;
  for (; m + MR <= rows; m += MR) product_rows<MR, N>(a + m * kRow, b, b_row, depth, c + m * c_row, c_row);
  for (; m + 4 <= rows; m += 4) product_rows<4, N>(a + m * kRow, b, b_row, depth, c + m * c_row, c_row);
  for (; m + 2 <= rows; m += 2) product_rows<2, N>(a + m * kRow, b, b_row, depth, c + m * c_row, c_row);
  for (; m < rows; ++m) product_rows<1, N>(a + m * kRow, b, b_row, depth, c + m * c_row, c_row);
}

// The same for any number of rows and vectors.
inline void product(const float* a, int rows, const float* b, std::int64_t b_row, int vectors, int depth, float* c,
                    std::int64_t c_row) {
  int n = 0;
  for (; n + NR <= vectors; n += NR) product_columns<NR>(a, rows, b + n * W, b_row, depth, c + n * W, c_row);
  if (n < vectors) product_columns<1>(a, rows, b + n * W, b_row, depth, c + n * W, c_row);
}

// out = decay in + sum over j of gamma[j] key(j) u(j)^T, on one tile (E8); in and out may be equal.
template <class Key, class Pseudo>
inline void advance_state(const float* in, float* out, int dim_k, float decay, int length, const float* gamma, Key key,
                          Pseudo u) {
  constexpr int kRows = MR > 6 ? 8 : 4;  // rows of the state at a time; K is a multiple of 8
  for (int kk = 0; kk < dim_k; kk += kRows) {
    Vec state[kRows][NR];
    CANOPY_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) state[i][n] = decay * load(in + (kk + i) * NV + n * W);
    }
    for (int j = 0; j < length; ++j) {
      const float* k = key(j) + kk;
      Vec right[NR];
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) right[n] = gamma[j] * load(u(j) + n * W);
      CANOPY_UNROLL
      for (int i = 0; i < kRows; ++i) {
        CANOPY_UNROLL
        for (int n = 0; n < NR; ++n) state[i][n] += k[i] * right[n];
      }
    }
    CANOPY_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CANOPY_UNROLL
      for (int n = 0; n < NR; ++n) store(out + (kk + i) * NV + n * W, state[i][n]);
    }
  }
}

}  // namespace canopy::cpu::CANOPY_ISA
