// The threshold codec: any bytes. What passes the check decodes to finite values of one magnitude, the
// same in any pieces; what does not is still read without harm.
//
//   input = entries(2) piece(1) run(1) payload
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/codec/threshold_payload.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_payload.h"

namespace tessera {
namespace {

std::vector<float> Decoded(const Payload& payload, int64_t entries, int64_t run) {
  std::vector<float> sum(static_cast<size_t>(entries), 0.0f);
  ThresholdReader reader(payload);
  for (int64_t at = 0; at < entries; at += run) {
    reader.Accumulate(std::min(run, entries - at), 1, sum.data() + at);
  }
  return sum;
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const int64_t entries = static_cast<int64_t>(input.Number(2));
  const size_t piece = 1 + input.Byte();
  const int64_t run = 1 + input.Byte();
  const Payload whole = PiecesOf(input.rest(), std::max<size_t>(1, input.rest().size()));
  const Payload pieces = PiecesOf(input.rest(), piece);
  const absl::Status status = CheckThresholdPayload(whole, entries);
  TESSERA_CHECK(CheckThresholdPayload(pieces, entries) == status);
  const std::vector<float> values = Decoded(pieces, entries, run);
  if (!status.ok()) {
    TESSERA_CHECK(!status.message().empty());
    return 0;
  }
  TESSERA_CHECK(Decoded(whole, entries, std::max<int64_t>(1, entries)) == values);
  ThresholdWords words(whole);
  const float tau = words.tau();
  TESSERA_CHECK(std::isfinite(tau) && tau > 0);
  for (const float value : values) TESSERA_CHECK(value == 0 || std::abs(value) == tau);
  return 0;
}
