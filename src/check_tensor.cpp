// One strided view against its documented shape: dtype, alignment, strides, and that 64-bit offsets reach its end.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "check.hpp"
#include "element.hpp"
#include "message.hpp"

namespace canopy {
namespace {

std::string accepted(unsigned dtypes) {
  std::string out;
  for (int d = 0; d < 5; ++d) {
    if (!(dtypes >> d & 1u)) continue;
    const bool last = (dtypes >> (d + 1)) == 0;
    if (!out.empty()) out += last ? " or " : ", ";
    out += dtype_name(d);
  }
  return out;
}

// Largest offset of a view, -1 if it does not fit 2^60 elements.
std::int64_t last_offset(const std::int64_t* extent, const std::int64_t* stride, int axes) {
  std::int64_t sum = 0;
  for (int i = 0; i < axes; ++i) {
    std::int64_t reach;
    if (__builtin_mul_overflow(extent[i] - 1, stride[i], &reach) || __builtin_add_overflow(sum, reach, &sum)) return -1;
  }
  return sum >> 60 ? -1 : sum;
}

}  // namespace

Error check_tensor(const Tensor& tensor, const TensorRule& rule, int layers) {
  const std::string_view name = rule.name;
  if (tensor.dtype < 0 || tensor.dtype > CANOPY_I64 || !(rule.dtypes >> tensor.dtype & 1u)) {
    return Error::invalid(text(name, ".dtype = ", dtype_name(tensor.dtype), ": expected ", accepted(rule.dtypes),
                               " for ", rule.shape, "; convert it first"));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % element_bytes(tensor.dtype) != 0) {
    return Error::invalid(text(name, ".data: expected an address that is a multiple of its ",
                               element_bytes(tensor.dtype),
                               "-byte elements, got one that is not; check the pointer arithmetic"));
  }
  // Axes with their strides, the layer axis first when there is one.
  std::int64_t extent[5], stride[5];
  int axes = 0;
  if (layers > 1) {
    if (tensor.stride[0] <= 0) {
      return Error::invalid(text(name, ".stride[0] = ", tensor.stride[0],
                                 ": expected the elements from one layer to the next, 1 "
                                 "or more, because layers = ",
                                 layers));
    }
    extent[axes] = layers, stride[axes++] = tensor.stride[0];
  }
  bool spread = false;
  std::int64_t elements = 1;
  for (int i = 0; i < rule.count; ++i) {
    const std::int64_t step = tensor.stride[i + 1];
    if (step < 0) {
      return Error::invalid(text(name, ".stride[", i + 1, "] = ", step, ": expected 0 or more elements for ",
                                 rule.shape, "; make the tensor contiguous"));
    }
    if (rule.extent[i] == 0) return {};  // no elements: strides mean nothing
    extent[axes] = rule.extent[i], stride[axes++] = step;
    spread |= step != 0;
    elements = rule.extent[i] > 1 ? 2 : elements;
  }
  if (rule.count == 4 && tensor.stride[4] != 1) {
    return Error::invalid(text(name, ".stride[4] = ", tensor.stride[4], ": expected 1 (the last axis of ", rule.shape,
                               " is contiguous); make the last axis contiguous or fill in the strides, in elements"));
  }
  if (!spread && elements > 1) {
    return Error::invalid(text(name, ".stride = 0 on every axis of ", rule.shape,
                               ": expected strides in elements, axis i in "
                               "stride[i + 1]; fill them in"));
  }
  if (last_offset(extent, stride, axes) < 0) {
    return Error::invalid(text(name, ".stride: the last element of ", rule.shape,
                               " lies past 2^60 elements; expected strides in "
                               "elements that the memory can hold"));
  }
  if (!rule.written) return {};
  // Sorted by stride, each axis must step over all that the finer ones span: no two elements share an address.
  int order[5] = {0, 1, 2, 3, 4};
  std::sort(order, order + axes, [&](int x, int y) { return stride[x] < stride[y]; });
  std::int64_t span = 1;
  for (int i = 0; i < axes; ++i) {
    const int axis = order[i];
    if (extent[axis] == 1) continue;
    if (stride[axis] < span) {
      return Error::invalid(text(name, ".stride[", layers > 1 ? axis : axis + 1, "] = ", stride[axis],
                                 ": the elements of ", rule.shape,
                                 " overlap in memory and it is written; expected at least ", span,
                                 "; give it memory of its own, not an expanded view"));
    }
    span += (extent[axis] - 1) * stride[axis];
  }
  return {};
}

}  // namespace canopy
