#include "arguments.hpp"

#include <algorithm>
#include <cstring>

#include "canopy/canopy.h"

namespace canopy_torch {
namespace {

using torch::headeronly::ScalarType;

template <class Extents>
std::string list(const Extents& extents) {
  std::string out = "[";
  for (const int64_t extent : extents) out += (out.size() > 1 ? ", " : "") + std::to_string(extent);
  return out + "]";
}

int32_t dtype_of(const char* name, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return CANOPY_F32;
    case ScalarType::BFloat16:
      return CANOPY_BF16;
    case ScalarType::Half:
      return CANOPY_F16;
    case ScalarType::Int:
      return CANOPY_I32;
    case ScalarType::Long:
      return CANOPY_I64;
    default:
      fail(name, ".dtype = ", torch::headeronly::toString(tensor.scalar_type()),
           ": expected f32, bf16 or f16 (i32 or i64 for trees and slots); convert it first");
  }
}

std::string device_text(bool cuda, int32_t index) { return cuda ? canopy::text("cuda:", index) : "cpu"; }

void check_shape(const char* name, const Tensor& tensor, const char* axes, const int64_t* extent, std::size_t count,
                 int64_t layers) {
  const auto sizes = tensor.sizes();
  const std::size_t lead = layers > 0 ? 1 : 0;
  bool same = sizes.size() == count + lead && (lead == 0 || sizes[0] == layers);
  for (std::size_t i = 0; same && i < count; ++i) same = sizes[i + lead] == extent[i];
  if (same) return;
  std::string expected = list(std::vector<int64_t>(extent, extent + count)), names = axes;
  if (lead) {
    expected = canopy::text("[", layers, ", ", expected.substr(1));
    names = canopy::text("[L,", names.substr(1));
  }
  fail(name, ": expected shape ", names, " = ", expected, ", got ", list(sizes),
       "; reshape it, or check the tensors that the extents come from");
}

}  // namespace

int64_t plan_row_bytes(bool cuda) {
  const auto ask = [](int32_t device) {
    canopy_problem one{};
    one.device = device, one.batch = one.nodes = 1;
    return static_cast<int64_t>(canopy_plan_bytes(&one));
  };
  static const int64_t cpu_bytes = ask(CANOPY_CPU), cuda_bytes = ask(CANOPY_CUDA);
  return cuda ? cuda_bytes : cpu_bytes;
}

Reader::Reader(const char* name, const Tensor& model, int64_t layers)
    : model_(name), layers_(layers), cuda_(model.is_cuda()), index_(cuda_ ? model.get_device_index() : 0) {}

void Reader::same_device(const char* name, const Tensor& tensor) const {
  const bool cuda = tensor.is_cuda();
  const int32_t index = cuda ? tensor.get_device_index() : 0;
  if (cuda == cuda_ && index == index_) return;
  fail(name, ": expected a tensor on ", device_text(cuda_, index_), ", the device of ", model_, ", got one on ",
       device_text(cuda, index), "; move it with .to()");
}

canopy_tensor Reader::view(const char* name, const Tensor& tensor, const char* axes,
                           std::initializer_list<int64_t> extent) const {
  same_device(name, tensor);
  check_shape(name, tensor, axes, extent.begin(), extent.size(), layers_);
  canopy_tensor out{};
  out.data = tensor.data_ptr();
  out.dtype = dtype_of(name, tensor);
  const auto strides = tensor.strides();
  std::copy(strides.begin(), strides.end(), out.stride + (layers_ > 0 ? 0 : 1));
  // PyTorch leaves any stride on an axis of one element; the C ABI asks some tensors for 1 on their last.
  if (tensor.dim() > 0 && tensor.size(tensor.dim() - 1) == 1) out.stride[extent.size()] = 1;
  return out;
}

canopy_tensor Reader::view(const char* name, const Maybe& tensor, const char* axes,
                           std::initializer_list<int64_t> extent) const {
  return tensor ? view(name, *tensor, axes, extent) : canopy_tensor{};
}

const int32_t* Reader::ints(const char* name, const Maybe& tensor, const char* axes,
                            std::initializer_list<int64_t> extent) const {
  if (!tensor) return nullptr;
  same_device(name, *tensor);
  check_shape(name, *tensor, axes, extent.begin(), extent.size(), 0);
  if (tensor->scalar_type() != ScalarType::Int)
    fail(name, ".dtype = ", torch::headeronly::toString(tensor->scalar_type()), ": expected i32 for ", axes,
         "; convert it with .to(torch.int32)");
  const int64_t last = static_cast<int64_t>(extent.size()) - 1;
  if (tensor->size(last) > 1 && tensor->numel() > 0 && tensor->stride(last) != 1)
    fail(name, ": expected a last stride of 1 for ", axes, ", got ", tensor->stride(last), "; make it contiguous");
  return static_cast<const int32_t*>(tensor->data_ptr());
}

