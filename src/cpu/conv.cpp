// The tree convolution on the CPU: pieces of a few channels of a sequence over OpenMP threads.
#include "conv_rows.hpp"
#include "cpu/kernels.hpp"
#include "element.hpp"
#include "host_entry.hpp"
#include "registry.hpp"

namespace canopy::cpu {
namespace {

int pieces_of(const ConvProblem& p) { return (p.channels + kConvChannels - 1) / kConvChannels; }

Error run_verify(const ConvVerifyParams& params, void*, void*) {
  const ConvProblem& p = params.problem;
  const Problem rows = rows_of(p);
  for (int b = 0; b < p.batch; ++b) {
    const std::int32_t flags = row_flags(rows, b);
    if (params.row_status) params.row_status[b] = flags;
    if (slot_of(rows, rows.slot_index, b) >= 0 && flags == CANOPY_ROW_BAD_TREE) write_nan(params, b, count_of(rows, b));
  }
  const std::int64_t pieces = std::int64_t{p.batch} * pieces_of(p);
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    ConvRow row;
    row.b = static_cast<int>(piece / pieces_of(p));
    row.first = static_cast<int>(piece % pieces_of(p)) * kConvChannels;
    row.channels = p.channels - row.first < kConvChannels ? p.channels - row.first : kConvChannels;
    row.slot = slot_of(rows, rows.slot_index, row.b);
    if (row.slot < 0 || row_flags(rows, row.b)) continue;
    row.nodes = count_of(rows, row.b);
    std::int32_t parents[CANOPY_MAX_NODES];
    std::int16_t sources[CANOPY_MAX_NODES][kConvTaps];
    row_parents(rows, row.b, parents);
    for (int node = 0; node < row.nodes; ++node)
      for (int j = 0; j < p.width; ++j)
        sources[node][j] = static_cast<std::int16_t>(input_before(parents, node, p.width - 1 - j, p.width - 1));
    row.sources = sources;
    kernels().conv(params, row);
  }
  return {};
}

// Where each entry of a row's new window comes from, for the destination and the track slot.
struct Writes {
  std::int64_t source = -1, slot[2] = {-1, -1};  // negative: not written
  int from[2][kConvTaps - 1];
};

Writes writes_of(const CommitParams& rows, int width, int b) {
  const Problem& p = rows.problem;
  Writes out;
  out.source = slot_of(p, p.slot_index, b);
  if (out.source < 0 || row_flags(rows, b) || !leaf_live(p, rows.leaf, b)) return out;
  out.slot[0] = rows.dst_slot ? slot_of(p, rows.dst_slot, b) : out.source;
  if (leaf_live(p, rows.track_leaf, b)) out.slot[1] = slot_of(p, rows.track_slot, b);
  std::int32_t parents[CANOPY_MAX_NODES];
  row_parents(p, b, parents);
  for (int which = 0; which < 2; ++which) {
    if (out.slot[which] < 0) continue;
    const int leaf = which == 0 ? rows.leaf[b] : rows.track_leaf[b];
    for (int i = 0; i < width - 1; ++i) out.from[which][i] = input_before(parents, leaf, width - 2 - i, width - 1);
  }
  return out;
}

Error run_commit(const ConvCommitParams& params, void*, void*) {
  const ConvProblem& p = params.problem;
  const CommitParams rows = rows_of(params);
  for (int b = 0; params.row_status && b < p.batch; ++b) params.row_status[b] = row_flags(rows, b);
  const int window = p.width - 1, pieces_a_row = pieces_of(p);
  const std::int64_t a_sequence = std::int64_t{params.layers} * pieces_a_row, pieces = p.batch * a_sequence;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const int b = static_cast<int>(piece / a_sequence), layer = static_cast<int>(piece % a_sequence / pieces_a_row);
    const Writes row = writes_of(rows, p.width, b);
    const int first = static_cast<int>(piece % pieces_a_row) * kConvChannels;
    const std::int64_t x = layer * p.x.stride[0] + b * p.x.stride[1], pool = layer * p.state.stride[0];
    for (int c = first; c < p.channels && c < first + kConvChannels; ++c) {
      const std::int64_t channel = pool + c * p.state.stride[2];
      // All of a channel is read before any of it is written: a destination may be the source.
      float value[2][kConvTaps - 1];
      for (int which = 0; which < 2; ++which) {
        for (int i = 0; row.slot[which] >= 0 && i < window; ++i) {
          const int from = row.from[which][i];
          value[which][i] = from >= 0
                                ? load_element(p.x.dtype, p.x.data, x + from * p.x.stride[2] + c)
                                : load_element(p.state.dtype, p.state.data,
                                               channel + row.source * p.state.stride[1] + ~from * p.state.stride[3]);
        }
      }
      for (int which = 0; which < 2; ++which)
        for (int i = 0; row.slot[which] >= 0 && i < window; ++i)
          store_element(p.state.dtype, p.state.data,
                        channel + row.slot[which] * p.state.stride[1] + i * p.state.stride[3], value[which][i]);
    }
  }
  return {};
}

constexpr ConvVerifyImplementation kVerify[] = {
    {"cpu_conv", "all nodes of a few channels at a time, vectorised", CANOPY_CPU, 1e-6, 1e-6, nothing_missing,
     refuses_device<ConvVerifyParams>, no_workspace<ConvVerifyParams>, run_verify},
};
constexpr ConvCommitImplementation kCommit[] = {
    {"cpu_conv_commit", "the last inputs of the accepted path gathered into the pool", CANOPY_CPU, 0, 0,
     nothing_missing, refuses_device<ConvCommitParams>, no_workspace<ConvCommitParams>, run_commit},
};

}  // namespace
}  // namespace canopy::cpu

namespace canopy {

std::span<const ConvVerifyImplementation> cpu_conv_verify_implementations() { return cpu::kVerify; }
std::span<const ConvCommitImplementation> cpu_conv_commit_implementations() { return cpu::kCommit; }

}  // namespace canopy
