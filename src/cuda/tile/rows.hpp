// Activations as the fused kernel addresses them: bytes, with the step from node to node in 32 bits so that a row's
// address is one instruction. Everything that spans sequences is 64-bit.
#pragma once

#include <cstdint>

#include "canopy/problem.hpp"
#include "host_device.hpp"

namespace canopy::cuda {

struct Rows {
  char* data;
  std::int64_t sequence, head;  // bytes from one to the next
  std::uint32_t node;
  std::int32_t dtype;

  CANOPY_HOST_DEVICE char* of(int b, int h) const { return data + b * sequence + h * head; }
};

// A tensor [HV].
struct PerHead {
  const char* data;
  std::int64_t step;  // bytes
};

inline std::int64_t element_size(const Tensor& tensor) { return tensor.dtype == CANOPY_F32 ? 4 : 2; }
inline bool fits_rows(const Tensor& tensor) { return tensor.stride[2] * element_size(tensor) <= 0xffffffffll; }
inline Rows rows_of(const Tensor& tensor) {
  const std::int64_t bytes = element_size(tensor);
  return {static_cast<char*>(tensor.data), tensor.stride[1] * bytes, tensor.stride[3] * bytes,
          static_cast<std::uint32_t>(tensor.stride[2] * bytes), tensor.dtype};
}

inline PerHead per_head(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.stride[1] * element_size(tensor)};
}

}  // namespace canopy::cuda
