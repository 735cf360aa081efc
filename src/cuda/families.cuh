// The two families of CTAs, with their shape on each architecture.
#pragma once

#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

template <class Input, int K, Form kForm>
struct Narrow {
  template <int kArchitecture>
  struct On {
    static constexpr FusedTuning tuning = fused_tuning(kArchitecture);
    static constexpr int kPrepWarps = kForm == Form::kPrecise ? tuning.precise_prep_warps : tuning.narrow_prep_warps;
    using Shape = FusedShape<Input, K, kForm, 32, 1, true, kPrepWarps, 1, 4>;
    static constexpr int kMinCtas = 1;
  };
};

template <class Input, int K, Form kForm>
struct Wide {
  template <int kArchitecture>
  struct On {
    static constexpr FusedTuning tuning = fused_tuning(kArchitecture);
    using Shape = FusedShape<Input, K, kForm, 128, 2, false, tuning.wide_prep_warps, tuning.wide_depth, 2>;
    static constexpr int kMinCtas = tuning.wide_ctas;
  };
};

template <class Family, int kArchitecture>
FusedInstance instance_on() {
  using Shape = typename Family::template On<kArchitecture>::Shape;
  static_assert(kArchitecture == 90 || sizeof(FusedShared<Shape>) <= 101376,
                "more shared memory than a block may have on sm_86, sm_89 and sm_120");
  return {launch_instance<FusedArguments, fused_kernel<Family>>, Shape::kThreads, Shape::kColumns,
          sizeof(FusedShared<Shape>)};
}

// As the binary for that GPU was compiled.
template <class Family>
FusedInstance instance(int architecture) {
  if (architecture >= 120) return instance_on<Family, 120>();
  return architecture >= 90 ? instance_on<Family, 90>() : instance_on<Family, 80>();
}

}  // namespace canopy::cuda
