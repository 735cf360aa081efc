// Compiled once per instruction set (cmake/library.cmake), with CANOPY_ISA its name. Everything with code in it lives in
// the namespace of that name or is inlined: a symbol shared between the objects could be the wide one on an old processor.
#include "cpu/kernels.hpp"

#include <type_traits>

#include "cpu/closed_form.hpp"
#include "cpu/commit_kernel.hpp"
#include "cpu/conv.hpp"
#include "cpu/serial.hpp"

namespace canopy::cpu {
namespace CANOPY_ISA {
namespace {

void poison(const VerifyParams& params, int b, int count) {
  const Problem& p = params.problem;
  alignas(64) float nan[256];
  for (float& x : nan) x = __builtin_nanf("");
  for (int node = 0; node < count; ++node)
    for (int hv = 0; hv < p.heads_v; ++hv) write_outputs(params, b, node, hv, nan, nan, nan[0]);
}

// 12 independent chains hide the latency of a multiply-add on every core of the last fifteen years.
double fma_burst(std::int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  Vec x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = splat(1.0f + 0.001f * i);
  const Vec scale = splat(sink[0]), shift = splat(sink[1]);
  for (std::int64_t r = 0; r < rounds; ++r) {
    CANOPY_UNROLL
    for (int i = 0; i < kChains; ++i) x[i] = x[i] * scale + shift;
  }
  Vec total{};
  for (int i = 0; i < kChains; ++i) total += x[i];
  sink[2] = sum(total);
  return 2.0 * W * kChains * static_cast<double>(rounds);
}

}  // namespace
}  // namespace CANOPY_ISA

#define CANOPY_TABLE_NAME(isa) kernels_##isa
#define CANOPY_TABLE(isa) CANOPY_TABLE_NAME(isa)
#define CANOPY_TEXT_OF(isa) #isa
#define CANOPY_TEXT(isa) CANOPY_TEXT_OF(isa)

const Kernels CANOPY_TABLE(CANOPY_ISA) = {
    CANOPY_TEXT(CANOPY_ISA),
    CANOPY_ISA::W,
    CANOPY_ISA::closed_form_scratch,
    CANOPY_ISA::closed_form,
    CANOPY_ISA::serial_resident_scratch,
    CANOPY_ISA::serial_resident,
    CANOPY_ISA::snapshot_bytes,
    CANOPY_ISA::serial_snapshot_scratch,
    CANOPY_ISA::serial_snapshot,
    CANOPY_ISA::commit_scratch,
    CANOPY_ISA::commit,
    CANOPY_ISA::conv,
    CANOPY_ISA::poison,
    CANOPY_ISA::fma_burst,
};

}  // namespace canopy::cpu
