// The CUDA kernels as entries of the registry, and the batch's plans.
#include <cuda_runtime.h>

#include "cuda/launch.hpp"
#include "cuda/plan.cuh"
#include "message.hpp"
#include "registry.hpp"

namespace canopy {
namespace cuda {
namespace {

std::string look_for_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "no NVIDIA driver found";
    return text("the NVIDIA driver (for CUDA ", driver / 1000, ".", driver % 1000 / 10, ") is older than CUDA ",
                CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10,
                ", which this build needs; install a newer driver");
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && devices == 0)) return "no NVIDIA GPU found";
  if (status != cudaSuccess) return text("CUDA: ", cudaGetErrorString(status));
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  // The kernels need sm_80's cp.async and tensor cores; code for 9.0 runs on no other, PTX serves 12.0 and on.
  if (major < 8 || major == 10 || major == 11)
    return text("compute capability ", major, ".", minor, ": expected 8.x, 9.0, or 12.0 and newer (cmake/cuda.cmake)");
  return {};
}

std::string missing() {
  static const std::string why = look_for_device();
  return why;
}

std::string refuses_device(const Problem& problem) {
  if (problem.device == CANOPY_CUDA) return {};
  return "problem.device = 0 (cpu): expected 1, with pointers to device memory; or use an implementation of the CPU";
}

// ---- the plan ----------------------------------------------------------------------------------------------------
std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::size_t plan_bytes(const Problem& problem) {
  return sizeof(DevicePlan) * static_cast<std::size_t>(problem.batch > 0 ? problem.batch : 1);
}
std::size_t own_plan_bytes(const Problem& problem) { return problem.trees.plan ? 0 : plan_bytes(problem); }

// The caller's plan, or one made at the start of the workspace.
const DevicePlan* plan_of(const Problem& problem, void* workspace, cudaStream_t stream) {
  if (problem.trees.plan) return static_cast<const DevicePlan*>(problem.trees.plan);
  DevicePlan* const plans = static_cast<DevicePlan*>(workspace);
  launch_plan(problem, plans, stream);
  return plans;
}

// ---- entries -----------------------------------------------------------------------------------------------------
template <class Params, std::string (*kRefuses)(const Params&)>
std::string refuses(const Params& params) {
  if (std::string why = refuses_device(params.problem); !why.empty()) return why;
  return kRefuses(params);
}

std::size_t no_workspace(const VerifyParams&) { return 0; }
template <class Params, std::size_t (*kBytes)(const Params&)>
std::size_t workspace(const Params& params) {
  return own_plan_bytes(params.problem) + aligned(kBytes(params));
}

template <class Params, Error (*kLaunch)(const Params&, const DevicePlan*, void*, cudaStream_t)>
Error run(const Params& params, void* memory, void* stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  const DevicePlan* const plan = plan_of(params.problem, memory, on);
  return kLaunch(params, plan, static_cast<char*>(memory) + own_plan_bytes(params.problem), on);
}

template <int kMethod>
std::string refuses_commit(const CommitParams& params) {
  constexpr const char* names[] = {"resolve", "stash", "replay"};
  if (params.method != kMethod)
    return text("method = ", names[params.method], ": this implementation commits by ", names[kMethod],
                "; use cuda_commit_", names[params.method]);
  return refuses<CommitParams, commit_refuses>(params);
}

// docs/math.md, tolerances, of each one's default: one fp16 pass, two fp16 numbers an operand, or fp32.
constexpr double kHalf = 1e-3, kPrecise = 2e-5, kFp32 = 1e-5, kFp32Absolute = 1e-4;

