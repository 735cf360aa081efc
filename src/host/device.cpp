#include "host/device.hpp"

#include "message.hpp"
#include "registry.hpp"

#if CANOPY_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace canopy::host {

#if CANOPY_WITH_CUDA

namespace {

Error cuda_error(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return {};
  return {CANOPY_INTERNAL, text(what, ": ", cudaGetErrorName(status), ", ", cudaGetErrorString(status))};
}

// Time of a stream's work between two calls.
class Stopwatch {
 public:
  Stopwatch() { cudaEventCreate(&start_), cudaEventCreate(&stop_), cudaEventRecord(start_); }
  ~Stopwatch() { cudaEventDestroy(start_), cudaEventDestroy(stop_); }
  double seconds() {
    float milliseconds = 0;
    cudaEventRecord(stop_);
    cudaEventSynchronize(stop_);
    cudaEventElapsedTime(&milliseconds, start_, stop_);
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t start_, stop_;
};

}  // namespace

std::string device_missing() { return cuda_verify_implementations().front().missing(); }

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (cudaMalloc(&data_, bytes ? bytes : 64) != cudaSuccess) data_ = nullptr;
  cudaGetLastError();
}
DeviceMemory::~DeviceMemory() { cudaFree(data_); }

Error DeviceMemory::fill(unsigned char byte, std::size_t bytes, std::size_t offset) {
  return data_ ? cuda_error(cudaMemset(static_cast<char*>(data_) + offset, byte, bytes), "cudaMemset")
               : Error{CANOPY_INTERNAL, text("device memory: ", bytes_, " bytes are not to be had")};
}
Error DeviceMemory::upload(const void* from, std::size_t bytes, std::size_t offset) {
  if (!data_) return {CANOPY_INTERNAL, text("device memory: ", bytes_, " bytes are not to be had")};
  return cuda_error(cudaMemcpy(static_cast<char*>(data_) + offset, from, bytes, cudaMemcpyHostToDevice),
                    "copy to the device");
}
Error DeviceMemory::download(void* to, std::size_t bytes, std::size_t offset) const {
  return cuda_error(cudaMemcpy(to, static_cast<const char*>(data_) + offset, bytes, cudaMemcpyDeviceToHost),
                    "copy from the device");
}

Error device_synchronize() {
  if (Error error = cuda_error(cudaDeviceSynchronize(), "on the device"); !error.ok()) return error;
  return cuda_error(cudaGetLastError(), "launch");
}

#else

namespace {

Error no_cuda() {
  return Error::unsupported(
      "device = 1 (cuda): this build has no CUDA kernels; install nvcc 12.8 or newer and the "
      "CUTLASS headers and configure again, or use the CPU");
}

struct Stopwatch {
  double seconds() { return 0; }
};

}  // namespace

std::string device_missing() { return "this build has no CUDA kernels"; }
DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {}
DeviceMemory::~DeviceMemory() = default;
Error DeviceMemory::fill(unsigned char, std::size_t, std::size_t) { return no_cuda(); }
Error DeviceMemory::upload(const void*, std::size_t, std::size_t) { return no_cuda(); }
Error DeviceMemory::download(void*, std::size_t, std::size_t) const { return no_cuda(); }
Error device_synchronize() { return no_cuda(); }

#endif

Result<DeviceProblem> DeviceProblem::make(HostProblem& problem) {
  if (const std::string why = device_missing(); !why.empty())
    return Error::unsupported(text("device = 1 (cuda): ", why, "; use the CPU"));
  auto view = problem.problem();
  if (!view) return view.error();
  DeviceProblem out;
  out.view_ = *view;
  out.view_.device = CANOPY_CUDA;
  // A pointer into a host tensor becomes the same place of its copy.
  const auto moved = [&](const void* pointer) -> void* {
    for (const auto& [name, tensor] : problem.tensors) {
      const std::byte *begin = tensor.bytes.data(), *at = static_cast<const std::byte*>(pointer);
      if (pointer && at >= begin && at < begin + tensor.bytes.size())
        return static_cast<std::byte*>(out.tensors_.at(name).data()) + (at - begin);
    }
    return nullptr;
  };
  for (const auto& [name, tensor] : problem.tensors) {
    DeviceMemory memory(tensor.bytes.size());
    if (Error error = memory.upload(tensor.bytes.data(), tensor.bytes.size()); !error.ok()) return error;
    out.tensors_.emplace(name, std::move(memory));
  }
  Problem& p = out.view_;
  for (canopy_tensor* tensor : {&p.q, &p.k, &p.v, &p.g, &p.beta, &p.a, &p.b, &p.a_log, &p.dt_bias, &p.state})
    tensor->data = moved(tensor->data);
  for (const std::int32_t** pointer : {&p.trees.parents, &p.trees.next_token, &p.trees.next_sibling, &p.trees.count})
    *pointer = static_cast<const std::int32_t*>(moved(*pointer));
  p.trees.plan = nullptr;
  p.slot_index = moved(p.slot_index);
  return out;
}

namespace {

// Checks the call and gives it a poisoned workspace.
template <class Params>
Error make_ready(const Implementation<Params>& implementation, const Params& params, DeviceMemory& workspace) {
  if (Error error = check(params); !error.ok()) return error;
  if (const std::string why = implementation.refuses(params); !why.empty())
    return Error::unsupported(text(implementation.name, " refuses: ", why));
  workspace = DeviceMemory(implementation.workspace(params));
  return workspace.fill(0xff);
}

// The device's seconds of one call, its launches from the host included.
template <class Params>
Result<double> timed_call(const Implementation<Params>& implementation, const Params& params, DeviceMemory& workspace) {
  Stopwatch watch;
  if (Error error = implementation.run(params, workspace.data(), nullptr); !error.ok()) return error;
  const double seconds = watch.seconds();
  if (Error error = device_synchronize(); !error.ok()) return error;
  return seconds;
}

}  // namespace

