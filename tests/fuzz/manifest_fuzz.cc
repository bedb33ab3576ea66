// A checkpoint's manifest. The first byte says whether the text's sum is put right before it is read:
// otherwise no input but the corpus would come far.
#include <xxhash.h>

#include <string>

#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/strict_json.h"
#include "tests/fuzz/fuzz_input.h"

namespace tessera {
namespace {

// As manifest.cc has it: the text ends with `<16 digits>"\n}\n`, and the sum is of zeros there.
void PutSumRight(std::string* text) {
  const size_t from_end = 16 + 4;
  if (text->size() < from_end) return;
  const size_t at = text->size() - from_end;
  text->replace(at, 16, 16, '0');
  text->replace(at, 16, Hex64(XXH3_64bits(text->data(), text->size())));
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const bool puts_right = input.Bit();
  std::string text(input.rest());
  if (puts_right) PutSumRight(&text);
  const auto manifest = ParseManifest("m", text);
  if (!manifest.ok()) {
    TESSERA_CHECK(!manifest.status().message().empty());
    return 0;
  }
  const std::string written = FormatManifest(*manifest);
  const auto again = ParseManifest("m", written);
  TESSERA_CHECK(again.ok() && FormatManifest(*again) == written);
  return 0;
}
