// Marks functions that GPU kernels call as well: plain arithmetic, the same bits on both sides.
#ifndef TESSERA_COMMON_BASE_HOST_DEVICE_H_
#define TESSERA_COMMON_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#else
#define TESSERA_HOST_DEVICE
#endif

#endif  // TESSERA_COMMON_BASE_HOST_DEVICE_H_
