// The tree convolution: its calls, its registry, and the choice among it.
#include <limits>
#include <vector>

#include "call.hpp"
#include "conv_rows.hpp"
#include "element.hpp"
#include "registry.hpp"

namespace canopy {
namespace {

template <class T>
std::vector<T> joined(std::initializer_list<std::span<const T>> parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// One fast implementation a device, then the reference: the order of the registry decides, no table. Nobody asks why.
template <class Params>
Result<Choice<Params>> first_that_takes(const Params& params, std::span<const Implementation<Params>> all) {
  for (const auto& implementation : all) {
    if (implementation.device != params.problem.device) continue;  // its refusal would be an allocation a call
    if (dispatch::objection(implementation, params).empty()) return Choice<Params>{&implementation, {}};
  }
  std::string refused;
  for (const auto& implementation : all)
    refused += text("; ", implementation.name, ": ", dispatch::objection(implementation, params));
  return Error::unsupported(
      text("no implementation takes this convolution", refused, "; change what the reasons name"));
}

}  // namespace

Problem rows_of(const ConvProblem& p) {
  Problem rows{};
  rows.abi_version = p.abi_version, rows.device = p.device;
  rows.batch = p.batch, rows.nodes = p.nodes;
  rows.trees = p.trees;
  rows.slot_index_dtype = p.slot_index_dtype, rows.slots = p.slots;
  rows.slot_index = p.slot_index, rows.padding_slot = p.padding_slot;
  return rows;
}

CommitParams rows_of(const ConvCommitParams& params) {
  CommitParams rows{};
  rows.problem = rows_of(params.problem);
  rows.layers = params.layers;
  rows.leaf = params.leaf, rows.dst_slot = params.dst_slot;
  rows.track_leaf = params.track_leaf, rows.track_slot = params.track_slot;
  return rows;
}

void write_nan(const ConvVerifyParams& params, int b, int nodes) {
  const Tensor& o = params.o;
  for (int node = 0; node < nodes; ++node) {
    for (int c = 0; c < params.problem.channels; ++c) {
      const std::int64_t at = b * o.stride[1] + node * o.stride[2] + c;
      store_element(o.dtype, o.data, at, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

int input_before(const std::int32_t* parents, int node, int back, int window) {
  for (; back > 0; --back) {
    if (parents[node] < 0) return ~(window - back);
    node = parents[node];
  }
  return node;
}

std::span<const ConvVerifyImplementation> conv_verify_implementations() {
  static const auto all = joined<ConvVerifyImplementation>(
      {cpu_conv_verify_implementations(), cuda_conv_verify_implementations(), reference_conv_verify_implementations()});
  return all;
}
std::span<const ConvCommitImplementation> conv_commit_implementations() {
  static const auto all = joined<ConvCommitImplementation>(
      {cpu_conv_commit_implementations(), cuda_conv_commit_implementations(), reference_conv_commit_implementations()});
  return all;
}

Result<Choice<ConvVerifyParams>> dispatch::pick(const ConvVerifyParams& params, bool) {
  return first_that_takes(params, conv_verify_implementations());
}
Result<Choice<ConvCommitParams>> dispatch::pick(const ConvCommitParams& params, bool) {
  return first_that_takes(params, conv_commit_implementations());
}

Result<std::size_t> conv_verify_workspace(const ConvVerifyParams& params, std::string_view implementation) {
  return workspace_bytes(params, implementation, conv_verify_implementations());
}
Error conv_verify(const ConvVerifyParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
                  void* stream) {
  return call(params, implementation, conv_verify_implementations(), workspace, bytes, stream);
}
Error conv_verify(const ConvVerifyParams& params, std::string_view implementation) {
  return call_once(params, implementation, conv_verify_implementations());
}

Result<std::size_t> conv_commit_workspace(const ConvCommitParams& params, std::string_view implementation) {
  return workspace_bytes(params, implementation, conv_commit_implementations());
}
Error conv_commit(const ConvCommitParams& params, std::string_view implementation, void* workspace, std::size_t bytes,
                  void* stream) {
  return call(params, implementation, conv_commit_implementations(), workspace, bytes, stream);
}
Error conv_commit(const ConvCommitParams& params, std::string_view implementation) {
  return call_once(params, implementation, conv_commit_implementations());
}

}  // namespace canopy