Result<VerifyOnDevice> VerifyOnDevice::make(HostProblem& problem, const VerifyImplementation& implementation,
                                            canopy_dtype output, bool stash, canopy_precision precision) {
  auto device = DeviceProblem::make(problem);
  if (!device) return device.error();
  VerifyOnDevice on(std::move(*device));
  on.implementation_ = &implementation;
  VerifyParams& params = on.params_;
  params = verify_params();
  params.problem = on.problem_.view();
  params.precision = precision;
  const Problem& p = params.problem;
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  on.shapes_[0] = HostTensor::make(output, {B, T, HV, V});
  if (stash) {
    on.shapes_[1] = HostTensor::make(CANOPY_F32, {B, T, HV, V});
    on.shapes_[2] = HostTensor::make(CANOPY_F32, {B, T, HV});
  }
  canopy_tensor* views[] = {&params.o, &params.stash_u, &params.stash_l};
  for (int i = 0; i < (stash ? 3 : 1); ++i) {
    on.outputs_[i] = DeviceMemory(on.shapes_[i].bytes.size());
    if (Error error = on.outputs_[i].fill(0xff); !error.ok()) return error;
    *views[i] = on.shapes_[i].view();
    views[i]->data = on.outputs_[i].data();
  }
  on.status_ = DeviceMemory(B * sizeof(std::int32_t));
  params.row_status = static_cast<std::int32_t*>(on.status_.data());
  if (Error error = make_ready(implementation, params, on.workspace_); !error.ok()) return error;
  return on;
}

Result<double> VerifyOnDevice::run() {
  return timed_call(*implementation_, params_, workspace_);
}

Result<VerifyRun> VerifyOnDevice::results() const {
  VerifyRun run;
  run.o = shapes_[0], run.u = shapes_[1], run.l = shapes_[2];
  HostTensor* tensors[] = {&run.o, &run.u, &run.l};
  for (int i = 0; i < 3; ++i) {
    if (!outputs_[i].data()) continue;
    if (Error error = outputs_[i].download(tensors[i]->bytes.data(), tensors[i]->bytes.size()); !error.ok())
      return error;
  }
  run.row_status.resize(static_cast<std::size_t>(params_.problem.batch));
  if (Error error = status_.download(run.row_status.data(), run.row_status.size() * 4); !error.ok()) return error;
  run.workspace_bytes = workspace_.bytes();
  return run;
}

Result<VerifyRun> run_verify_on_device(HostProblem& problem, const VerifyImplementation& implementation,
                                       canopy_dtype output, bool stash) {
  auto on = VerifyOnDevice::make(problem, implementation, output, stash);
  if (!on) return on.error();
  const auto seconds = on->run();
  if (!seconds) return seconds.error();
  auto run = on->results();
  if (run) run->seconds = *seconds;
  return run;
}

Result<CommitOnDevice> CommitOnDevice::make(HostProblem& problem, const CommitParams& given,
                                            const CommitImplementation& implementation) {
  auto device = DeviceProblem::make(problem);
  if (!device) return device.error();
  CommitOnDevice on(std::move(*device));
  on.implementation_ = &implementation;
  on.pool_ = problem.tensors.at("state");
  CommitParams& params = on.params_;
  params = given;
  params.problem = on.problem_.view();
  const Problem& p = params.problem;
  const std::size_t B = static_cast<std::size_t>(p.batch), index = p.slot_index_dtype == CANOPY_I64 ? 8 : 4;
  const std::size_t rows = static_cast<std::size_t>(params.layers) * B * p.nodes * p.heads_v;
  Error failed;
  const auto moved = [&](const void* from, std::size_t bytes) -> void* {
    if (!from) return nullptr;
    on.copies_.emplace_back(bytes);
    if (Error error = on.copies_.back().upload(from, bytes); !error.ok()) failed = error;
    return on.copies_.back().data();
  };
  params.leaf = static_cast<const std::int32_t*>(moved(given.leaf, B * 4));
  params.track_leaf = static_cast<const std::int32_t*>(moved(given.track_leaf, B * 4));
  params.dst_slot = moved(given.dst_slot, B * index);
  params.track_slot = moved(given.track_slot, B * index);
  params.stash_u.data = moved(given.stash_u.data, rows * p.dim_v * 4);
  params.stash_l.data = moved(given.stash_l.data, rows * 4);
  if (!failed.ok()) return failed;
  on.status_ = DeviceMemory(B * 4);
  if (Error error = on.status_.fill(0xff); !error.ok()) return error;
  params.row_status = static_cast<std::int32_t*>(on.status_.data());
  if (Error error = make_ready(implementation, params, on.workspace_); !error.ok()) return error;
  return on;
}

Result<double> CommitOnDevice::run() {
  return timed_call(*implementation_, params_, workspace_);
}

Result<HostTensor> CommitOnDevice::state() const {
  HostTensor pool = pool_;
  if (Error error = problem_.tensor("state").download(pool.bytes.data(), pool.bytes.size()); !error.ok()) return error;
  return pool;
}

Result<std::vector<std::int32_t>> CommitOnDevice::row_status() const {
  std::vector<std::int32_t> flags(static_cast<std::size_t>(params_.problem.batch));
  if (Error error = status_.download(flags.data(), flags.size() * 4); !error.ok()) return error;
  return flags;
}

}  // namespace canopy::host
