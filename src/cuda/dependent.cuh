// Programmatic dependent launch (sm_90 on): a kernel's CTAs start while the kernel before it ends, and wait before they
// touch memory. Elsewhere an ordinary launch.
#pragma once

#include <type_traits>

#include "cuda/ptx.cuh"

namespace canopy::cuda {

// First statement of a kernel that is launched dependently: everything before it may run while the kernel before ends.
__device__ __forceinline__ void begin_after_previous_kernel() {
  wait_for_previous_kernel();
  let_next_kernel_start();
}

// Before that: fetches the kernel's parameters into the constant cache, each warp a line. Left to their first uses, the
// misses come one after the other, some 250 cycles each; so do those of one warp's lanes that ask for several lines.
// What it returns is to be touched once there is nothing else to do.
template <class Parameters>
__device__ __forceinline__ int fetch_parameters(const Parameters& parameters, unsigned warp) {
  constexpr unsigned kLine = 64, kLines = (sizeof(Parameters) + kLine - 1) / kLine;
  return reinterpret_cast<const int*>(&parameters)[min(warp, kLines - 1) * (kLine / sizeof(int))];
}

inline bool launches_dependently() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

// Launches with `shared` bytes of dynamic shared memory, raising the function's limit where they need it: a property of
// the function, so allowed while a graph is captured.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 threads, std::size_t shared,
                          cudaStream_t stream, bool dependently, std::type_identity_t<Parameters>... arguments) {
  if (shared > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = grid;
  launch.blockDim = threads;
  launch.dynamicSmemBytes = shared;
  launch.stream = stream;
  launch.attrs = &dependent;
  launch.numAttrs = dependently;
  return cudaLaunchKernelEx(&launch, kernel, arguments...);
}
template <class... Parameters>
cudaError_t launch_dependently(void (*kernel)(Parameters...), dim3 grid, dim3 threads, std::size_t shared,
                               cudaStream_t stream, std::type_identity_t<Parameters>... arguments) {
  return launch_kernel(kernel, grid, threads, shared, stream, launches_dependently(), arguments...);
}

}  // namespace canopy::cuda
