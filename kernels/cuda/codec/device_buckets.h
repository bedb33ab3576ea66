// The device halves of codecs whose buckets have headers (bucket_kernels.h).
#ifndef TESSERA_KERNELS_CUDA_CODEC_DEVICE_BUCKETS_H_
#define TESSERA_KERNELS_CUDA_CODEC_DEVICE_BUCKETS_H_

#include "kernels/cuda/codec/device_codecs.h"

namespace tessera {

void EncodeInt8OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out);
void EncodeQsgdOnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out);
void DecodeBucketsOnDevice(cuda::Device* device, const Segment& segment, const char* in,
                           float* entries);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_CODEC_DEVICE_BUCKETS_H_
