// The families of CTAs of the fused kernel, with their shape on each architecture: a row of tuning.hpp says what
// a CTA has, FusedShape (tile/shape.cuh) works out what follows from that, and a family's On<architecture> joins the
// two.
#pragma once

#include "cuda/fused.cuh"
#include "cuda/instances/instance.hpp"
#include "cuda/tuning.hpp"

namespace canopy::cuda {

template <class Input, int K, Form kForm>
struct Narrow {
  template <int kArchitecture>
  struct On {
    static constexpr CtaTuning cta =
        kForm == Form::kPrecise ? tuning_of(kArchitecture).precise : tuning_of(kArchitecture).narrow;
    using Shape = FusedShape<Input, K, kForm, cta.columns, 1, true, cta.prep_warps, cta.depth, 4>;
  };
};

template <class Input, int K, Form kForm, CtaTuning Tuning::*kRow = &Tuning::wide>
struct Wide {
  template <int kArchitecture>
  struct On {
    static constexpr CtaTuning cta = tuning_of(kArchitecture).*kRow;
    using Shape = FusedShape<Input, K, kForm, cta.columns, 2, false, cta.prep_warps, cta.depth, 2>;
  };
};

template <class Input, int K, Form kForm>
struct Pair {
  template <int kArchitecture>
  struct On {
    static constexpr CtaTuning cta = tuning_of(kArchitecture).pair;
    using Shape = FusedShape<Input, K, kForm, cta.columns, 2, false, cta.prep_warps, cta.depth, 2, 2>;
  };
};

template <class Family, int kArchitecture>
FusedInstance instance_on() {
  using Shape = typename Family::template On<kArchitecture>::Shape;
  static_assert(kArchitecture == 90 || sizeof(FusedShared<Shape>) <= 101376,
                "more shared memory than a block may have on sm_86, sm_89 and sm_120");
  return {launch_instance<FusedArguments, fused_kernel<Family>>, Shape::kThreads, Shape::kColumns,
          sizeof(FusedShared<Shape>), Shape::kHeads};
}

// As the binary for that GPU was compiled.
template <class Family>
FusedInstance instance(int architecture) {
  if (architecture >= 120) return instance_on<Family, 120>();
  return architecture >= 90 ? instance_on<Family, 90>() : instance_on<Family, 80>();
}

}  // namespace canopy::cuda
