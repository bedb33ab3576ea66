// The device halves of codecs: a table by the form of entries. A codec whose traits say on_devices has a row for each
// form that it writes (tests/kernels/conformance holds it to that).
#ifndef TESSERA_KERNELS_CUDA_CODEC_DEVICE_CODECS_H_
#define TESSERA_KERNELS_CUDA_CODEC_DEVICE_CODECS_H_

#include "common/codec/segment.h"
#include "common/codec/stochastic.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/scratch.h"

namespace tessera {

// What an encoder works with: kernels are queued on `device`, and `scratch` is theirs until the next call.
struct DeviceCoding {
  cuda::Device& device;
  CudaScratch& scratch;
  const Segment& segment;  // of at least one entry
  const PayloadRandom& random;
};

struct DeviceCodec {
  const EntryForm* form;
  // As ExchangeKernel::Encode and ExchangeKernel::Decode (kernels/exchange.h).
  void (*encode)(const DeviceCoding& coding, const float* entries, float* residual, char* out);
  void (*decode)(cuda::Device* device, const Segment& segment, const char* in, float* entries);
};

// `form` must have a row.
const DeviceCodec& DeviceCodecOf(const EntryForm& form);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_CODEC_DEVICE_CODECS_H_
