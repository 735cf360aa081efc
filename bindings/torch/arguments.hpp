// Operator arguments as the C ABI's structs. Shapes and devices are checked here, because the C ABI sees pointers and
// strides only; everything else is checked behind it. Errors are thrown: PyTorch turns them into RuntimeError.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>

#include "canopy/canopy.h"
#include "message.hpp"

namespace canopy_torch {

using torch::stable::Tensor;
using Maybe = std::optional<Tensor>;

template <class... Pieces>
[[noreturn]] void fail(const Pieces&... pieces) {
  throw std::runtime_error(canopy::text(pieces...));
}

struct TreeArguments {
  const Maybe &parents, &next_token, &next_sibling;  // [B,T] int32
  const Maybe& count;                                // [B] int32
  const Maybe& plan;                                 // [max(B,1), bytes] uint8
};

struct GateArguments {
  const Maybe &g, &beta;         // [B,T,HV] f32
  const Maybe &a, &b;            // [B,T,HV]
  const Maybe &a_log, &dt_bias;  // [HV]
  bool beta_doubled;
};

struct PoolArguments {
  const Tensor& state;      // [slots,HV,V,K] or [slots,HV,K,V], with a leading L for several layers
  int64_t layout;           // canopy_state_layout
  const Maybe& slot_index;  // [B] int32 or int64
  int64_t padding_slot;
};

struct NormArguments {
  bool l2norm;
  double eps, scale;  // scale 0 stands for K^-0.5
};

// The dtype of slot indices: the C ABI has one for slot_index, dst_slot and track_slot together.
struct SlotDtype {
  int32_t value = CANOPY_I32;
  const char* of = nullptr;  // the tensor that set it
};

// Turns tensors into views. Everything must lie on one device, that of the tensor it is made with.
class Reader {
 public:
  // layers: 0 when tensors have no layer axis, else L, the extent of an axis before all others.
  Reader(const char* name, const Tensor& model, int64_t layers);

  bool cuda() const { return cuda_; }
  int32_t device_index() const { return index_; }

  // `axes` names the extents as in the documentation: "[B,T,H,K]".
  canopy_tensor view(const char* name, const Tensor& tensor, const char* axes,
                     std::initializer_list<int64_t> extent) const;
  canopy_tensor view(const char* name, const Maybe& tensor, const char* axes,
                     std::initializer_list<int64_t> extent) const;
  // Integers that all layers share: dense but for a row stride. NULL when absent.
  const int32_t* ints(const char* name, const Maybe& tensor, const char* axes,
                      std::initializer_list<int64_t> extent) const;
  // [B], int32 or int64; `dtype` must agree where an earlier tensor has set it.
  const void* slots(const char* name, const Maybe& tensor, int64_t batch, SlotDtype* dtype) const;
  // Bytes that the library writes, at their full length.
  void* bytes(const char* name, const Tensor& tensor, std::size_t* length) const;

  void trees(canopy_trees& out, const TreeArguments& trees, int64_t batch, int64_t nodes) const;
  void gates(canopy_problem& out, const GateArguments& gates) const;
  // Returns the dtype of slot_index, to be held against that of other slots.
  SlotDtype pool(canopy_problem& out, const PoolArguments& pool) const;

 private:
  void same_device(const char* name, const Tensor& tensor) const;

  const char* model_;
  int64_t layers_;
  bool cuda_;
  int32_t index_;
};

// Bytes of one sequence's plan on a device, the same for every tree and batch; 0 where this build has no plans for it.
int64_t plan_row_bytes(bool cuda);
void norm(canopy_problem& out, const NormArguments& norm);
// The scalars that the C ABI keeps in 32 bits.
int32_t narrow(const char* name, int64_t value);

// Throws the message of a status that is not CANOPY_OK.
void check(canopy_status status, const canopy_error& error);

}  // namespace canopy_torch
