// CANOPY_HOST_DEVICE: a function that CUDA kernels call too.
#pragma once

#ifdef __CUDACC__
#define CANOPY_HOST_DEVICE __host__ __device__
#else
#define CANOPY_HOST_DEVICE
#endif
