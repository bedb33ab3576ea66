// The keys of a core: any bytes in either form. What decodes is a set within its size, which encodes to
// keys of the same set and has the same name.
//
//   input = form(1) size(3) keys
#include "common/base/check.h"
#include "common/keyset/entry_keys.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const int form = input.Byte() % 4 - 1;
  const int64_t entries = static_cast<int64_t>(input.Number(3) % 100000);
  const auto keys = DecodeKeys(form, input.rest(), entries);
  if (!keys.ok()) {
    TESSERA_CHECK(!keys.status().message().empty());
    return 0;
  }
  TESSERA_CHECK(keys->size() == entries && keys->count() <= entries);
  for (const int64_t place : keys->places()) TESSERA_CHECK(place >= 0 && place < entries);
  const EncodedKeys encoded = EncodeKeys(*keys);
  TESSERA_CHECK(static_cast<int64_t>(encoded.bytes.size()) <= KeyBytesMax(entries));
  const auto again = DecodeKeys(static_cast<int>(encoded.form), encoded.bytes, entries);
  TESSERA_CHECK(again.ok() && *again == *keys);
  TESSERA_CHECK(SignatureOf(1, 2, *again) == SignatureOf(1, 2, *keys));
  return 0;
}
