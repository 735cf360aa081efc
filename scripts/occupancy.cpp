// For scripts/occupancy.py: what the launches of the main kernels ask, a line each: object, the kernel's name in
// ptxas's report, architecture, threads, bytes of dynamic shared memory at T = 16, 64, 256, title. Nothing is run:
// sizes of types, so the headers of the emulated GPU do.
#include <algorithm>
#include <cstdio>

#if CANOPY_TENSOR_CORES  // two programs: each half of the kernels has a StateTile of its own
#include "cuda/families.cuh"
#include "cuda/one_block.cuh"
#else
#include "cuda/commit.cuh"
#include "cuda/conv_usual.cuh"
#include "cuda/serial.cuh"
#endif

namespace canopy::cuda {
namespace {

constexpr int kSizes[] = {16, 64, 256};

template <class Bytes>
void line(const char* object, const char* kernel, int architecture, const char* title, int threads, Bytes bytes) {
  std::printf("%s|%s|%d|%d", object, kernel, architecture, threads);
  for (const int nodes : kSizes) std::printf("|%zu", std::size_t(bytes(nodes)));
  std::printf("|%s\n", title);
}

#if CANOPY_TENSOR_CORES
template <template <int> class On, int kArchitecture>
void fused(const char* object, const char* title) {
  using Shape = typename On<kArchitecture>::Shape;
  line(object, "fused_kernel<", kArchitecture, title, Shape::kThreads, [](int) { return sizeof(FusedShared<Shape>); });
}

template <class Shape>
void one_block(const char* object, int architecture, const char* title) {
  char kernel[64];  // gates as given
  std::snprintf(kernel, sizeof kernel, "one_block_kernel<OneBlockShape<%d, %d>, false>", Shape::kColumns,
                Shape::kPasses);
  line(object, kernel, architecture, title, Shape::kThreads, [](int) { return sizeof(OneBlockShared<Shape>); });
}

using NarrowHalf = Narrow<__nv_bfloat16, 128, Form::kHalf>;
using FewHalf = Wide<__nv_bfloat16, 128, Form::kHalf, &Tuning::few>;
using WideHalf = Wide<__nv_bfloat16, 128, Form::kHalf>;
using PairHalf = Pair<__nv_bfloat16, 128, Form::kHalf>;

template <int kArchitecture>
void all() {
  const int on = kArchitecture;
  one_block<OneBlockShape<32, 1>>("instances/fused_half_one_block_32_bf16_128", on, "one block, 32 columns");
  one_block<OneBlockShape<64, 1>>("instances/fused_half_one_block_64_bf16_128", on, "one block, 64 columns");
  one_block<OneBlockShape<128, 2>>("instances/fused_half_one_block_wide_bf16_128", on, "one block, 128 columns");
  fused<NarrowHalf::template On, kArchitecture>("instances/fused_half_narrow_bf16_128", "fused, narrow");
  fused<FewHalf::template On, kArchitecture>("instances/fused_half_few_bf16_128", "fused, few");
  fused<WideHalf::template On, kArchitecture>("instances/fused_half_wide_bf16_128", "fused, wide");
  fused<PairHalf::template On, kArchitecture>("instances/fused_half_pair_bf16_128", "fused, pair");
}
#else
// As serial.cu's shared_bytes.
template <int kColumns>
std::size_t serial_bytes(int nodes, bool wide) {
  const int levels = std::max(std::min(stack_levels(nodes), wide ? 1 : 4), wide ? 1 : 0);
  return sizeof(SerialShared<128, kColumns>) + std::size_t(levels) * kColumns * 128 * sizeof(float);
}

template <int kArchitecture>
void all() {
  const int on = kArchitecture;
  line("serial", "serial_kernel<128, 2, 4, true, false>", on, "serial resident, 32 columns", 128,
       [](int nodes) { return serial_bytes<32>(nodes, false); });
  line("serial", "serial_kernel<128, 4, 4, false, false>", on, "serial resident, 64 columns", 128,
       [](int nodes) { return serial_bytes<64>(nodes, true); });
  line("commit", "commit_kernel<128, 4, 0>", on, "commit, resolve", 128,
       [](int) { return sizeof(CommitShared<128, 4>); });
  line("conv", "usual_conv_kernel<__nv_bfloat16, 4, 32>", on, "convolution, W = 4, many CTAs", 32, usual_conv_bytes<4>);
  line("conv", "usual_conv_kernel<__nv_bfloat16, 4, 256>", on, "convolution, W = 4, few CTAs", 256,
       usual_conv_bytes<4>);
}
#endif

}  // namespace
}  // namespace canopy::cuda

int main() {
  canopy::cuda::all<90>();
  canopy::cuda::all<120>();
}
