#include "kernels/cuda/codec/device_plain.h"

#include "kernels/cuda/codec/plain_kernels.h"

namespace tessera {
namespace {

template <typename Entry>
void EncodeEach(const DeviceCoding& coding, const float* entries, float* residual, char* out) {
  const cuda::EncodePlain<Entry> kernel{{}, entries, residual, out, coding.segment.entries};
  coding.device.Launch(kernel.blocks(), kernel);
}

template <typename Entry>
void DecodeEach(cuda::Device* device, const Segment& segment, const char* in, float* entries) {
  const cuda::DecodePlain<Entry> kernel{{}, in, entries, segment.entries};
  device->Launch(kernel.blocks(), kernel);
}

}  // namespace

// Entries that are sent as they lie are a copy.
void EncodeF32OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                       char* out) {
  // With a residual the sum of both is sent, and nothing is left.
  if (residual != nullptr) return EncodeEach<AsF32>(coding, entries, residual, out);
  coding.device.Copy(cuda::Stream::kCompute, entries, 0, 1, coding.segment.bytes(), out, 0);
}

void DecodeF32OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                       float* entries) {
  device->Copy(cuda::Stream::kCompute, in, 0, 1, segment.bytes(), entries, 0);
}

void EncodeBf16OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                        char* out) {
  EncodeEach<AsBf16>(coding, entries, residual, out);
}

void DecodeBf16OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                        float* entries) {
  DecodeEach<AsBf16>(device, segment, in, entries);
}

void EncodeF16OnDevice(const DeviceCoding& coding, const float* entries, float* residual,
                       char* out) {
  EncodeEach<AsF16>(coding, entries, residual, out);
}

void DecodeF16OnDevice(cuda::Device* device, const Segment& segment, const char* in,
                       float* entries) {
  DecodeEach<AsF16>(device, segment, in, entries);
}

}  // namespace tessera
