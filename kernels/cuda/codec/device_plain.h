// The device halves of codecs whose entries stand by themselves (plain_kernels.h).
#ifndef TESSERA_KERNELS_CUDA_CODEC_DEVICE_PLAIN_H_
#define TESSERA_KERNELS_CUDA_CODEC_DEVICE_PLAIN_H_

#include "kernels/cuda/codec/device_codecs.h"

namespace tessera {

void EncodeF32OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                       char* out);
void DecodeF32OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                       float* entries);
void EncodeBf16OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out);
void DecodeBf16OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                        float* entries);
void EncodeF16OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                       char* out);
void DecodeF16OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                       float* entries);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_CODEC_DEVICE_PLAIN_H_
