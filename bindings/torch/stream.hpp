// The CUDA stream that PyTorch's caller is on, without linking PyTorch's CUDA library.
#pragma once

#include <torch/csrc/stable/accelerator.h>

#include <cstdint>
#include <optional>

#include "arguments.hpp"

namespace canopy_torch {

// While it lives, the device of the reader's tensors is current; stream() is the caller's stream there (NULL on the
// CPU).
class Place {
 public:
  explicit Place(const Reader& reader);
  void* stream() const { return stream_; }

 private:
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  void* stream_ = nullptr;
};

}  // namespace canopy_torch
