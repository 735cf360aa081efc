// The tree convolution on CUDA: registry entries and launches.
#include <algorithm>
#include <type_traits>

#include "cuda/conv.cuh"
#include "cuda/conv_commit.cuh"
#include "cuda/conv_usual.cuh"
#include "cuda/device.hpp"
#include "message.hpp"
#include "registry.hpp"

namespace canopy {
namespace cuda {
namespace {

Error launched(cudaError_t status, const char* kernel) {
  if (status == cudaSuccess) return {};
  return {CANOPY_INTERNAL, text(kernel, ": ", cudaGetErrorString(status))};
}

// Whether every row of [B,T,C] starts at a multiple of `bytes`.
bool aligned_rows(const Tensor& tensor, int bytes) {
  const std::int64_t element = tensor.dtype == CANOPY_F32 ? 4 : 2;
  return reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0 &&
         (tensor.stride[1] | tensor.stride[2]) * element % bytes == 0;
}

// Whether weights [C,W] or a bias [C] are 16-bit numbers of x's type without gaps.
bool packed(const Tensor& tensor, int width, const Tensor& x) {
  return tensor.data && tensor.dtype == x.dtype && x.dtype != CANOPY_F32 && tensor.stride[1] == width &&
         (width == 1 || tensor.stride[2] == 1) && reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
}

// Threads of a CTA. Few CTAs: a node for every 8 threads. Many: small CTAs, so that some compute while others wait for
// memory, but not so small that shared memory runs out before the threads do. Measured on an H200 at T = 8, 64 and 256.
int threads_of(const ConvProblem& p, int slabs) {
  const std::int64_t ctas = std::int64_t{slabs} * p.batch;
  const Tuning& tuning = tuning_of(this_architecture());
  const bool few = ctas <= 2 * multiprocessors();
  const int threads = few             ? (p.nodes * kConvLanes + 31) / 32 * 32
                      : p.nodes <= 64 ? tuning.conv_threads
                                      : tuning.conv_large_threads;
  return std::clamp(threads, kLeastConvThreads, kMostConvThreads);
}
// The same for conv_usual.cuh: the best of 32 to 256 on an H200 with cold caches, to 5%, at B = 1 to 16, T = 8 to 256.
int usual_threads(const ConvProblem& p, int slabs) {
  const int an_sm = static_cast<int>((std::int64_t{slabs} * p.batch + multiprocessors() - 1) / multiprocessors());
  int threads = an_sm <= 1 ? 256 : an_sm <= 2 ? 128 : an_sm <= 4 ? 64 : 32;
  if (p.nodes > 64 && threads < 128) threads = an_sm > 6 ? 128 : p.nodes > 128 ? 256 : 64;
  return std::min(threads, std::max(64, (p.nodes * kConvLanes + 31) / 32 * 32));
}

// Whether conv_usual.cuh takes it.
template <class Input>
bool usual(const ConvVerifyParams& params) {
  const ConvProblem& p = params.problem;
  return sizeof(Input) == 2 && p.state.dtype == p.x.dtype && params.o.dtype == p.x.dtype && aligned_rows(p.x, 16) &&
         aligned_rows(params.o, 16) && packed(params.weight, p.width, p.x) &&
         (!params.bias.data || packed(params.bias, 1, p.x)) && p.channels % kUsualConvChannels == 0;
}
template <class Input, int W>
Error launch_usual(const ConvVerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  const ConvProblem& p = params.problem;
  static_assert(usual_conv_bytes<W>(kNodes) <= 48 * 1024, "more than a block has without asking");
  const int slabs = p.channels / kUsualConvChannels, threads = usual_threads(p, slabs);
  const auto kernel = threads == 32 ? usual_conv_kernel<Input, W, 32> : usual_conv_kernel<Input, W, kMostConvThreads>;
  return launched(
      launch_dependently(kernel, dim3(slabs, p.batch), threads, usual_conv_bytes<W>(p.nodes), stream, params, plan),
      "convolution kernel");
}

template <class Input, int W, bool kMixed>
Error launch(const ConvVerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  using Shared = ConvShared<Input, W>;
  const ConvProblem& p = params.problem;
  constexpr std::size_t kOfNode = kConvBytes + sizeof(ConvTaps);
  static_assert(sizeof(Shared) + kOfNode * kNodes <= 48 * 1024, "more than a block has without asking");
  const int slabs = (p.channels + Shared::kChannels - 1) / Shared::kChannels;
  const int layout = (aligned_rows(p.x, 16) ? kConvWideX : 0) | (aligned_rows(params.o, 16) ? kConvWideO : 0) |
                     (packed(params.weight, W, p.x) ? kConvPackedWeight : 0) |
                     (packed(params.bias, 1, p.x) ? kConvPackedBias : 0);
  return launched(launch_dependently(conv_kernel<Input, W, kMixed>, dim3(slabs, p.batch), threads_of(p, slabs),
                                     sizeof(Shared) + kOfNode * p.nodes, stream, params, plan, layout),
                  "convolution kernel");
}

// Any type fits into fp32.
template <class Input, int W>
Error launch_mixed(const ConvVerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  if constexpr (!std::is_same_v<Input, float>) {
    if (usual<Input>(params)) return launch_usual<Input, W>(params, plan, stream);
    if (params.problem.state.dtype != params.problem.x.dtype) return launch<Input, W, true>(params, plan, stream);
  }
  return launch<Input, W, false>(params, plan, stream);
}

template <class Input>
Error launch_width(const ConvVerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  switch (params.problem.width) {
    case 2:
      return launch_mixed<Input, 2>(params, plan, stream);
    case 3:
      return launch_mixed<Input, 3>(params, plan, stream);
    default:
      return launch_mixed<Input, 4>(params, plan, stream);
  }
}

template <int W>
Error launch_commit_width(const ConvCommitParams& params, const DevicePlan* plan, cudaStream_t stream) {
  const ConvProblem& p = params.problem;
  const int slabs = (p.channels + kConvCommitChannels - 1) / kConvCommitChannels;
  // As many CTAs as the device holds, each with a few layers of its own.
  const std::int64_t held = std::int64_t{multiprocessors()} * 1024 / kConvCommitChannels;
  const std::int64_t fit = held / (std::int64_t{slabs} * p.batch);
  const int depth = static_cast<int>(std::clamp<std::int64_t>(fit, 1, params.layers));
  const auto kernel = params.track_leaf ? conv_commit_kernel<W, 2> : conv_commit_kernel<W, 1>;
  return launched(launch_dependently(kernel, dim3(slabs, p.batch, depth), kConvCommitChannels, 0, stream, params, plan),
                  "convolution commit kernel");
}

// The caller's plan, or one made in the workspace.
std::size_t own_plan_bytes(const ConvProblem& p) { return p.trees.plan ? 0 : cuda_plans_bytes(rows_of(p)); }

const DevicePlan* plan_of(const ConvProblem& p, void* workspace, cudaStream_t stream) {
  if (p.trees.plan) return static_cast<const DevicePlan*>(p.trees.plan);
  DevicePlan* const plans = static_cast<DevicePlan*>(workspace);
  launch_plan(rows_of(p), plans, stream);
  return plans;
}

std::string missing() { return cuda_verify_implementations().front().missing(); }

template <class Params>
std::string refuses(const Params& params) {
  if (params.problem.device != CANOPY_CUDA)
    return "problem.device = 0 (cpu): expected 1, with pointers to device memory; or use an implementation of the CPU";
  if (params.problem.batch > 65535)
    return text("batch = ", params.problem.batch, ": expected at most 65535; split the call");
  return {};
}
template <class Params>
std::size_t workspace(const Params& params) {
  return own_plan_bytes(params.problem);
}

Error run_verify(const ConvVerifyParams& params, void* memory, void* stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const DevicePlan* const plan = plan_of(params.problem, memory, on);
  switch (params.problem.x.dtype) {
    case CANOPY_F32:
      return launch_width<float>(params, plan, on);
    case CANOPY_BF16:
      return launch_width<__nv_bfloat16>(params, plan, on);
    default:
      return launch_width<__half>(params, plan, on);
  }
}
Error run_commit(const ConvCommitParams& params, void* memory, void* stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const DevicePlan* const plan = plan_of(params.problem, memory, on);
  switch (params.problem.width) {
    case 2:
      return launch_commit_width<2>(params, plan, on);
    case 3:
      return launch_commit_width<3>(params, plan, on);
    default:
      return launch_commit_width<4>(params, plan, on);
  }
}

// SiLU by the fast exponential and division; before it the bits are those of the reference.
constexpr ConvVerifyImplementation kVerify[] = {
    {"cuda_conv", "all nodes in one launch, each input read once", CANOPY_CUDA, 1e-6, 1e-6, missing,
     refuses<ConvVerifyParams>, workspace<ConvVerifyParams>, run_verify},
};
constexpr ConvCommitImplementation kCommit[] = {
    {"cuda_conv_commit", "the last inputs of the accepted paths into the pools of all layers in one launch",
     CANOPY_CUDA, 0, 0, missing, refuses<ConvCommitParams>, workspace<ConvCommitParams>, run_commit},
};

}  // namespace
}  // namespace cuda

std::span<const ConvVerifyImplementation> cuda_conv_verify_implementations() { return cuda::kVerify; }
std::span<const ConvCommitImplementation> cuda_conv_commit_implementations() { return cuda::kCommit; }

}  // namespace canopy
