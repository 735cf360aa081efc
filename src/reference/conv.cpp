// The tree convolution (E9) as its serial definition: a window a node, the parent's with its oldest input dropped and
// the node's own put behind. fp32 with one rounding a tap, as every implementation; SiLU in fp64, rounded once.
#include <array>
#include <cmath>
#include <vector>

#include "conv_rows.hpp"
#include "element.hpp"
#include "host_entry.hpp"
#include "reference/rows.hpp"
#include "registry.hpp"

namespace canopy::reference {
namespace {

using Window = std::array<float, kConvTaps>;  // the first W-1 entries: inputs before some node, oldest first

Window committed(const ConvProblem& p, const Tensor& pool, std::int64_t slot, int channel) {
  Window window{};
  const std::int64_t at = slot * pool.stride[1] + channel * pool.stride[2];
  for (int i = 0; i < p.width - 1; ++i) window[i] = load_element(pool.dtype, pool.data, at + i * pool.stride[3]);
  return window;
}

// The window of a node's children. Entry W-1 of `window` is the node's own input.
Window shifted(Window window, int width) {
  for (int i = 0; i + 1 < width; ++i) window[i] = window[i + 1];
  return window;
}

float input(const Tensor& x, int b, int node, int channel) {
  return load_element(x.dtype, x.data, b * x.stride[1] + node * x.stride[2] + channel);
}

float convolve(const ConvVerifyParams& params, const Window& window, int channel) {
  const Tensor &w = params.weight, &bias = params.bias;
  float y = bias.data ? load_element(bias.dtype, bias.data, channel * bias.stride[1]) : 0.0f;
  for (int j = 0; j < params.problem.width; ++j)
    y = std::fma(load_element(w.dtype, w.data, channel * w.stride[1] + j * w.stride[2]), window[j], y);
  return params.silu ? static_cast<float>(y / (1 + std::exp(-double(y)))) : y;
}

// The convolution of one channel of one sequence, all nodes in order.
void verify_channel(const ConvVerifyParams& params, const std::vector<std::int32_t>& parents, int b, std::int64_t slot,
                    int channel) {
  const ConvProblem& p = params.problem;
  std::vector<Window> after(parents.size());  // what a node's children see
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const int node = static_cast<int>(i);
    Window window = i == 0 ? committed(p, p.state, slot, channel) : after[static_cast<std::size_t>(parents[i])];
    window[p.width - 1] = input(p.x, b, node, channel);
    after[i] = shifted(window, p.width);
    store_element(params.o.dtype, params.o.data, b * params.o.stride[1] + node * params.o.stride[2] + channel,
                  convolve(params, window, channel));
  }
}

std::vector<std::int32_t> live_parents(const Problem& rows, int b) {
  std::vector<std::int32_t> parents(static_cast<std::size_t>(count_of(rows, b)));
  row_parents(rows, b, parents.data());
  return parents;
}

Error run_verify(const ConvVerifyParams& params, void*, void*) {
  const Problem rows = rows_of(params.problem);
  for (int b = 0; b < rows.batch; ++b) {
    const std::int32_t flags = row_flags(rows, b);
    const std::int64_t slot = slot_of(rows, rows.slot_index, b);
    if (params.row_status) params.row_status[b] = flags;
    if (slot < 0) continue;
    if (flags == CANOPY_ROW_BAD_TREE) write_nan(params, b, count_of(rows, b));
    if (flags || count_of(rows, b) == 0) continue;
    const std::vector<std::int32_t> parents = live_parents(rows, b);
#pragma omp parallel for
    for (int c = 0; c < params.problem.channels; ++c) verify_channel(params, parents, b, slot, c);
  }
  return {};
}

// The committed window with the path's inputs put behind it, one after the other.
Window window_after(const ConvProblem& p, const Tensor& x, Window window, int b, const std::vector<int>& path,
                    int channel) {
  for (const int node : path) {
    window[p.width - 1] = input(x, b, node, channel);
    window = shifted(window, p.width);
  }
  return window;
}

Error run_commit(const ConvCommitParams& params, void*, void*) {
  const ConvProblem& p = params.problem;
  const CommitParams rows = rows_of(params);
  const auto path_to = [&](int b, int node) {
    const std::vector<std::int32_t> parents = live_parents(rows.problem, b);
    std::vector<int> path;
    for (; node >= 0; node = parents[static_cast<std::size_t>(node)]) path.insert(path.begin(), node);
    return path;
  };
  for (int b = 0; b < p.batch; ++b) {
    const std::int32_t flags = row_flags(rows, b);
    const std::int64_t source = slot_of(rows.problem, p.slot_index, b);
    if (params.row_status) params.row_status[b] = flags;
    if (flags || source < 0 || !leaf_live(rows.problem, params.leaf, b)) continue;
    const bool tracked = leaf_live(rows.problem, params.track_leaf, b);
    const struct {
      std::int64_t slot;
      std::vector<int> path;
    } writes[] = {
        {slot_of(rows.problem, params.dst_slot ? params.dst_slot : p.slot_index, b), path_to(b, params.leaf[b])},
        {tracked ? slot_of(rows.problem, params.track_slot, b) : -1,
         tracked ? path_to(b, params.track_leaf[b]) : std::vector<int>{}}};
    for (int layer = 0; layer < params.layers; ++layer) {
      const Tensor x = at_layer(p.x, layer), pool = at_layer(p.state, layer);
      for (int c = 0; c < p.channels; ++c) {
        const Window before = committed(p, pool, source, c);  // read once: a destination may be the source
        for (const auto& write : writes) {
          if (write.slot < 0) continue;
          const Window window = window_after(p, x, before, b, write.path, c);
          const std::int64_t at = write.slot * pool.stride[1] + c * pool.stride[2];
          for (int i = 0; i < p.width - 1; ++i)
            store_element(pool.dtype, pool.data, at + i * pool.stride[3], window[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  return {};
}

constexpr ConvVerifyImplementation kVerify[] = {
    {"reference_conv", "the serial definition of the tree convolution (E9), a window a node", CANOPY_CPU, 1e-6, 1e-6,
     nothing_missing, refuses_device<ConvVerifyParams>, no_workspace<ConvVerifyParams>, run_verify},
};
constexpr ConvCommitImplementation kCommit[] = {
    {"reference_conv_commit", "the window with the path's inputs put behind it one by one", CANOPY_CPU, 0, 0,
     nothing_missing, refuses_device<ConvCommitParams>, no_workspace<ConvCommitParams>, run_commit},
};

}  // namespace
}  // namespace canopy::reference

namespace canopy {

std::span<const ConvVerifyImplementation> reference_conv_verify_implementations() { return reference::kVerify; }
std::span<const ConvCommitImplementation> reference_conv_commit_implementations() { return reference::kCommit; }

}  // namespace canopy
