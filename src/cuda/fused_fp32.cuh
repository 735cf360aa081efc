// The fused tree kernel in plain fp32: the same path-compressed blocked substitution as fused.cuh without tensor cores,
// for callers who want fp32 results and for a stored U. Everything that belongs to no ancestor is skipped, not
// multiplied by zero, so what is not finite stays in its subtree by construction.
//
// Grid as fused.cuh with 32 value columns a CTA; 256 threads: warp w works on rows w and w + 8 of a block, lane =
// column. Shared memory (K = 128): S0 16.9 KB, K, Q and path rows 25 KB, u of the root path 32 KB, tables 11 KB.
#pragma once

#include "cuda/access.cuh"
#include "cuda/plan.cuh"
#include "cuda/tile/tables.cuh"

namespace canopy::cuda {

inline constexpr int kExactThreads = 256, kExactColumns = 32;

template <int K>
struct ExactShared {
  float state[K][kExactColumns + 1];
  float keys[kRows][K + 4], queries[kRows][K + 4], path[kRows][K + 4];
  float u_path[kNodes][kExactColumns];             // by depth
  float g[kRows][kRows + 1], c[kRows][kRows + 1];  // coefficients of one 16 x 16 product
  float u[kRows][kExactColumns];
  NodeTables tables;
};

// Row t of q or k, normalised and scaled, by one warp; zeros for t < 0.
template <int K>
__device__ __forceinline__ void load_row(float* to, const Tensor& x, int b, int t, int head, bool wide, bool l2norm,
                                         float eps, float scale, int lane) {
  float4 y{};
  const bool mine = 4 * lane < K;
  if (t >= 0 && mine) y = load_float4(x.dtype, x.data, row_offset(x, 0, b, t, head) + 4 * lane, wide);
  float factor = scale;
  if (l2norm) factor *= 1.f / sqrtf(lane_sum<32>(fmaf(y.x, y.x, fmaf(y.y, y.y, fmaf(y.z, y.z, y.w * y.w)))) + eps);
  if (mine) *reinterpret_cast<float4*>(to + 4 * lane) = {y.x * factor, y.y * factor, y.z * factor, y.w * factor};
}

template <int K>
__device__ __forceinline__ float dot(const float* x, const float* y) {
  float sum[4] = {};
#pragma unroll 8
  for (int k = 0; k < K; k += 4) {
    const float4 a = *reinterpret_cast<const float4*>(x + k), b = *reinterpret_cast<const float4*>(y + k);
    sum[0] = fmaf(a.x, b.x, sum[0]), sum[1] = fmaf(a.y, b.y, sum[1]);
    sum[2] = fmaf(a.z, b.z, sum[2]), sum[3] = fmaf(a.w, b.w, sum[3]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

struct ExactArguments {
  VerifyParams params;
  const DevicePlan* plans;
  float scale;
  int wide;  // wide_tensors()
};

template <int K>
__global__ void __launch_bounds__(kExactThreads, 2)
    fused_fp32_kernel(const __grid_constant__ ExactArguments arguments) {
  static_assert(sizeof(ExactShared<K>) <= 101376, "more shared memory than a block may have on sm_120");
  auto& shared = *reinterpret_cast<ExactShared<K>*>(dynamic_shared());
  NodeTables& tables = shared.tables;
  const VerifyParams& p = arguments.params;
  const Problem& problem = p.problem;
  const int tiles = problem.dim_v / kExactColumns;
  const int b = blockIdx.y, head = blockIdx.x / tiles, column = blockIdx.x % tiles * kExactColumns;
  const int key_head = head / (problem.heads_v / problem.heads_k);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const DevicePlan& plan = arguments.plans[b];
  const bool reports = blockIdx.x == 0 && threadIdx.x == 0 && p.row_status;
  auto write = [&](const Tensor& out, int node, float x) {
    const std::int64_t at = row_offset(out, 0, b, node, head) + column + lane;
    if (out.dtype == CANOPY_F32)
      static_cast<float*>(out.data)[at] = x;
    else
      static_cast<std::uint16_t*>(out.data)[at] = narrow(out.dtype, x);
  };

  const std::int64_t slot = device_slot(problem, problem.slot_index, b);
  const int count = plan.count;
  const int status = slot < 0 ? 0 : plan.status | (slot >= problem.slots ? CANOPY_ROW_BAD_SLOT : 0);
  if (reports) p.row_status[b] = status;
  if (slot < 0 || (status & ~CANOPY_ROW_BAD_TREE)) return;
  if (status) {
    for (int node = warp; node < count; node += kExactThreads / 32) {
      write(p.o, node, __int_as_float(0x7fffffff));
      if (p.stash_u.data) write(p.stash_u, node, __int_as_float(0x7fffffff));
      if (p.stash_l.data && column == 0 && lane == 0)
        static_cast<float*>(p.stash_l.data)[row_offset(p.stash_l, 0, b, node, head)] = __int_as_float(0x7fffffff);
    }
    return;
  }
  if (count == 0) return;

  TableLoads<kExactThreads> loads;
  loads.start(plan, count, threadIdx.x, [&](int node) { return load_gate(problem, b, node, head); });
  loads.store(tables, count, threadIdx.x);
  const std::int64_t base = slot * problem.state.stride[1] + head * problem.state.stride[2],
                     step = problem.state.stride[3];
  for (int i = threadIdx.x; i < K * kExactColumns; i += kExactThreads) {
    const bool vk = problem.state_layout == CANOPY_STATE_VK;  // neighbouring threads take neighbouring elements
    const int k = vk ? i % K : i / kExactColumns, v = vk ? i / K : i % kExactColumns;
    shared.state[k][v] = load_float(problem.state.data, problem.state.dtype,
                                    base + (vk ? (column + v) * step + k : k * step + column + v));
  }
  __syncthreads();
  accumulate_gates<kExactThreads>(tables, count, threadIdx.x);
  __syncthreads();

  // One coefficient a thread: G or C between block row i and row j of `against`.
  const int i = threadIdx.x / kRows, j = threadIdx.x % kRows;
  for (int block = 0; block < plan.blocks; ++block) {
    const int first = kRows * block, ancestors = tables.ancestors[block];
    const TwoFloat<float> l_i = tables.l[first + i];
    for (int row = warp; row < kRows; row += 8) {
      const int node = first + row < count ? tables.order[first + row] : -1;
      load_row<K>(shared.keys[row], problem.k, b, node, key_head, arguments.wide & kWideK, problem.l2norm,
                  problem.l2norm_eps, 1.f, lane);
      load_row<K>(shared.queries[row], problem.q, b, node, key_head, arguments.wide & kWideQ, problem.l2norm,
                  problem.l2norm_eps, arguments.scale, lane);
    }
    __syncthreads();
    float r[2], o[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp + 8 * half, rank = first + row;
      float from_key[2] = {}, from_query[2] = {};
#pragma unroll 4
      for (int k = 0; k < K; k += 2) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const float s = shared.state[k + part][lane];
          from_key[part] = fmaf(shared.keys[row][k + part], s, from_key[part]);
          from_query[part] = fmaf(shared.queries[row][k + part], s, from_query[part]);
        }
      }
      float v = 0;
      if (rank < count)
        v = load_float(problem.v.data, problem.v.dtype,
                       row_offset(problem.v, 0, b, tables.order[rank], head) + column + lane);
      const float exp_l = exp2f(tables.l[rank].hi);
      r[half] = tables.beta[rank] * (v - exp_l * (from_key[0] + from_key[1]));
      o[half] = exp_l * (from_query[0] + from_query[1]);
    }
    for (int tile = 0; kRows * tile < ancestors; ++tile) {
      const int here = min(kRows, ancestors - kRows * tile);
      for (int row = warp; row < here; row += 8)
        load_row<K>(shared.path[row], problem.k, b, tables.order[plan.path[block][kRows * tile + row]], key_head,
                    arguments.wide & kWideK, problem.l2norm, problem.l2norm_eps, 1.f, lane);
      __syncthreads();
      if (j < here) {
        const float decay = exp2f(difference(l_i, tables.l[plan.path[block][kRows * tile + j]]));
        shared.g[i][j] = tables.beta[first + i] * decay * dot<K>(shared.keys[i], shared.path[j]);
        shared.c[i][j] = decay * dot<K>(shared.queries[i], shared.path[j]);
      }
      __syncthreads();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp + 8 * half, reach = min(here, static_cast<int>(tables.prefix[first + row]) - kRows * tile);
        for (int d = 0; d < reach; ++d) {
          const float u = shared.u_path[kRows * tile + d][lane];
          r[half] = fmaf(-shared.g[row][d], u, r[half]);
          o[half] = fmaf(shared.c[row][d], u, o[half]);
        }
      }
      __syncthreads();
    }
    if (j <= i) {
      const float decay = exp2f(difference(l_i, tables.l[first + j]));
      shared.g[i][j] = tables.beta[first + i] * decay * dot<K>(shared.keys[i], shared.keys[j]);
      shared.c[i][j] = decay * dot<K>(shared.queries[i], shared.keys[j]);
    }
    shared.u[warp][lane] = r[0], shared.u[warp + 8][lane] = r[1];
    __syncthreads();
    if (warp == 0) {  // E6, row by row
      for (int row = 1; row < kRows; ++row) {
        float x = shared.u[row][lane];
        for (unsigned left = tables.in_block[first + row]; left; left &= left - 1) {
          const int d = __ffs(left) - 1;
          x = fmaf(-shared.g[row][d], shared.u[d][lane], x);
        }
        shared.u[row][lane] = x;
      }
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp + 8 * half, rank = first + row;
      if (rank >= count) continue;
      for (unsigned left = tables.in_block[rank] | 1u << row; left; left &= left - 1) {
        const int d = __ffs(left) - 1;
        o[half] = fmaf(shared.c[row][d], shared.u[d][lane], o[half]);
      }
      write(p.o, tables.order[rank], o[half]);
      const float u = shared.u[row][lane];
      if (p.stash_u.data) write(p.stash_u, tables.order[rank], u);
      if (tables.push[rank] != kNone) shared.u_path[tables.push[rank]][lane] = u;
    }
    __syncthreads();
  }
  if (column == 0 && p.stash_l.data) {
    for (int rank = threadIdx.x; rank < count; rank += kExactThreads)
      static_cast<float*>(p.stash_l.data)[row_offset(p.stash_l, 0, b, tables.order[rank], head)] =
          natural(tables.l[rank]);
  }
}

}  // namespace canopy::cuda
