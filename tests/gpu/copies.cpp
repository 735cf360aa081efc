// Copies of a planned problem, which cold timings go round over: each gives the bits that the first one gives, in its
// own output alone, and those are right.
#include "gpu/harness.hpp"
#include "host/device_copies.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr int kCopies = 3;

std::string run_copies(const Contender& contender, HostProblem& problem) {
  auto made = host::DeviceCopies::make(problem, CANOPY_F32, kCopies);
  if (!made) return made.error().message;
  VerifyParams params = made->params(0);
  params.precision = contender.precision;
  DeviceMemory workspace(contender.implementation->workspace(params));
  const Problem& p = params.problem;
  HostTensor first = HostTensor::make(CANOPY_F32, {p.batch, p.nodes, p.heads_v, p.dim_v}), o = first;
  for (int copy = 0; copy < kCopies; ++copy)
    if (Error error = made->spoil_output(copy); !error.ok()) return error.message;
  for (int copy = 0; copy < kCopies; ++copy) {
    for (int later = copy; later < kCopies; ++later) {
      if (Error error = made->read_output(later, o.bytes.data(), o.bytes.size()); !error.ok()) return error.message;
      for (const std::byte byte : o.bytes)
        if (byte != std::byte{0xff}) return text("the output of copy ", later, " is written before its turn");
    }
    VerifyParams own = made->params(copy);
    own.precision = contender.precision;
    if (Error error = contender.implementation->run(own, workspace.data(), nullptr); !error.ok()) return error.message;
    if (Error error = host::device_synchronize(); !error.ok()) return error.message;
    if (Error error = made->read_output(copy, o.bytes.data(), o.bytes.size()); !error.ok()) return error.message;
    if (copy == 0) first = o;
    if (o.bytes != first.bytes) return text("copy ", copy, " gives other bits than the first");
  }
  const Problem view = *problem.problem();
  const Closeness c = compare(view, solve(view).o, first);
  return c.finite && c.relative <= contender.relative ? std::string() : text("relative ", c.relative);
}

}  // namespace

void test_copies(Report& report, bool light) {
  for (const Contender& contender : contenders()) {
    if (light && contender.precision != CANOPY_PRECISION_HALF) continue;
    for (const bool ragged : {false, true}) {
      ProblemSpec spec = base("best-first", 20);
      spec.batch = 3, spec.ragged = spec.slots = ragged;
      HostProblem problem = make(spec);
      report.add("copies", contender.name, run_copies(contender, problem));
    }
  }
}

}  // namespace canopy::gpu
