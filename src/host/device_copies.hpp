// Copies of one planned problem, each with outputs of its own, in one block of device memory: what cold runs go round
// over.
#pragma once

#include "host/device.hpp"

namespace canopy::host {

class DeviceCopies {
 public:
  // The first copy is sent over and planned, the others are copied from it on the device.
  // `stash`: each has a u and an l too.
  static Result<DeviceCopies> make(HostProblem& problem, canopy_dtype output, int copies, bool stash = false);
  int size() const { return size_; }
  // Params of a copy, with its plan and its outputs; default precision.
  VerifyParams params(int copy) const;
  // Bytes of the first copy's plan.
  std::size_t plan_bytes() const { return plan_bytes_; }
  // The output of a copy: as NaN; its first bytes.
  Error spoil_output(int copy);
  Error read_output(int copy, void* to, std::size_t bytes) const;

 private:
  std::size_t output_of(int copy) const { return stride_ * static_cast<std::size_t>(copy) + output_at_; }

  DeviceMemory memory_;
  VerifyParams first_{};  // of copy 0; of copy i all pointers lie i * stride_ bytes further
  std::size_t stride_ = 0, plan_bytes_ = 0, output_at_ = 0, output_bytes_ = 0;
  int size_ = 0;
};

}  // namespace canopy::host
