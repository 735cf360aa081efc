// What a call on a GPU is computed in: the kernels and the dispatcher ask alike.
#pragma once

#include "canopy/problem.hpp"

namespace canopy {

// DEFAULT is half, whose error vanishes under the rounding of o to bf16; a stored U is kept to more digits. f32 inputs
// are not exact as operands of tensor cores, so for them precise is fp32.
inline int precision_on_gpu(const VerifyParams& params) {
  int precision = params.precision;
  if (precision == CANOPY_PRECISION_DEFAULT)
    precision = params.stash_u.data ? CANOPY_PRECISION_PRECISE : CANOPY_PRECISION_HALF;
  if (precision == CANOPY_PRECISION_PRECISE && params.problem.q.dtype == CANOPY_F32) return CANOPY_PRECISION_FP32;
  return precision;
}

}  // namespace canopy
