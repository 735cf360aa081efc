#include "cuda/fused_fp32.cuh"
#include "cuda/instances/instance.hpp"

namespace canopy::cuda {
template __global__ void fused_fp32_kernel<128>(const __grid_constant__ ExactArguments);
FusedInstance fused_fp32_128() {
  return {launch_instance<ExactArguments, fused_fp32_kernel<128>>, kExactThreads, kExactColumns,
          sizeof(ExactShared<128>)};
}
}  // namespace canopy::cuda
