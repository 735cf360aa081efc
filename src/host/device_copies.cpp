#include "host/device_copies.hpp"

#include <cstdint>

#include "host/device_bench.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

constexpr std::size_t kAlign = 256;  // as cudaMalloc aligns
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

template <class T>
void shift(T*& pointer, std::size_t bytes) {
  if (pointer) pointer = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

}  // namespace

Result<DeviceCopies> DeviceCopies::make(HostProblem& problem, canopy_dtype output, int copies, bool stash) {
  if (const std::string why = device_missing(); !why.empty())
    return Error::unsupported(text("device = 1 (cuda): ", why, "; use the CPU"));
  auto view = problem.problem();
  if (!view) return view.error();
  DeviceCopies out;
  out.size_ = copies;
  out.first_ = verify_params();
  Problem& p = out.first_.problem;
  p = *view;
  p.device = CANOPY_CUDA;
  std::map<std::string, std::size_t> places;
  for (const auto& [name, tensor] : problem.tensors)
    places[name] = out.stride_, out.stride_ += aligned(tensor.bytes.size());
  out.plan_bytes_ = plans_bytes(p);
  const std::size_t plan_at = out.stride_;
  out.output_at_ = out.stride_ += aligned(out.plan_bytes_);
  const std::size_t heads = static_cast<std::size_t>(p.batch) * p.nodes * p.heads_v;
  out.output_bytes_ = heads * p.dim_v * size_of(output);
  const std::size_t u_at = out.stride_ += aligned(out.output_bytes_);
  if (stash) out.stride_ += aligned(heads * p.dim_v * sizeof(float)) + aligned(heads * sizeof(float));
  out.memory_ = DeviceMemory(out.stride_ * static_cast<std::size_t>(copies));
  char* const base = static_cast<char*>(out.memory_.data());
  if (!base)
    return Error{CANOPY_INTERNAL,
                 text("device memory: ", copies, " copies of ", out.stride_, " bytes are not to be had")};

  if (Error error = out.memory_.fill(0); !error.ok()) return error;  // the gaps between tensors are copied too
  for (const auto& [name, tensor] : problem.tensors)
    if (Error error = out.memory_.upload(tensor.bytes.data(), tensor.bytes.size(), places[name]); !error.ok())
      return error;
  // A pointer into a host tensor becomes the same place of the first copy.
  const auto moved = [&](const void* pointer) -> void* {
    for (const auto& [name, tensor] : problem.tensors) {
      const std::byte *begin = tensor.bytes.data(), *at = static_cast<const std::byte*>(pointer);
      if (pointer && at >= begin && at < begin + tensor.bytes.size()) return base + places[name] + (at - begin);
    }
    return nullptr;
  };
  for (canopy_tensor* tensor : {&p.q, &p.k, &p.v, &p.g, &p.beta, &p.a, &p.b, &p.a_log, &p.dt_bias, &p.state})
    tensor->data = moved(tensor->data);
  for (const std::int32_t** pointer : {&p.trees.parents, &p.trees.next_token, &p.trees.next_sibling, &p.trees.count})
    *pointer = static_cast<const std::int32_t*>(moved(*pointer));
  p.slot_index = moved(p.slot_index);
  p.trees.plan = nullptr;
  if (Error error = make_plans(p, base + plan_at, out.plan_bytes_); !error.ok()) return error;
  p.trees.plan = base + plan_at;
  const std::int64_t row = std::int64_t{p.heads_v} * p.dim_v;
  out.first_.o = {base + out.output_at_, output, 0, {p.batch * p.nodes * row, p.nodes * row, row, p.dim_v, 1}};
  if (stash) {
    out.first_.stash_u = out.first_.o;
    out.first_.stash_u.data = base + u_at, out.first_.stash_u.dtype = CANOPY_F32;
    const std::int64_t of_sequence = std::int64_t{p.nodes} * p.heads_v;
    out.first_.stash_l = {base + u_at + aligned(heads * p.dim_v * sizeof(float)),
                          CANOPY_F32,
                          0,
                          {p.batch * of_sequence, of_sequence, p.heads_v, 1}};
  }
  if (Error error = device_synchronize(); !error.ok()) return error;
  for (int i = 1; i < copies; ++i)
    if (Error error = device_copy(base + i * out.stride_, base, out.stride_, nullptr); !error.ok()) return error;
  if (Error error = device_synchronize(); !error.ok()) return error;
  return out;
}

VerifyParams DeviceCopies::params(int copy) const {
  const std::size_t by = stride_ * static_cast<std::size_t>(copy);
  VerifyParams own = first_;
  Problem& p = own.problem;
  for (canopy_tensor* tensor : {&p.q, &p.k, &p.v, &p.g, &p.beta, &p.a, &p.b, &p.a_log, &p.dt_bias, &p.state, &own.o,
                                &own.stash_u, &own.stash_l})
    shift(tensor->data, by);
  for (const std::int32_t** pointer : {&p.trees.parents, &p.trees.next_token, &p.trees.next_sibling, &p.trees.count})
    shift(*pointer, by);
  shift(p.slot_index, by);
  shift(p.trees.plan, by);
  return own;
}

Error DeviceCopies::spoil_output(int copy) { return memory_.fill(0xff, output_bytes_, output_of(copy)); }
Error DeviceCopies::read_output(int copy, void* to, std::size_t bytes) const {
  return memory_.download(to, bytes, output_of(copy));
}

}  // namespace canopy::host
