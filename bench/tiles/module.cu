// Modules loaded and launched, and what the library asks of a CUDA backend: here the plan alone.
#include <cstring>
#include <fstream>
#include <iterator>

#include "cuda/dependent.cuh"
#include "cuda/launch.hpp"
#include "cuda/plan.cuh"
#include "cuda/tile/arguments.hpp"
#include "message.hpp"
#include "module.hpp"
#include "registry.hpp"

namespace canopy {
namespace tiles {
namespace {

Error wrong(const std::string& path, const std::string& what) { return {CANOPY_INTERNAL, text(path, ": ", what)}; }

}  // namespace

Result<Variant> load_variant(const std::string& name, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  Variant variant;
  variant.name = name;
  const std::size_t at = image.find(std::string(variant.cta.magic, sizeof variant.cta.magic));
  if (at == std::string::npos || at + sizeof(CtaRecord) > image.size())
    return wrong(path, "expected a module of scripts/tune_tiles.py build");
  std::memcpy(&variant.cta, image.data() + at, sizeof variant.cta);
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  unsigned kernels = 0;
  cudaError_t status = cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (status == cudaSuccess) status = cudaLibraryGetKernelCount(&kernels, library);
  if (status == cudaSuccess && kernels != 1) return wrong(path, text("expected one kernel, got ", kernels));
  if (status == cudaSuccess) status = cudaLibraryEnumerateKernels(&kernel, 1, library);
  if (status == cudaSuccess)
    status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.cta.shared_bytes);
  if (status != cudaSuccess) return wrong(path, cudaGetErrorString(status));
  variant.kernel = kernel;
  return variant;
}

// As fused_workspace() has it for half.
std::size_t workspace_bytes(const Problem& p) {
  return p.nodes <= cuda::kPathRows
             ? 0
             : 2 * sizeof(std::uint16_t) * static_cast<std::size_t>(p.batch) * p.heads_v * p.dim_v * cuda::kNodes;
}

Error launch(const Variant& variant, const VerifyParams& params, void* workspace, void* stream) {
  const Problem& p = params.problem;
  cuda::FusedArguments arguments =
      cuda::fused_arguments(params, static_cast<const cuda::DevicePlan*>(p.trees.plan), workspace);
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(p.dim_v / variant.cta.columns, p.heads_v / variant.cta.heads, p.batch);
  launch.blockDim = dim3(variant.cta.threads);
  launch.dynamicSmemBytes = static_cast<std::size_t>(variant.cta.shared_bytes);
  launch.stream = static_cast<cudaStream_t>(stream);
  launch.attrs = &dependent;
  launch.numAttrs = cuda::launches_dependently();
  void* each[] = {&arguments};
  const cudaError_t status = cudaLaunchKernelExC(&launch, variant.kernel, each);
  if (status != cudaSuccess) return wrong(variant.name, cudaGetErrorString(status));
  return {};
}

}  // namespace tiles

namespace {

std::string missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  return status == cudaSuccess && devices > 0 ? "" : text("no GPU: ", cudaGetErrorString(status));
}
std::string refuses(const VerifyParams&) { return "the program that times tiles has no kernels but its variants"; }
std::size_t workspace(const VerifyParams&) { return 0; }
Error run(const VerifyParams& params, void*, void*) { return Error::unsupported(refuses(params)); }

constexpr VerifyImplementation kNone[] = {
    {"cuda_none", "stands for a device that is there", CANOPY_CUDA, 0, 0, missing, refuses, workspace, run}};

}  // namespace

std::span<const VerifyImplementation> cuda_verify_implementations() { return kNone; }
std::span<const CommitImplementation> cuda_commit_implementations() { return {}; }
std::span<const ConvVerifyImplementation> cuda_conv_verify_implementations() { return {}; }
std::span<const ConvCommitImplementation> cuda_conv_commit_implementations() { return {}; }

std::size_t cuda_plans_bytes(const Problem& problem) {
  return sizeof(cuda::DevicePlan) * static_cast<std::size_t>(problem.batch);
}
Error cuda_make_plans(const Problem& problem, void* plans, void* stream) {
  cuda::launch_plan(problem, static_cast<cuda::DevicePlan*>(plans), static_cast<cudaStream_t>(stream));
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? Error{} : Error{CANOPY_INTERNAL, text("plan kernel: ", cudaGetErrorString(status))};
}
bool cuda::launch_floor(const VerifyParams&, const DevicePlan*, cudaStream_t) { return false; }

}  // namespace canopy
