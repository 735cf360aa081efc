// Tensors that own their memory, and the view of a host problem that the library takes.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "element.hpp"
#include "host/host_problem.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// An axis of an expected shape: a letter and its extent, -1 while it is not known (the tensor then sets it).
struct Axis {
  const char* letter;
  std::int64_t* extent;
};

Error match(const HostProblem& problem, const char* name, std::initializer_list<Axis> axes) {
  const auto found = problem.tensors.find(name);
  if (found == problem.tensors.end()) return Error::invalid(text("tensor ", name, " is missing"));
  const auto& shape = found->second.shape;
  bool same = shape.size() == axes.size();
  std::string expected;
  std::size_t i = 0;
  for (const Axis& axis : axes) {
    if (same && *axis.extent >= 0 && *axis.extent != shape[i]) same = false;
    expected += (expected.empty() ? "[" : ", ") + std::string(axis.letter);
    if (*axis.extent >= 0) expected += text("=", *axis.extent);
    ++i;
  }
  if (!same)
    return Error::invalid(text("tensor ", name, " has shape ", shape_text(shape), ": expected ", expected, "]"));
  i = 0;
  for (const Axis& axis : axes) *axis.extent = shape[i++];
  return {};
}

Error expect_integers(const HostProblem& problem, const char* name, bool wide) {
  const int dtype = problem.tensors.at(name).dtype;
  if (dtype == CANOPY_I32 || (wide && dtype == CANOPY_I64)) return {};
  return Error::invalid(
      text("tensor ", name, " has dtype ", dtype_name(dtype), ": expected i32", wide ? " or i64" : ""));
}

// The depth that no tree exceeds, for the dispatcher. A malformed tree's does not matter: it is refused later.
int deepest(const Problem& p) {
  if (p.nodes < 1 || p.nodes > kMaxNodes) return 0;
  std::vector<int> depths(static_cast<std::size_t>(p.nodes));
  int most = 0;
  for (int b = 0; b < p.batch; ++b) {
    const std::int32_t* const parents = p.trees.parents + b * p.trees.row_stride;
    const int live = p.trees.count ? std::clamp(p.trees.count[b], 0, p.nodes) : p.nodes;
    for (int i = 0; i < live; ++i) {
      depths[i] = i > 0 && parents[i] >= 0 && parents[i] < i ? depths[parents[i]] + 1 : 0;
      most = std::max(most, depths[i]);
    }
  }
  return most;
}

}  // namespace

std::size_t size_of(canopy_dtype dtype) { return static_cast<std::size_t>(element_bytes(dtype)); }
float load(canopy_dtype dtype, const void* data, std::int64_t index) { return load_element(dtype, data, index); }
void load(canopy_dtype dtype, const void* data, std::int64_t first, std::int64_t count, float* to) {
  const auto all = [&](auto type) {  // known to the compiler, so that no number asks for it
    for (std::int64_t i = 0; i < count; ++i) to[i] = load_element(type, data, first + i);
  };
  if (dtype == CANOPY_F32) return all(std::integral_constant<int, CANOPY_F32>{});
  if (dtype == CANOPY_BF16) return all(std::integral_constant<int, CANOPY_BF16>{});
  all(std::integral_constant<int, CANOPY_F16>{});
}
void store(canopy_dtype dtype, void* data, std::int64_t index, float value) {
  store_element(dtype, data, index, value);
}

HostTensor HostTensor::make(canopy_dtype dtype, std::vector<std::int64_t> shape) {
  HostTensor tensor{dtype, std::move(shape), {}};
  tensor.bytes.resize(static_cast<std::size_t>(tensor.elements()) * size_of(dtype));
  return tensor;
}

std::int64_t HostTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

canopy_tensor HostTensor::view(bool leading_layer_axis) {
  canopy_tensor out{};
  out.data = bytes.empty() ? nullptr : bytes.data();
  out.dtype = dtype;
  out.stride[0] = elements();
  const int axes = static_cast<int>(shape.size()), first = leading_layer_axis ? 0 : 1;
  std::int64_t stride = 1;
  for (int i = axes - 1; i >= 0; --i) {
    if (first + i < 5) out.stride[first + i] = stride;
    stride *= shape[i];
  }
  return out;
}

