#include "stream.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace canopy_torch {
namespace {

using GetStream = AOTITorchError (*)(int32_t device_index, void** stream);

// aoti_torch_get_current_cuda_stream is part of the stable interface, but lies in libtorch_cuda, which a CPU build of
// PyTorch does not have: one binary for both looks it up in the library that is already loaded.
GetStream find_get_stream() {
  constexpr const char* name = "aoti_torch_get_current_cuda_stream";
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return reinterpret_cast<GetStream>(symbol);
  void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<GetStream>(dlsym(library, name)) : nullptr;
}

}  // namespace

Place::Place(const Reader& reader) {
  if (!reader.cuda()) return;
  static const GetStream get_stream = find_get_stream();
  if (!get_stream)
    fail(
        "cuda: expected PyTorch's libtorch_cuda.so in this process, found none with "
        "aoti_torch_get_current_cuda_stream; use an NVIDIA build of PyTorch 2.10 or newer");
  if (torch::stable::accelerator::getCurrentDeviceIndex() != reader.device_index())
    guard_.emplace(reader.device_index());
  STABLE_TORCH_ERROR_CODE_CHECK(get_stream(reader.device_index(), &stream_));
}

}  // namespace canopy_torch
