// One run of an implementation on a host problem, and how far its numbers are from the reference.
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "host/device.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

AlignedBytes aligned_bytes(std::size_t size) {
  return AlignedBytes(static_cast<std::byte*>(::operator new[](size ? size : 64, std::align_val_t{64})));
}

HostTensor poisoned(canopy_dtype dtype, std::vector<std::int64_t> shape) {
  HostTensor tensor = HostTensor::make(dtype, std::move(shape));
  const std::int64_t elements = tensor.elements();
  for (std::int64_t i = 0; i < elements; ++i) tensor.set(i, std::numeric_limits<float>::quiet_NaN());
  return tensor;
}

}  // namespace

Deviation DeviationSum::deviation() const {
  // Infinite against a reference of zeros.
  return {difference_ == 0 ? 0 : std::sqrt(difference_ / norm_), max_abs_, finite_};
}

Deviation deviation(const double* reference, const float* values, std::int64_t count) {
  DeviationSum sum;
  sum.add(reference, values, count);
  return sum.deviation();
}

Result<VerifyRun> run_verify(HostProblem& problem, const VerifyImplementation& implementation, canopy_dtype output,
                             bool stash) {
  if (implementation.device == CANOPY_CUDA) return run_verify_on_device(problem, implementation, output, stash);
  Result<VerifyParams> view = problem.verify();
  if (!view) return view.error();
  VerifyParams params = *view;
  const Problem& p = params.problem;
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;

  VerifyRun run;
  run.o = poisoned(output, {B, T, HV, V});
  params.o = run.o.view();
  if (stash) {
    run.u = poisoned(CANOPY_F32, {B, T, HV, V}), run.l = poisoned(CANOPY_F32, {B, T, HV});
    params.stash_u = run.u.view(), params.stash_l = run.l.view();
  }
  run.row_status.assign(static_cast<std::size_t>(B), -1);
  params.row_status = run.row_status.data();

  if (Error error = check(params); !error.ok()) return error;
  if (const std::string why = implementation.missing(); !why.empty()) {
    return Error::unsupported(text(implementation.name, " cannot run on this machine: ", why));
  }
  if (const std::string why = implementation.refuses(params); !why.empty()) {
    return Error::unsupported(text(implementation.name, " refuses: ", why));
  }
  run.workspace_bytes = implementation.workspace(params);
  const AlignedBytes workspace = aligned_bytes(run.workspace_bytes);
  const auto start = std::chrono::steady_clock::now();
  if (Error error = implementation.run(params, workspace.get(), nullptr); !error.ok()) return error;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace canopy::host
