// Device memory of the emulated GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "cuda_runtime.h"

namespace {
struct Region {
  void* start;
  std::size_t bytes;
};
std::map<void*, Region>& regions() {
  static std::map<void*, Region> all;
  return all;
}
}  // namespace

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes + 63) / 64 * 64, whole = (rounded + page - 1) / page * page;
  void* const start = mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return cudaErrorMemoryAllocation;
  mprotect(static_cast<char*>(start) + whole, page, PROT_NONE);
  *data = static_cast<char*>(start) + (whole - rounded);
  regions()[*data] = {start, whole + page};
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  const auto found = regions().find(data);
  if (found == regions().end()) return data ? cudaErrorInvalidValue : cudaSuccess;
  munmap(found->second.start, found->second.bytes);
  regions().erase(found);
  return cudaSuccess;
}
