// A call of the C ABI in two steps, how much memory and then the work, on the device and stream of its tensors.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "operators.hpp"
#include "stream.hpp"

namespace canopy_torch {

template <class Params>
using Query = canopy_status (*)(const Params*, const char* name, std::size_t* bytes, canopy_error*);
template <class Params>
using Run = canopy_status (*)(const Params*, const char* name, void* memory, std::size_t bytes, void* stream,
                              canopy_error*);

// `model` lies where the workspace shall lie. Without one of the caller's it comes from PyTorch's allocator: no
// cudaMalloc in a steady state, and a graph's own memory in a capture.
template <class Params>
void call(const Reader& reader, const Tensor& model, const Params& params, const Name& implementation,
          const Maybe& workspace, Query<Params> query, Run<Params> run) {
  const char* const name = implementation ? implementation->c_str() : nullptr;
  canopy_error error{};
  std::size_t length = 0;
  void* memory = nullptr;
  Maybe own;
  const Place place(reader);  // before the query, which may ask the current device
  if (workspace) {
    memory = reader.bytes("workspace", *workspace, &length);
  } else {
    check(query(&params, name, &length, &error), error);
    if (length > 0) {
      const int64_t shape[] = {static_cast<int64_t>(length)};
      own = torch::stable::new_empty(model, {shape, 1}, torch::headeronly::ScalarType::Byte);
      memory = own->data_ptr();
    }
  }
  check(run(&params, name, memory, length, place.stream(), &error), error);
}

}  // namespace canopy_torch
