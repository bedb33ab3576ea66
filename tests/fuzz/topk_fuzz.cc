// The top-k codec: any bytes. What passes the check decodes to finite values, at least one of each chunk, the same in
// any pieces; what does not is still read without harm.
//
//   input = entries(2) k(2) piece(1) run(1) payload
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/codec/selective_codec.h"
#include "common/codec/topk.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_payload.h"

namespace tessera {
namespace {

std::vector<float> Decoded(const SelectiveCodec& codec, const Payload& payload, int64_t entries,
                           int64_t run) {
  std::vector<float> sum(static_cast<size_t>(entries), 0.0f);
  const auto reader = codec.NewReader(payload);
  for (int64_t at = 0; at < entries; at += run) {
    reader->Accumulate(std::min(run, entries - at), 1, sum.data() + at);
  }
  return sum;
}

// How many entries were sent, whose places ascend.
int64_t CountSent(const SelectiveCodec& codec, const Payload& payload, int64_t entries) {
  const auto reader = codec.NewReader(payload);
  int64_t count = 0, place = 0, last = -1;
  float value = 0;
  for (; reader->Take(entries, 1, 1, &place, &value) == 1; last = place, ++count) {
    TESSERA_CHECK(place > last && place < entries);
  }
  return count;
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const int64_t entries = static_cast<int64_t>(input.Number(2));
  const Codec made = TopkCodec({1 + static_cast<int64_t>(input.Number(2)) % kTopkChunk});
  const SelectiveCodec& codec = *made->selective();
  const size_t piece = 1 + input.Byte();
  const int64_t run = 1 + input.Byte();
  const Payload whole = PiecesOf(input.rest(), std::max<size_t>(1, input.rest().size()));
  const Payload pieces = PiecesOf(input.rest(), piece);
  const absl::Status status = codec.Check(whole, entries);
  TESSERA_CHECK(codec.Check(pieces, entries) == status);
  const std::vector<float> values = Decoded(codec, pieces, entries, run);
  const int64_t sent = CountSent(codec, pieces, entries);
  if (!status.ok()) {
    TESSERA_CHECK(!status.message().empty());
    return 0;
  }
  TESSERA_CHECK(whole.size() == codec.Forecast(entries).bytes);
  TESSERA_CHECK(Decoded(codec, whole, entries, std::max<int64_t>(1, entries)) == values);
  TESSERA_CHECK(sent >= (entries + kTopkChunk - 1) / kTopkChunk && sent <= entries);
  for (const float value : values) TESSERA_CHECK(std::isfinite(value));
  return 0;
}