constexpr VerifyImplementation kVerify[] = {
    {"cuda_fused", "path-compressed triangular solve in one launch, tensor cores", CANOPY_CUDA, kHalf, 2 * kHalf,
     missing, refuses<VerifyParams, fused_refuses>, workspace<VerifyParams, fused_workspace>,
     run<VerifyParams, launch_fused>},
    {"cuda_fused_pair", "the fused kernel with two value heads of a key head in a CTA", CANOPY_CUDA, kHalf, 2 * kHalf,
     missing, refuses<VerifyParams, pair_refuses>, workspace<VerifyParams, fused_workspace>,
     run<VerifyParams, launch_pair>},
    {"cuda_fused_small", "the fused kernel for trees of at most 64 nodes, all of their blocks at once", CANOPY_CUDA,
     kHalf, 2 * kHalf, missing, refuses<VerifyParams, small_refuses>, workspace<VerifyParams, no_workspace>,
     run<VerifyParams, launch_small>},
    {"cuda_serial_resident", "recurrence node by node, the state stays in registers while parent = previous node",
     CANOPY_CUDA, kFp32, kFp32Absolute, missing, refuses<VerifyParams, serial_refuses>,
     workspace<VerifyParams, serial_resident_workspace>, run<VerifyParams, launch_serial_resident>},
    {"cuda_serial_snapshot", "recurrence node by node, a state written per node and the parent's read back",
     CANOPY_CUDA, kFp32, kFp32Absolute, missing, refuses<VerifyParams, serial_refuses>,
     workspace<VerifyParams, serial_snapshot_workspace>, run<VerifyParams, launch_serial_snapshot>},
    {"cuda_split", "the fused kernel's solve in two launches: coefficients once a head, then their application",
     CANOPY_CUDA, kHalf, 2 * kHalf, missing, refuses<VerifyParams, split_refuses>,
     workspace<VerifyParams, split_workspace>, run<VerifyParams, launch_split>},
    {"cuda_neumann", "finite Neumann series on tensor cores, depth rounds over blocks that are not path-compressed",
     CANOPY_CUDA, kPrecise, 2 * kPrecise, missing, refuses<VerifyParams, neumann_refuses>,
     workspace<VerifyParams, neumann_workspace>, run<VerifyParams, launch_neumann>, series_may_fail},
    {"cuda_squaring", "the Neumann series by squaring: I - G times I + G^2 times I + G^4 ..., on tensor cores",
     CANOPY_CUDA, kPrecise, 2 * kPrecise, missing, refuses<VerifyParams, squaring_refuses>,
     workspace<VerifyParams, squaring_workspace>, run<VerifyParams, launch_squaring>, series_may_fail},
    {"cuda_dense", "blocked substitution over all 64-node blocks, not path-compressed, tensor cores", CANOPY_CUDA,
     kHalf, 2 * kHalf, missing, refuses<VerifyParams, dense_refuses>, workspace<VerifyParams, dense_workspace>,
     run<VerifyParams, launch_dense>},
    {"cuda_hybrid", "heavy chains side by side, the recurrence along each, their states handed on where they branch",
     CANOPY_CUDA, kFp32, kFp32Absolute, missing, refuses<VerifyParams, hybrid_refuses>,
     workspace<VerifyParams, hybrid_workspace>, run<VerifyParams, launch_hybrid>},
};

constexpr CommitImplementation kCommit[] = {
    {"cuda_commit_resolve", "solves the accepted path's chain again; verification stores nothing", CANOPY_CUDA, kFp32,
     kFp32Absolute, missing, refuses_commit<CANOPY_COMMIT_RESOLVE>, workspace<CommitParams, commit_workspace>,
     run<CommitParams, launch_commit>},
    {"cuda_commit_stash", "rebuilds the state from the u that verification stored", CANOPY_CUDA, kFp32, kFp32Absolute,
     missing, refuses_commit<CANOPY_COMMIT_STASH>, workspace<CommitParams, commit_workspace>,
     run<CommitParams, launch_commit>},
    {"cuda_commit_replay", "the recurrence along the accepted path, in order", CANOPY_CUDA, kFp32, kFp32Absolute,
     missing, refuses_commit<CANOPY_COMMIT_REPLAY>, workspace<CommitParams, commit_workspace>,
     run<CommitParams, launch_commit>},
};

}  // namespace
}  // namespace cuda

std::span<const VerifyImplementation> cuda_verify_implementations() { return cuda::kVerify; }
std::span<const CommitImplementation> cuda_commit_implementations() { return cuda::kCommit; }

std::size_t cuda_plans_bytes(const Problem& problem) { return cuda::plan_bytes(problem); }

Error cuda_make_plans(const Problem& problem, void* plans, void* stream) {
  if (const std::string why = cuda::missing(); !why.empty())
    return Error::unsupported("problem.device = 1 (cuda): " + why + "; copy the tensors to the host and use 0 (cpu)");
  cuda::launch_plan(problem, static_cast<cuda::DevicePlan*>(plans), static_cast<cudaStream_t>(stream));
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    return {CANOPY_INTERNAL, text("plan kernel: ", cudaGetErrorString(status))};
  return {};
}

}  // namespace canopy
