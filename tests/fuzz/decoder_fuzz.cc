// The decoders of all codecs but threshold: any bytes of the right number decode to the same values on
// every path of the CPU, wherever pieces end and however many entries are asked for at a time.
//
//   input = codec(1) bits(1) bucket(1) columns(2) rows(1) piece(1) run(1) bytes
// Bytes are repeated or cut to what the keys want.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "common/codec/bf16.h"
#include "common/codec/decoder.h"
#include "common/codec/f16.h"
#include "common/codec/f32.h"
#include "common/codec/int8.h"
#include "common/codec/qsgd.h"
#include "common/layout/shard_map.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_payload.h"

namespace tessera {
namespace {

std::vector<float> Decoded(const CodedKeys& keys, const Payload& payload, int64_t run,
                           CodecPath path) {
  std::vector<float> sum(static_cast<size_t>(keys.entries()), 1.0f);
  PayloadReader reader(keys, payload, path);
  for (int64_t at = 0; at < keys.entries(); at += run) {
    const int64_t count = std::min(run, keys.entries() - at);
    // By turns.
    if (at / run % 2 == 0) {
      reader.Accumulate(count, 0.5f, sum.data() + at);
    } else {
      reader.Assign(count, 0.5f, sum.data() + at);
    }
  }
  return sum;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    // Which NaN it is may differ.
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  // Drawn in this order whatever comes of it, as the corpus has it.
  const auto kind = input.Below(5);
  const int bits = static_cast<int>(2 + input.Below(7));
  const Codec qsgd = QsgdCodec(bits, 1 + input.Byte());
  const Codec codecs[] = {F32Codec(), Bf16Codec(), F16Codec(), Int8Codec(), qsgd};
  const Codec& codec = codecs[kind];
  ModelShape shape;
  ParameterSpec weight;
  weight.columns = static_cast<int64_t>(1 + input.Number(2) % 600);
  weight.rows = static_cast<int64_t>(1 + input.Byte() % 40);
  ParameterSpec bias;
  bias.rows = weight.rows;
  bias.is_vector = true;
  shape.parameters = {weight, bias};
  shape.size = weight.size() + bias.size();
  const ShardSlices slices = SlicesOf(shape, ShardId(0), 1);
  const size_t piece = 1 + input.Byte();
  const int64_t run = 1 + input.Byte();
  const CodedKeys keys(codec, slices, shape);
  TESSERA_CHECK(keys.entries() == shape.size);
  std::string bytes(input.rest());
  if (bytes.empty()) bytes = std::string(1, '\x3f');
  while (static_cast<int64_t>(bytes.size()) < keys.bytes()) bytes += bytes;
  bytes.resize(static_cast<size_t>(keys.bytes()));

  const Payload whole = PiecesOf(bytes, bytes.size());
  const Payload pieces = PiecesOf(bytes, piece);
  const std::vector<float> reference = Decoded(keys, whole, run, CodecPath::kScalar);
  const int64_t bad = FirstBadEntry(keys, whole);
  TESSERA_CHECK(bad >= -1 && bad < keys.entries());
  for (const CodecPath path : {CodecPath::kScalar, CodecPath::kAvx2, CodecPath::kAvx512}) {
    if (!HasCodecPath(path)) continue;
    TESSERA_CHECK(SameBits(Decoded(keys, pieces, run, path), reference));
    ArrivalCheck check(keys, path);
    for (const Payload::Piece& p : pieces.pieces()) {
      if (!check.Feed(p.data, p.size)) break;
    }
    TESSERA_CHECK(check.bad_entry() == bad);
  }
  // What passes the check brings nothing infinite into a shard.
  if (bad >= 0) return 0;
  for (const float value : reference) TESSERA_CHECK(std::isfinite(value));
  return 0;
}
