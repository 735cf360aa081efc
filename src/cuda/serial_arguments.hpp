// A call as the kernels that work node by node (serial, hybrid) see it.
#pragma once

#include <cmath>

#include "cuda/serial.cuh"

namespace canopy::cuda {

inline std::int64_t bytes_of(const Tensor& tensor) { return tensor.dtype == CANOPY_F32 ? 4 : 2; }

inline Strided strided(const Tensor& tensor) {
  const std::int64_t bytes = bytes_of(tensor);
  return {static_cast<char*>(tensor.data), tensor.stride[1] * bytes, tensor.stride[2] * bytes,
          tensor.stride[3] * bytes};
}

// `memory`: the workspace. The levels of the stacks are the serial kernels' own to fill in.
inline SerialArguments serial_arguments(const VerifyParams& params, const DevicePlan* plan, void* memory) {
  const Problem& p = params.problem;
  const bool raw = p.a.data != nullptr;
  const auto dtype = [](const Tensor& tensor) { return static_cast<std::int8_t>(tensor.dtype); };
  SerialArguments a{};
  a.plans = plan, a.slot_index = p.slot_index, a.padding_slot = p.padding_slot, a.slots = p.slots;
  const std::int64_t bytes = bytes_of(p.state);
  a.state = static_cast<char*>(p.state.data);
  a.state_slot = p.state.stride[1] * bytes, a.state_head = p.state.stride[2] * bytes,
  a.state_row = p.state.stride[3] * bytes;
  a.nodes = p.nodes, a.heads_v = p.heads_v;
  a.key_heads_each = static_cast<float>(p.heads_k) / static_cast<float>(p.heads_v);
  a.scale = p.scale != 0 ? p.scale : 1.0f / std::sqrt(static_cast<float>(p.dim_k));
  a.l2norm_eps = p.l2norm_eps;
  a.input_dtype = dtype(p.q), a.state_dtype = dtype(p.state), a.gate_dtype = dtype(raw ? p.a : p.g);
  a.a_log_dtype = dtype(p.a_log), a.dt_bias_dtype = dtype(p.dt_bias), a.o_dtype = dtype(params.o);
  a.wide_keys = is_wide(p.k) && is_wide(p.q), a.wide_values = is_wide(p.v), a.wide_state = is_wide(p.state);
  a.state_vk = p.state_layout == CANOPY_STATE_VK, a.long_slots = p.slot_index_dtype == CANOPY_I64;
  a.l2norm = p.l2norm != 0, a.raw_gates = raw, a.beta_doubled = p.beta_doubled != 0;
  a.usual = a.wide_keys && a.wide_values && a.wide_state && a.state_vk && a.input_dtype != CANOPY_F32 &&
            a.gate_dtype == CANOPY_F32 && a.state_dtype == CANOPY_F32;
  a.k = strided(p.k), a.q = strided(p.q), a.v = strided(p.v);
  a.gate = strided(raw ? p.a : p.g), a.beta = strided(raw ? p.b : p.beta);
  a.a_log = static_cast<const char*>(p.a_log.data), a.dt_bias = static_cast<const char*>(p.dt_bias.data);
  a.a_log_step = p.a_log.stride[1] * bytes_of(p.a_log), a.dt_bias_step = p.dt_bias.stride[1] * bytes_of(p.dt_bias);
  a.o = strided(params.o), a.u = strided(params.stash_u), a.l = strided(params.stash_l);
  a.row_status = params.row_status;
  a.memory = static_cast<float4*>(memory);
  return a;
}

}  // namespace canopy::cuda
