#include "worker/rpc/device_memory.h"

#include "common/codec/bucket_scale.h"
#include "common/codec/coded_keys.h"
#include "common/layout/shard_map.h"
#include "kernels/exchange.h"
#include "worker/rpc/device_selection.h"

namespace tessera {
namespace {

constexpr int64_t kFloat = sizeof(float);

// The payload, and a scale for each of its buckets.
int64_t PayloadBytes(const Codec& codec, const ModelShape& shape) {
  if (codec == Codec()) return 0;
  const CodedKeys keys(codec, SlicesOf(shape, ShardId(0), 1), shape);
  int64_t bytes = keys.bytes();
  for (const Segment& segment : keys.segments()) {
    bytes += segment.buckets() * static_cast<int64_t>(sizeof(BucketScale));
  }
  return bytes;
}

}  // namespace

int64_t DeviceCodingBytes(const CodecChoice& codecs, const DeviceSides& sides,
                          const ModelShape& shape, const std::optional<CoreShare>& core) {
  int64_t bytes = 0;
  if (sides.update) {
    if (codecs.holds_back()) bytes += shape.size * kFloat;
    // A flush brings all entries as they are, and so do pushes where only entries are held back: the sum of update and
    // residual is one more array.
    const bool is_f32 = codecs.flush || codecs.push == Codec();
    if (codecs.holds_back() && is_f32) bytes += shape.size * kFloat;
    const SelectiveCodec* const selective = codecs.push->selective();
    bytes += selective != nullptr ? DeviceSelection::BytesNeeded(*selective, shape)
                                  : PayloadBytes(codecs.push, shape);
  }
  if (sides.values) bytes += PayloadBytes(codecs.pull, shape);
  if (core.has_value()) {
    // Entries on their way, in each direction, what is lost of them, and the bits and ranks of their
    // places.
    bytes += (codecs.holds_back() ? 3 : 2) *
             static_cast<int64_t>(core->alpha * static_cast<double>(shape.size)) * kFloat;
    // A bit for each entry, and a rank of 16 bytes for each run of them.
    bytes += shape.size / 8 + shape.size / PlaceSet::kRankPlaces * 16;
  }
  return bytes;
}

}  // namespace tessera
