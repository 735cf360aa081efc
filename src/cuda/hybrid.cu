// Host side of the hybrid: its workspace and launch. It takes what the serial kernels take.
#include "cuda/device.hpp"
#include "cuda/hybrid.cuh"
#include "cuda/launch.hpp"
#include "cuda/serial_arguments.hpp"
#include "message.hpp"

namespace canopy::cuda {

std::string hybrid_refuses(const VerifyParams& params) { return serial_refuses(params); }

std::size_t hybrid_workspace(const VerifyParams& params) {
  const Problem& p = params.problem;
  return sizeof(float) * p.batch * p.heads_v * p.dim_v * p.dim_k * most_branches(p.nodes);
}

Error launch_hybrid(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  if (p.batch == 0) return {};
  SerialArguments arguments = serial_arguments(params, plan, workspace);
  arguments.deep_levels = most_branches(p.nodes);
  const dim3 grid(p.dim_v / kHybridColumns, p.heads_v, p.batch),
      threads(32, tuning_of(this_architecture()).hybrid_warps);
  const cudaError_t status =
      p.dim_k == 64
          ? launch_dependently(hybrid_kernel<64>, grid, threads, sizeof(HybridShared<64>), stream, arguments)
          : launch_dependently(hybrid_kernel<128>, grid, threads, sizeof(HybridShared<128>), stream, arguments);
  if (status != cudaSuccess) return {CANOPY_INTERNAL, text("hybrid kernel: ", cudaGetErrorString(status))};
  return {};
}

}  // namespace canopy::cuda
