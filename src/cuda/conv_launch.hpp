// The launch of the convolution kernel with a number of threads of one's own, for measuring.
#pragma once

#include <cuda_runtime.h>

#include "canopy/conv.hpp"

namespace canopy::cuda {

struct DevicePlan;

// Threads of a CTA, a multiple of 32 from 64 to 256; what conv_threads() says is what canopy_conv_verify takes.
int conv_threads(const ConvProblem& problem);
Error launch_conv(const ConvVerifyParams& params, const DevicePlan* plan, int threads, cudaStream_t stream);

}  // namespace canopy::cuda