const void* Reader::slots(const char* name, const Maybe& tensor, int64_t batch, SlotDtype* dtype) const {
  if (!tensor) return nullptr;
  same_device(name, *tensor);
  check_shape(name, *tensor, "[B]", &batch, 1, 0);
  const ScalarType type = tensor->scalar_type();
  if (type != ScalarType::Int && type != ScalarType::Long)
    fail(name, ".dtype = ", torch::headeronly::toString(type), ": expected i32 or i64 for [B]; convert it with ",
         ".to(torch.int32)");
  const int32_t value = type == ScalarType::Int ? CANOPY_I32 : CANOPY_I64;
  if (dtype->of && value != dtype->value)
    fail(name, ".dtype: expected the dtype of ", dtype->of, "; convert one of them");
  if (!dtype->of) *dtype = {value, name};
  if (batch > 1 && tensor->stride(0) != 1)
    fail(name, ": expected a stride of 1 for [B], got ", tensor->stride(0), "; make it contiguous");
  return tensor->data_ptr();
}

void* Reader::bytes(const char* name, const Tensor& tensor, std::size_t* length) const {
  same_device(name, tensor);
  if (!tensor.is_contiguous()) fail(name, ": expected contiguous memory, got a strided view; pass the whole buffer");
  *length = static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
  return tensor.data_ptr();
}

void Reader::trees(canopy_trees& out, const TreeArguments& trees, int64_t batch, int64_t nodes) const {
  out.parents = ints("parents", trees.parents, "[B,T]", {batch, nodes});
  out.next_token = ints("next_token", trees.next_token, "[B,T]", {batch, nodes});
  out.next_sibling = ints("next_sibling", trees.next_sibling, "[B,T]", {batch, nodes});
  out.count = ints("count", trees.count, "[B]", {batch});
  out.row_stride = nodes;
  if (trees.parents) out.row_stride = trees.parents->stride(0);
  if (trees.next_token) out.row_stride = trees.next_token->stride(0);
  if (trees.next_token && trees.next_sibling && batch > 1 && trees.next_sibling->stride(0) != out.row_stride)
    fail("next_sibling: expected the row stride of next_token, ", out.row_stride, ", got ",
         trees.next_sibling->stride(0), "; make both contiguous");
  if (trees.plan) {
    const Tensor& plan = *trees.plan;
    std::size_t length = 0;
    out.plan = bytes("plan", plan, &length);
    // A plan has one size a sequence, whatever the tree: the row count tells a plan of another batch.
    if (plan.dim() != 2 || plan.size(0) != std::max<int64_t>(batch, 1))
      fail("plan: expected what plan() made of these ", batch, " trees, got shape ", list(plan.sizes()),
           "; call plan() again after the batch changed");
    const int64_t width = plan_row_bytes(cuda_);
    if (plan.scalar_type() != ScalarType::Byte || (width > 0 && plan.size(1) != width))
      fail("plan: expected what plan() made on this device, uint8 with ", width, " bytes a tree, got ",
           torch::headeronly::toString(plan.scalar_type()), " ", list(plan.sizes()), "; pass on what plan() returned");
  }
}

void Reader::gates(canopy_problem& out, const GateArguments& gates) const {
  const int64_t B = out.batch, T = out.nodes, HV = out.heads_v;
  out.g = view("g", gates.g, "[B,T,HV]", {B, T, HV});
  out.beta = view("beta", gates.beta, "[B,T,HV]", {B, T, HV});
  out.a = view("a", gates.a, "[B,T,HV]", {B, T, HV});
  out.b = view("b", gates.b, "[B,T,HV]", {B, T, HV});
  out.a_log = view("a_log", gates.a_log, "[HV]", {HV});
  out.dt_bias = view("dt_bias", gates.dt_bias, "[HV]", {HV});
  out.beta_doubled = gates.beta_doubled;
}

SlotDtype Reader::pool(canopy_problem& out, const PoolArguments& pool) const {
  const std::size_t axes = layers_ > 0 ? 5 : 4;
  const auto sizes = pool.state.sizes();
  out.state_layout = narrow("state_layout", pool.layout);
  const bool vk = out.state_layout == CANOPY_STATE_VK;
  out.slots = sizes.size() == axes ? sizes[axes - 4] : 0;
  out.state = view("state", pool.state, vk ? "[slots,HV,V,K]" : "[slots,HV,K,V]",
                   {out.slots, out.heads_v, vk ? out.dim_v : out.dim_k, vk ? out.dim_k : out.dim_v});
  SlotDtype dtype;
  out.slot_index = slots("slot_index", pool.slot_index, out.batch, &dtype);
  out.slot_index_dtype = dtype.value;
  out.padding_slot = pool.padding_slot;
  return dtype;
}

void norm(canopy_problem& out, const NormArguments& norm) {
  out.l2norm = norm.l2norm;
  out.l2norm_eps = static_cast<float>(norm.eps);
  out.scale = static_cast<float>(norm.scale);
}

int32_t narrow(const char* name, int64_t value) {
  if (value < INT32_MIN || value > INT32_MAX) fail(name, " = ", value, ": expected 32 bits; check where it comes from");
  return static_cast<int32_t>(value);
}

void check(canopy_status status, const canopy_error& error) {
  if (status != CANOPY_OK) fail(error.message);
}

}  // namespace canopy_torch
