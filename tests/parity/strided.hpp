// Tensors spread over memory: gaps between heads, tokens, sequences and slots, slices of one buffer, mappings far
// larger than the machine's memory of which only the touched pages exist.
#pragma once

#include <sys/mman.h>

#include "parity/harness.hpp"

namespace canopy::parity {

// Address space of a size, zero until written.
class Mapping {
 public:
  explicit Mapping(std::int64_t bytes) : bytes_(std::size_t(bytes)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory_ = memory == MAP_FAILED ? nullptr : memory;
  }
  ~Mapping() {
    if (memory_) munmap(memory_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data() const { return memory_; }  // nullptr: refused by the system

 private:
  std::size_t bytes_;
  void* memory_;
};

using Strides = std::vector<std::int64_t>;

// visit(element of the contiguous tensor, element of the strided one)
template <class Visit>
void walk(const std::vector<std::int64_t>& shape, const Strides& strides, Visit visit) {
  std::vector<std::int64_t> at(shape.size(), 0);
  std::int64_t count = 1, far = 0;
  for (const std::int64_t extent : shape) count *= extent;
  for (std::int64_t near = 0; near < count; ++near) {
    visit(near, far);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      far += strides[axis];
      if (++at[axis] < shape[axis]) break;
      far -= at[axis] * strides[axis];
      at[axis] = 0;
    }
  }
}

inline std::int64_t elements_spanned(const std::vector<std::int64_t>& shape, const Strides& strides) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) last += (shape[axis] - 1) * strides[axis];
  return last + 1;
}

// A view of `data` with these strides, for a tensor whose axes start at stride[1].
inline canopy_tensor view_of(void* data, canopy_dtype dtype, const Strides& strides) {
  canopy_tensor view{};
  view.data = data, view.dtype = dtype;
  std::ranges::copy(strides, view.stride + 1);
  return view;
}

inline void scatter(const HostTensor& from, const canopy_tensor& to, const Strides& strides) {
  const std::size_t size = host::size_of(from.dtype);
  walk(from.shape, strides, [&](std::int64_t near, std::int64_t far) {
    std::memcpy(static_cast<char*>(to.data) + far * std::int64_t(size), &from.bytes[std::size_t(near) * size], size);
  });
}
inline HostTensor gather(const canopy_tensor& from, const std::vector<std::int64_t>& shape, const Strides& strides) {
  HostTensor to = HostTensor::make(canopy_dtype(from.dtype), shape);
  const std::size_t size = host::size_of(to.dtype);
  walk(shape, strides, [&](std::int64_t near, std::int64_t far) {
    std::memcpy(&to.bytes[std::size_t(near) * size], static_cast<char*>(from.data) + far * std::int64_t(size), size);
  });
  return to;
}

// A tensor in memory of its own that holds nothing but it and 0xff.
class Strided {
 public:
  Strided(const HostTensor& tensor, Strides strides) : shape_(tensor.shape), strides_(std::move(strides)) {
    memory_.assign(std::size_t(elements_spanned(shape_, strides_)) * host::size_of(tensor.dtype), std::byte{0xff});
    view_ = view_of(memory_.data(), tensor.dtype, strides_);
    scatter(tensor, view_, strides_);
  }
  canopy_tensor view() { return view_; }
  HostTensor gathered() const { return gather(view_, shape_, strides_); }
  // The bytes between the elements.
  bool gaps_untouched() const {
    std::vector<std::byte> gaps = memory_;
    const std::size_t size = host::size_of(canopy_dtype(view_.dtype));
    walk(shape_, strides_,
         [&](std::int64_t, std::int64_t far) { std::memset(gaps.data() + std::size_t(far) * size, 0xff, size); });
    return untouched(gaps);
  }

 private:
  std::vector<std::int64_t> shape_;
  Strides strides_;
  std::vector<std::byte> memory_;
  canopy_tensor view_;
};

}  // namespace canopy::parity