Result<Problem> HostProblem::problem() {
  std::int64_t B = -1, T = -1, H = -1, HV = -1, K = -1, V = -1, pool = -1;
  const bool raw = has("a") || has("b") || has("A_log") || has("dt_bias");
  if (raw && (has("g") || has("beta"))) {
    return Error::invalid("tensors of both gate forms: expected either g and beta, or a, b, A_log and dt_bias");
  }
  struct Expected {
    const char* name;
    std::initializer_list<Axis> axes;
  };
  const auto all_match = [&](std::initializer_list<Expected> list) {
    for (const Expected& expected : list) {
      if (Error error = match(*this, expected.name, expected.axes); !error.ok()) return error;
    }
    return Error{};
  };
  const Axis b{"B", &B}, t{"T", &T}, h{"H", &H}, hv{"HV", &HV}, k{"K", &K}, v{"V", &V};
  if (Error e = all_match({{"q", {b, t, h, k}}, {"k", {b, t, h, k}}, {"v", {b, t, hv, v}}}); !e.ok()) return e;
  Error gates = raw ? all_match({{"a", {b, t, hv}}, {"b", {b, t, hv}}, {"A_log", {hv}}, {"dt_bias", {hv}}})
                    : all_match({{"g", {b, t, hv}}, {"beta", {b, t, hv}}});
  if (!gates.ok()) return gates;
  if (!has("slots")) pool = B;  // sequence b uses slot b
  const Axis n_or_b{has("slots") ? "slots" : "B", &pool};
  Error state = layout == CANOPY_STATE_VK ? all_match({{"state", {n_or_b, hv, v, k}}})
                                          : all_match({{"state", {n_or_b, hv, k, v}}});
  if (!state.ok()) return state;
  if (Error e = all_match({{"parents", {b, t}}}); !e.ok()) return e;
  if (has("count")) {
    if (Error e = all_match({{"count", {b}}}); !e.ok()) return e;
    if (Error e = expect_integers(*this, "count", false); !e.ok()) return e;
  }
  if (has("slots")) {
    if (Error e = all_match({{"slots", {b}}}); !e.ok()) return e;
    if (Error e = expect_integers(*this, "slots", true); !e.ok()) return e;
  }
  if (Error e = expect_integers(*this, "parents", false); !e.ok()) return e;
  for (const std::int64_t extent : {B, T, H, HV, K, V}) {
    if (extent > INT32_MAX) return Error::invalid(text("an extent of ", extent, ": expected at most ", INT32_MAX));
  }

  Problem out = verify_params().problem;
  out.device = CANOPY_CPU;
  out.batch = static_cast<int>(B), out.nodes = static_cast<int>(T);
  out.heads_k = static_cast<int>(H), out.heads_v = static_cast<int>(HV);
  out.dim_k = static_cast<int>(K), out.dim_v = static_cast<int>(V);
  const auto view = [&](const char* name) { return has(name) ? tensors.at(name).view() : canopy_tensor{}; };
  out.trees.parents = static_cast<const std::int32_t*>(view("parents").data);
  out.trees.row_stride = T;
  out.trees.count = static_cast<const std::int32_t*>(view("count").data);
  out.q = view("q"), out.k = view("k"), out.v = view("v");
  out.g = view("g"), out.beta = view("beta");
  out.a = view("a"), out.b = view("b"), out.a_log = view("A_log"), out.dt_bias = view("dt_bias");
  out.beta_doubled = beta_doubled, out.l2norm = l2norm, out.scale = scale;
  out.state = view("state");
  out.state_layout = layout;
  out.slots = pool;
  if (has("slots")) {
    out.slot_index = view("slots").data;
    out.slot_index_dtype = tensors.at("slots").dtype;
  }
  return out;
}

Result<VerifyParams> HostProblem::verify() {
  Result<Problem> view = problem();
  if (!view) return view.error();
  VerifyParams params = verify_params();
  params.problem = *view;
  params.max_depth = deepest(*view);
  return params;
}

}  // namespace canopy::host
