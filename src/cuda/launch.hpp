// What src/cuda/backend.cu calls on the host: for each kernel, what it refuses, its workspace, its launch. `plan` is
// the batch's DevicePlan array on the device (plan.cuh). Nothing here synchronises or allocates.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "canopy/problem.hpp"

namespace canopy::cuda {

struct DevicePlan;

std::string fused_refuses(const VerifyParams& params);
std::size_t fused_workspace(const VerifyParams& params);  // without the plan
Error launch_fused(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
// The same with two value heads of a key head in a CTA.
std::string pair_refuses(const VerifyParams& params);
Error launch_pair(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
// The same for trees of at most 64 nodes, all of their blocks at once.
std::string small_refuses(const VerifyParams& params);
Error launch_small(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
// The memory floor of the same call: loads every input, stores every output, computes nothing that means anything. For
// bf16 inputs and an f32 VK state; false for anything else.
bool launch_floor(const VerifyParams& params, const DevicePlan* plan, cudaStream_t stream);

// The same in two launches: coefficients once a head, then their application to value columns.
std::string split_refuses(const VerifyParams& params);
std::size_t split_workspace(const VerifyParams& params);
Error launch_split(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);

// Solves that are not path-compressed: 64 x 64 blocks by substitution, the Neumann series, its squared form.
std::string dense_refuses(const VerifyParams& params);
std::string neumann_refuses(const VerifyParams& params);
std::string squaring_refuses(const VerifyParams& params);
std::string series_may_fail(const VerifyParams& params);  // why the series is not chosen unless it is named
std::size_t dense_workspace(const VerifyParams& params);
std::size_t neumann_workspace(const VerifyParams& params);
std::size_t squaring_workspace(const VerifyParams& params);
Error launch_dense(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
Error launch_neumann(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
Error launch_squaring(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);

// Serial kernels (E1): a state per node in the workspace, or the state kept in registers along a chain.
std::string serial_refuses(const VerifyParams& params);
std::size_t serial_snapshot_workspace(const VerifyParams& params);
std::size_t serial_resident_workspace(const VerifyParams& params);
Error launch_serial_snapshot(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);
Error launch_serial_resident(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);

// Heavy chains side by side, each serial; takes what the serial kernels take.
std::string hybrid_refuses(const VerifyParams& params);
std::size_t hybrid_workspace(const VerifyParams& params);
Error launch_hybrid(const VerifyParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);

// Commit (E8), params.method chooses; one launch for all layers.
std::string commit_refuses(const CommitParams& params);
std::size_t commit_workspace(const CommitParams& params);
Error launch_commit(const CommitParams& params, const DevicePlan* plan, void* workspace, cudaStream_t stream);

}  // namespace canopy::cuda
