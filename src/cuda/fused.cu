// Host side of the fused kernels: what they refuse, which instance runs, its launch.
#include <cmath>
#include <tuple>
#include <utility>

#include "cuda/floor.cuh"
#include "cuda/fused_fp32.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/launch.hpp"
#include "cuda/tuning.hpp"
#include "message.hpp"

namespace canopy::cuda {
namespace {

// DEFAULT is half, whose error vanishes under the rounding of o to bf16; a stored U is kept to more digits. f32 inputs
// are not exact as operands, so for them precise is fp32.
int precision_of(const VerifyParams& params) {
  int precision = params.precision;
  if (precision == CANOPY_PRECISION_DEFAULT)
    precision = params.stash_u.data ? CANOPY_PRECISION_PRECISE : CANOPY_PRECISION_HALF;
  if (precision == CANOPY_PRECISION_PRECISE && params.problem.q.dtype == CANOPY_F32) return CANOPY_PRECISION_FP32;
  return precision;
}
bool in_fp32(const VerifyParams& params) { return precision_of(params) == CANOPY_PRECISION_FP32; }

// "" if every row of the tensor starts on a 16-byte boundary.
std::string misaligned(const char* name, const Tensor& tensor) {
  if (!tensor.data) return {};
  const int bytes = tensor.dtype == CANOPY_F32 ? 4 : 2;
  const bool ok = reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 &&
                  (tensor.stride[1] | tensor.stride[2] | tensor.stride[3]) * bytes % 16 == 0;
  if (ok && !fits_rows(tensor))
    return text(name, ".stride[2] = ", tensor.stride[2], ": expected less than 4 GiB from node to node; ",
                "copy it to a closer tensor, or use precision fp32");
  if (ok) return {};
  return text(name, ": expected rows on 16-byte boundaries (address and strides multiples of ", 16 / bytes,
              " elements), got strides ", tensor.stride[1], ", ", tensor.stride[2], ", ", tensor.stride[3],
              "; copy it to an aligned tensor, or use precision fp32");
}

int this_architecture() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

FusedInstance pick(const VerifyParams& params, int architecture) {
  const Problem& p = params.problem;
  const bool long_keys = p.dim_k == 128, bf16 = p.q.dtype == CANOPY_BF16;
  const bool wide = long_keys && p.dim_v == 128 && p.q.dtype != CANOPY_F32 &&
                    std::int64_t{p.batch} * p.heads_v >= fused_tuning(architecture).wide_from_heads;
  switch (precision_of(params)) {
    case CANOPY_PRECISION_FP32:
      return long_keys ? fused_fp32_128() : fused_fp32_64();
    case CANOPY_PRECISION_PRECISE:
      if (bf16) return long_keys ? fused_precise_bf16_128(architecture) : fused_precise_bf16_64(architecture);
      return long_keys ? fused_precise_f16_128(architecture) : fused_precise_f16_64(architecture);
    case CANOPY_PRECISION_FAST:
      if (wide) return fused_fast_wide_bf16_128(architecture);
      return long_keys ? fused_fast_narrow_bf16_128(architecture) : fused_fast_narrow_bf16_64(architecture);
    default:
      break;
  }
  if (wide) return bf16 ? fused_half_wide_bf16_128(architecture) : fused_half_wide_f16_128(architecture);
  if (bf16) return long_keys ? fused_half_narrow_bf16_128(architecture) : fused_half_narrow_bf16_64(architecture);
  if (p.q.dtype == CANOPY_F16)
    return long_keys ? fused_half_narrow_f16_128(architecture) : fused_half_narrow_f16_64(architecture);
  return long_keys ? fused_half_narrow_f32_128(architecture) : fused_half_narrow_f32_64(architecture);
}

float scale_of(const Problem& p) { return p.scale != 0 ? p.scale : 1.f / std::sqrt(static_cast<float>(p.dim_k)); }

FusedArguments arguments_of(const VerifyParams& params, const DevicePlan* plan, void* workspace) {
  const Problem& p = params.problem;
  const bool raw = p.a.data != nullptr;
  FusedArguments a{};
  a.plans = plan, a.spill = static_cast<std::uint16_t*>(workspace);
  a.slot_index = p.slot_index, a.padding_slot = p.padding_slot, a.slots = p.slots;
  a.row_status = params.row_status;
  a.nodes = p.nodes, a.dim_v = p.dim_v, a.heads_v = p.heads_v;
  a.value_heads_inverse = static_cast<float>(p.heads_k) / static_cast<float>(p.heads_v);
  a.long_slots = p.slot_index_dtype == CANOPY_I64, a.raw_gates = raw, a.beta_doubled = p.beta_doubled != 0;
  a.l2norm = p.l2norm != 0, a.state_vk = p.state_layout == CANOPY_STATE_VK;
  a.scale = scale_of(p), a.l2norm_eps = p.l2norm_eps;
  a.g = rows_of(raw ? p.a : p.g), a.beta = rows_of(raw ? p.b : p.beta);
  a.a_log = per_head(p.a_log), a.dt_bias = per_head(p.dt_bias);
  a.a_log_dtype = p.a_log.dtype, a.dt_bias_dtype = p.dt_bias.dtype;
  a.k = rows_of(p.k), a.q = rows_of(p.q), a.v = rows_of(p.v);
  a.o = rows_of(params.o), a.u = rows_of(params.stash_u), a.l = rows_of(params.stash_l);
  a.state = {static_cast<char*>(p.state.data), p.state.stride[1] * element_size(p.state),
             p.state.stride[2] * element_size(p.state),
             static_cast<std::uint32_t>(p.state.stride[3] * element_size(p.state)), p.state.dtype};
  return a;
}

}  // namespace

std::string fused_refuses(const VerifyParams& params) {
  const Problem& p = params.problem;
  if ((p.dim_k != 64 && p.dim_k != 128) || (p.dim_v != 64 && p.dim_v != 128))
    return text("dim_k, dim_v = ", p.dim_k, ", ", p.dim_v, ": expected 64 or 128 each");
  if (p.batch > 65535 || p.heads_v > 65535)
    return text("batch = ", p.batch, ", heads_v = ", p.heads_v, ": expected at most 65,535 each; split the batch");
  if (in_fp32(params)) return {};
  if (params.precision == CANOPY_PRECISION_FAST && p.q.dtype != CANOPY_BF16)
    return "precision = fast: expected bf16 inputs, which it multiplies as they are; use half";
  if (params.stash_u.data && precision_of(params) != CANOPY_PRECISION_PRECISE)
    return text("precision = ", params.precision,
                " with stash_u: expected 0 (default), 1 (fp32) or 2 (precise), since a stored u is to keep its digits");
  for (const auto& [name, tensor] :
       {std::pair{"q", &p.q}, {"k", &p.k}, {"v", &p.v}, {"o", &params.o}, {"stash_u", &params.stash_u}}) {
    if (std::string why = misaligned(name, *tensor); !why.empty()) return why;
  }
  // These are read element by element; only the step from node to node (row to row) has to fit 32 bits.
  for (const auto& [name, tensor, step] : {std::tuple{"g", &p.g, 2},
                                           {"beta", &p.beta, 2},
                                           {"a", &p.a, 2},
                                           {"b", &p.b, 2},
                                           {"stash_l", &params.stash_l, 2},
                                           {"state", &p.state, 3}}) {
    if (tensor->data && tensor->stride[step] * element_size(*tensor) > 0xffffffffll)
      return text(name, ".stride[", step, "] = ", tensor->stride[step],
                  ": expected less than 4 GiB; use precision fp32");
  }
  return p.state_layout == CANOPY_STATE_VK ? misaligned("state", p.state) : std::string{};
}

std::size_t fused_workspace(const VerifyParams& params) {
  const Problem& p = params.problem;
  if (in_fp32(params) || p.nodes <= kPathRows) return 0;
  const std::size_t parts = precision_of(params) == CANOPY_PRECISION_PRECISE ? 2 : 1;
  // Twice: where a U and an O warp share 16 columns each has path rows of its own.
  return 2 * sizeof(std::uint16_t) * p.batch * p.heads_v * p.dim_v * kNodes * parts;
}

Error launch_fused(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream) {
  const Problem& p = params.problem;
  if (p.batch == 0) return {};
  const int architecture = this_architecture();
  const FusedInstance instance = pick(params, architecture);
  FusedArguments fused = arguments_of(params, plan, workspace);
  ExactArguments exact{params, plan, scale_of(p), wide_tensors(p)};
  void* arguments[] = {in_fp32(params) ? static_cast<void*>(&exact) : &fused};

  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = in_fp32(params) ? dim3(p.heads_v * (p.dim_v / instance.columns), p.batch)
                                   : dim3(p.dim_v / instance.columns, p.heads_v, p.batch);
  launch.blockDim = dim3(instance.threads);
  launch.dynamicSmemBytes = instance.shared_bytes;
  launch.stream = stream;
  launch.attrs = &dependent;
  launch.numAttrs = fused_tuning(architecture).dependent_launch && !in_fp32(params);
  // A property of the function, not work on the stream: allowed while a graph is captured.
  cudaError_t error = cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(instance.shared_bytes));
  if (error == cudaSuccess) error = cudaLaunchKernelExC(&launch, instance.kernel, arguments);
  if (error != cudaSuccess)
    return {CANOPY_INTERNAL, text("launch of the fused kernel failed: ", cudaGetErrorString(error))};
  return {};
}

bool launch_floor(const VerifyParams& params, const DevicePlan* plan, cudaStream_t stream) {
  const Problem& p = params.problem;
  const bool takes = precision_of(params) == CANOPY_PRECISION_HALF && fused_refuses(params).empty() &&
                     p.q.dtype == CANOPY_BF16 && p.g.data && params.o.dtype == CANOPY_BF16 &&
                     p.state.dtype == CANOPY_F32 && p.state_layout == CANOPY_STATE_VK;
  if (!takes || p.batch == 0) return takes;
  const FusedArguments arguments = arguments_of(params, plan, nullptr);
  const dim3 grid(p.dim_v / kFloorColumns, p.heads_v, p.batch);
  if (p.dim_k == 128)
    floor_kernel<128><<<grid, kFloorThreads, 0, stream>>>(arguments);
  else
    floor_kernel<64><<<grid, kFloorThreads, 0, stream>>>(arguments);
  return cudaGetLastError() == cudaSuccess;
}

}  // namespace canopy::cuda
