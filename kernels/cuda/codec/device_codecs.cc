#include "kernels/cuda/codec/device_codecs.h"

#include "common/base/check.h"
#include "common/codec/bf16.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "kernels/cuda/codec/device_buckets.h"
#include "kernels/cuda/codec/device_plain.h"

namespace tessera {
namespace {

// Each form of entries with its kernels: a codec whose payload a GPU can code has its row here.
constexpr DeviceCodec kDeviceCodecs[] = {
    {&kF32Form, EncodeF32OnDevice, DecodeF32OnDevice},
    {&kBf16Form, EncodeBf16OnDevice, DecodeBf16OnDevice},
    {&kF16Form, EncodeF16OnDevice, DecodeF16OnDevice},
    {&kInt8Form, EncodeInt8OnDevice, DecodeBucketsOnDevice},
    {&kQsgdForm, EncodeQsgdOnDevice, DecodeBucketsOnDevice},
};

}  // namespace

const DeviceCodec& DeviceCodecOf(const EntryForm& form) {
  const DeviceCodec* found = nullptr;
  for (const DeviceCodec& codec : kDeviceCodecs) {
    if (codec.form == &form) found = &codec;
  }
  TESSERA_CHECK(found != nullptr);
  return *found;
}

}  // namespace tessera
