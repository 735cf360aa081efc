// The tree convolution (E9) of a few channels of one sequence. The sum is one fused multiply-add a tap, oldest first:
// the same bits in every instruction set.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/tile.hpp"

namespace canopy::cpu::CANOPY_ISA {

// y / (1 + exp(-y))
CANOPY_INLINE Vec silu(Vec y) { return y / (1.0f + exp(-y)); }

// Rows of constants and of the committed window in fp32, zeros behind the last channel.
struct ConvColumns {
  alignas(64) float weight[kConvTaps][kConvChannels];
  alignas(64) float window[kConvTaps - 1][kConvChannels];
  alignas(64) float start[kConvChannels];  // the bias, or 0
};

inline void load_columns(const ConvVerifyParams& params, const ConvRow& row, ConvColumns& columns) {
  const ConvProblem& p = params.problem;
  const auto fill = [&](const canopy_tensor& from, std::int64_t first, std::int64_t stride, float* out) {
    const char* start = at(from, first);
    for (int i = 0; i < row.channels; ++i) out[i] = load_scalar(from.dtype, start, i * stride);
    for (int i = row.channels; i < kConvChannels; ++i) out[i] = 0;
  };
  const std::int64_t c = row.first;
  for (int j = 0; j < p.width; ++j)
    fill(params.weight, c * params.weight.stride[1] + j * params.weight.stride[2], params.weight.stride[1],
         columns.weight[j]);
  for (int j = 0; j + 1 < p.width; ++j)
    fill(p.state, row.slot * p.state.stride[1] + c * p.state.stride[2] + j * p.state.stride[3], p.state.stride[2],
         columns.window[j]);
  if (params.bias.data) {
    fill(params.bias, c * params.bias.stride[1], params.bias.stride[1], columns.start);
  } else {
    for (float& x : columns.start) x = 0;
  }
}

template <int Dtype>
CANOPY_INLINE Vec load_some(const char* p, int i, int n) {
  if (i + W <= n) return load_as<Dtype>(p, i);
  alignas(64) char bounce[4 * W] = {};
  std::memcpy(bounce, p + i * element_bytes(Dtype), static_cast<std::size_t>((n - i) * element_bytes(Dtype)));
  return load_as<Dtype>(bounce, 0);
}
template <int Dtype>
CANOPY_INLINE void store_some(char* p, int i, int n, Vec x) {
  if (i + W <= n) return store_as<Dtype>(p, i, x);
  alignas(64) char bounce[4 * W];
  store_as<Dtype>(bounce, 0, x);
  std::memcpy(p + i * element_bytes(Dtype), bounce, static_cast<std::size_t>((n - i) * element_bytes(Dtype)));
}

template <int Input, int Output>
void conv_nodes(const ConvVerifyParams& params, const ConvRow& row, const ConvColumns& columns) {
  const ConvProblem& p = params.problem;
  const int width = p.width;
  for (int node = 0; node < row.nodes; ++node) {
    const char* taps[kConvTaps];
    bool committed[kConvTaps];
    for (int j = 0; j < width; ++j) {
      const int from = row.sources[node][j];
      committed[j] = from < 0;
      taps[j] = from < 0 ? reinterpret_cast<const char*>(columns.window[~from])
                         : at(p.x, row.b * p.x.stride[1] + from * p.x.stride[2] + row.first);
    }
    char* out = at_out(params.o, row.b * params.o.stride[1] + node * params.o.stride[2] + row.first);
    for (int i = 0; i < row.channels; i += W) {
      Vec y = load(columns.start + i);
      for (int j = 0; j < width; ++j) {
        const Vec x = committed[j] ? load(reinterpret_cast<const float*>(taps[j]) + i)
                                   : load_some<Input>(taps[j], i, row.channels);
        y = multiply_add(load(columns.weight[j] + i), x, y);
      }
      store_some<Output>(out, i, row.channels, params.silu ? silu(y) : y);
    }
  }
}

inline void conv(const ConvVerifyParams& params, const ConvRow& row) {
  ConvColumns columns;
  load_columns(params, row, columns);
  with_dtype(params.problem.x.dtype, [&](auto input) {
    if (params.o.dtype == CANOPY_F32) {
      conv_nodes<input(), CANOPY_F32>(params, row, columns);
    } else {
      conv_nodes<input(), input()>(params, row, columns);
    }
  });
}

}  // namespace canopy::cpu::CANOPY_ISA
