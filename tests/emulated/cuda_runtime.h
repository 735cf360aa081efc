// Stands in for CUDA's header of this name: the part of the language and of the runtime that src uses, on the emulated
// GPU of machine.hpp. Launches run at once; a captured graph is the list of its launches.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "machine.hpp"

// ---- language ----------------------------------------------------------------------------------------------------
#define __global__
#define __device__
#define __host__
#define __shared__ static  // one CTA runs at a time
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define CANOPY_VECTORS(T, name, alignment) \
  struct alignas(sizeof(T)) name##1 {      \
    T x;                                   \
  };                                       \
  struct alignas(2 * sizeof(T)) name##2 {  \
    T x, y;                                \
  };                                       \
  struct name##3 {                         \
    T x, y, z;                             \
  };                                       \
  struct alignas(alignment) name##4 {      \
    T x, y, z, w;                          \
  };
CANOPY_VECTORS(int, int, 16)
CANOPY_VECTORS(unsigned, uint, 16)
CANOPY_VECTORS(float, float, 16)
CANOPY_VECTORS(unsigned short, ushort, 8)
#undef CANOPY_VECTORS
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// ---- intrinsics --------------------------------------------------------------------------------------------------
using std::max;
using std::min;
inline unsigned max(unsigned x, int y) { return std::max(x, static_cast<unsigned>(y)); }
inline unsigned min(unsigned x, int y) { return std::min(x, static_cast<unsigned>(y)); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __float2ll_rn(float x) { return std::llrint(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline int atomicMax(int* at, int x) { return std::exchange(*at, std::max(*at, x)); }
inline int atomicAdd(int* at, int x) { return std::exchange(*at, *at + x); }
inline unsigned atomicAdd(unsigned* at, unsigned x) { return std::exchange(*at, *at + x); }
inline unsigned atomicOr(unsigned* at, unsigned x) { return std::exchange(*at, *at | x); }
inline int atomicOr(int* at, int x) { return std::exchange(*at, *at | x); }

inline void __threadfence() {}
inline void __syncwarp(unsigned mask = ~0u) { emulated::meet_warp(mask, "__syncwarp", nullptr, 0); }
inline void __syncthreads() { emulated::meet_block(0, -1, 0); }
inline int __syncthreads_or(int x) { return emulated::meet_block(0, -1, x != 0); }

template <class T>
T __shfl_sync(unsigned mask, T x, int from, int width = 32) {
  const auto& all = emulated::deposit(mask, "__shfl_sync", x);
  return emulated::of_lane<T>(all, (emulated::lane() & -width) | (from & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int bits, int = 32) {
  return emulated::of_lane<T>(emulated::deposit(mask, "__shfl_xor_sync", x), emulated::lane() ^ bits);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32) {
  const auto& all = emulated::deposit(mask, "__shfl_up_sync", x);
  const int lane = emulated::lane(), from = lane - static_cast<int>(by);
  return from < (lane & -width) ? x : emulated::of_lane<T>(all, from);
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32) {
  const auto& all = emulated::deposit(mask, "__shfl_down_sync", x);
  const int lane = emulated::lane(), from = lane + static_cast<int>(by);
  return from > (lane | (width - 1)) ? x : emulated::of_lane<T>(all, from);
}
template <class T, class Combine>
T reduced(unsigned mask, const char* what, T x, Combine&& combine) {
  const auto& all = emulated::deposit(mask, what, x);
  bool first = true;
  for (int i = 0; i < 32; ++i)
    if (all.lanes >> i & 1) {
      const T y = emulated::of_lane<T>(all, i);
      x = first ? y : combine(x, y);
      first = false;
    }
  return x;
}
template <class T>
T __reduce_max_sync(unsigned mask, T x) {
  return reduced(mask, "__reduce_max_sync", x, [](T a, T b) { return std::max(a, b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T x) {
  return reduced(mask, "__reduce_min_sync", x, [](T a, T b) { return std::min(a, b); });
}
template <class T>
T __reduce_add_sync(unsigned mask, T x) {
  return reduced(mask, "__reduce_add_sync", x, [](T a, T b) { return a + b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned x) {
  return reduced(mask, "__reduce_or_sync", x, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __ballot_sync(unsigned mask, int x) {
  const auto& all = emulated::deposit(mask, "__ballot_sync", x);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i)
    if (all.lanes >> i & 1 && emulated::of_lane<int>(all, i) != 0) bits |= 1u << i;
  return bits;
}
inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x == 0) == 0; }
template <class T>
unsigned __match_any_sync(unsigned mask, T x) {
  const auto& all = emulated::deposit(mask, "__match_any_sync", x);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i)
    if (all.lanes >> i & 1 && emulated::of_lane<T>(all, i) == x) bits |= 1u << i;
  return bits;
}

// ---- runtime -----------------------------------------------------------------------------------------------------
#define CUDART_VERSION 13000
enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInsufficientDriver,
  cudaErrorStubLibrary,
  cudaErrorNoDevice,
};
inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "invalid value"; }
inline const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

enum cudaDeviceAttr {
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
};
inline constexpr int kEmulatedSharedBytes =  // a block may have
    emulated::kArchitecture == 90 ? 232448 : emulated::kArchitecture == 80 ? 166912 : 101376;
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = emulated::kArchitecture / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = emulated::kArchitecture % 10;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kEmulatedSharedBytes + 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = kEmulatedSharedBytes;
      break;
  }
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// Device memory ends where a page begins that nobody may touch.
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaFree(void* data);
template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}

using EmulatedGraph = std::vector<std::function<void()>>;
struct EmulatedStream {
  EmulatedGraph* captured = nullptr;
};
using cudaStream_t = EmulatedStream*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
using cudaEvent_t = double*;  // seconds of the host's clock
inline void emulated_enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream && stream->captured)
    stream->captured->push_back(std::move(work));
  else
    work();
}
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaMemset(void* at, int byte, std::size_t bytes) { return std::memset(at, byte, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return emulated_enqueue(stream, [=] { std::memcpy(to, from, bytes); }), cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int byte, std::size_t bytes, cudaStream_t stream) {
  return emulated_enqueue(stream, [=] { std::memset(at, byte, bytes); }), cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = new EmulatedStream, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return stream->captured = new EmulatedGraph, cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return *graph = std::exchange(stream->captured, nullptr), cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new EmulatedGraph(*graph), cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& work : *exec) work();
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new double(0), cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return *event = std::chrono::duration<double>(now).count(), cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
// Says nothing of a GPU; but what times, `canopy bench`, runs here as there.
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return *milliseconds = std::max(1e-3f, static_cast<float>((*stop - *start) * 1e3)), cudaSuccess;
}
struct cudaDeviceProp {
  char name[256];
  int major, minor, multiProcessorCount, l2CacheSize;
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated", emulated::kArchitecture / 10, emulated::kArchitecture % 10, 4, 1 << 20};
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  return *free_bytes = *total = std::size_t{4} << 30, cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  return std::strncpy(id, "emulated", static_cast<std::size_t>(bytes)), cudaSuccess;
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class Function>
cudaError_t cudaFuncSetAttribute(Function, cudaFuncAttribute, int bytes) {
  return bytes <= kEmulatedSharedBytes ? cudaSuccess : cudaErrorInvalidValue;
}
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               std::type_identity_t<Parameters>... arguments) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  const std::size_t shared = config->dynamicSmemBytes;
  const bool fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535 &&
                    block.x * block.y * block.z <= 1024 && shared <= kEmulatedSharedBytes;
  if (!fits) return cudaErrorInvalidValue;
  emulated_enqueue(config->stream, [=, values = std::tuple<Parameters...>(arguments...)] {
    emulated::run({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared,
                  [&] { std::apply(kernel, values); });
  });
  return cudaSuccess;
}
