// Problems on a CUDA device: memory, copies, and one run of an implementation. In a build without CUDA every call says
// so and does nothing.
#pragma once

#include <string>
#include <utility>

#include "host/host_problem.hpp"

namespace canopy::host {

// "" when this build and this machine can run CUDA kernels, else why not.
std::string device_missing();

// Bytes of device memory, owned. Empty in a build without CUDA and when the device has not enough.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Error fill(unsigned char byte) { return fill(byte, bytes_, 0); }
  Error fill(unsigned char byte, std::size_t bytes, std::size_t offset);
  Error upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  Error download(void* to, std::size_t bytes, std::size_t offset = 0) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Waits for the device; what went wrong on it since the last call.
Error device_synchronize();

// Every tensor of a host problem on the device.
class DeviceProblem {
 public:
  static Result<DeviceProblem> make(HostProblem& problem);
  // The host problem's view with device pointers; `device` is CANOPY_CUDA.
  const Problem& view() const { return view_; }
  DeviceMemory& tensor(const std::string& name) { return tensors_.at(name); }
  const DeviceMemory& tensor(const std::string& name) const { return tensors_.at(name); }
  // Copies one tensor of the host problem again.
  Error upload(const std::string& name, const HostTensor& from) {
    return tensors_.at(name).upload(from.bytes.data(), from.bytes.size());
  }

 private:
  std::map<std::string, DeviceMemory> tensors_;
  Problem view_{};
};

// One implementation on copies of a problem, ready to run again and again. Outputs and workspace start as 0xff bytes.
class VerifyOnDevice {
 public:
  static Result<VerifyOnDevice> make(HostProblem& problem, const VerifyImplementation& implementation,
                                     canopy_dtype output, bool stash,
                                     canopy_precision precision = CANOPY_PRECISION_DEFAULT);
  Result<double> run();  // the device's seconds of the call
  Result<VerifyRun> results() const;

 private:
  explicit VerifyOnDevice(DeviceProblem problem) : problem_(std::move(problem)) {}
  DeviceProblem problem_;
  const VerifyImplementation* implementation_ = nullptr;
  VerifyParams params_{};
  HostTensor shapes_[3];  // of o, U, l
  DeviceMemory outputs_[3], status_, workspace_;
};

// `params` has host pointers, every one of which is copied over.
class CommitOnDevice {
 public:
  static Result<CommitOnDevice> make(HostProblem& problem, const CommitParams& params,
                                     const CommitImplementation& implementation);
  Result<double> run();
  Result<HostTensor> state() const;  // the whole pool
  Result<std::vector<std::int32_t>> row_status() const;
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  explicit CommitOnDevice(DeviceProblem problem) : problem_(std::move(problem)) {}
  DeviceProblem problem_;
  const CommitImplementation* implementation_ = nullptr;
  CommitParams params_{};
  HostTensor pool_;  // its shape and type
  std::vector<DeviceMemory> copies_;
  DeviceMemory status_, workspace_;
};

// As run_verify, through copies on the device.
Result<VerifyRun> run_verify_on_device(HostProblem& problem, const VerifyImplementation& implementation,
                                       canopy_dtype output, bool stash);

}  // namespace canopy::host
