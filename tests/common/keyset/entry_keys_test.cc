#include "common/keyset/entry_keys.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

namespace tessera {
namespace {

EntrySet Of(int64_t size, const std::vector<int64_t>& places) {
  std::vector<uint64_t> words((size + 63) / 64);
  for (const int64_t place : places) words[place / 64] |= uint64_t{1} << place % 64;
  return EntrySet(size, words);
}

TEST_CASE("keys are read as they were written, in the shorter form", "[keys]") {
  std::mt19937_64 random(3);
  for (const int64_t size : {0, 1, 64, 65, 1000, 20000}) {
    for (const double density : {0.0, 0.002, 0.05, 0.3, 1.0}) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < size; ++i) {
        if (std::uniform_real_distribution<double>(0, 1)(random) < density) places.push_back(i);
      }
      const EntrySet set = Of(size, places);
      const EncodedKeys keys = EncodeKeys(set);
      CAPTURE(size, density);
      CHECK(static_cast<int64_t>(keys.bytes.size()) <= KeyBytesMax(size));
      if (size == 20000) CHECK((keys.form == KeyForm::kGaps) == (density < 0.1));
      const auto read = DecodeKeys(static_cast<int>(keys.form), keys.bytes, size);
      REQUIRE(read.ok());
      CHECK(*read == set);
      CHECK(read->count() == set.count());
    }
  }
}

TEST_CASE("the bytes of keys are those that the header says", "[keys]") {
  CHECK(EncodeKeys(Of(16, {0, 3, 9})).bytes == std::string("\x09\x02"));
  const EncodedKeys gaps = EncodeKeys(Of(400, {2, 3, 300}));
  CHECK(gaps.form == KeyForm::kGaps);
  // 2; 0; 296 = 2 * 128 + 40.
  CHECK(gaps.bytes == std::string("\x02\x00\xa8\x02", 4));
}

TEST_CASE("bytes that are no keys are refused", "[keys]") {
  const auto refused = [](int form, const std::string& bytes, int64_t size) {
    return std::string(DecodeKeys(form, bytes, size).status().message());
  };
  CHECK(refused(0, std::string(3, 0), 16) == "keys: bitmap has 3 bytes, want 2 for 16 entries");
  CHECK(refused(0, "\x01\x04", 10) == "keys: bitmap has an entry beyond the last of 10");
  CHECK(refused(1, "\x05\x05", 11) == "keys: entry 11 is beyond the last of 11");
  CHECK(refused(1, "\x05\x80", 11) == "keys: gap at byte 2 has no end, want at most 7 bytes");
  CHECK(refused(1, std::string(12, '\xff'), 100) ==
        "keys: gap at byte 6 has no end, want at most 7 bytes");
  CHECK(refused(1, std::string("\xff\xff\xff\xff\xff\xff\x7f"), 1000) ==
        "keys: entry 562949953421311 is beyond the last of 1000");
  CHECK(refused(2, "", 4) == "keys: form is 2, want 0 (bitmap) or 1 (gaps)");
  CHECK(refused(1, std::string(1, 0), 0) == "keys: entry 0 is beyond the last of 0");
}

TEST_CASE("a signature depends on the layout, the core's number and every key", "[keys]") {
  const EntrySet set = Of(1000, {1, 500, 999});
  const KeySignature mine = SignatureOf(7, 3, set);
  CHECK(mine == SignatureOf(7, 3, set));
  CHECK(mine != SignatureOf(8, 3, set));
  CHECK(mine != SignatureOf(7, 4, set));
  CHECK(mine != SignatureOf(7, 3, Of(1000, {1, 500, 998})));
  CHECK(mine != SignatureOf(7, 3, Of(1001, {1, 500, 999})));
  // Pinned: other programs compute it, too.
  CHECK(mine.high == 0x47c2b37990b6dd67);
  CHECK(mine.low == 0x1dbc8eeddc13f99e);
}

}  // namespace
}  // namespace tessera
