// The test vectors of docs/methods.md: what is on the wire may not change.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/codec/encoder.h"
#include "common/codec/threshold_payload.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

std::string Hex(const std::vector<char>& bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(count, bytes.size()); ++i) {
    const char digits[] = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(bytes[i]) >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

const std::vector<float> kRow = {1, -0.5f, 0.25f, 0, -1, 0.75f, 0.1f, -0.9f};

// 1250 rows, so that qsgd codes them; the first one's bytes.
std::string FirstRow(const Codec& codec, size_t bytes) {
  const ModelShape shape = ShapeWith({{1250, 8}});
  std::vector<float> values;
  for (int row = 0; row < 1250; ++row) values.insert(values.end(), kRow.begin(), kRow.end());
  const PayloadRandom random = PayloadRandom::OfPush(7, Rank(2), Exchange(5), ShardId(1));
  return Hex(EncodeAll(KeysOf(codec, shape), values, random), bytes);
}

TEST_CASE("the first row of each codec's payload is as documented", "[codec][golden]") {
  CHECK(FirstRow(F32Codec(), 8) == "0000803f000000bf");
  CHECK(FirstRow(Bf16Codec(), 16) == "803f00bf803e000080bf403fcd3d66bf");
  CHECK(FirstRow(F16Codec(), 16) == "003c00b80034000000bc003a662e33bb");
  CHECK(FirstRow(Int8Codec(), 12) == "0402013c7fc02000815f0d8e");
  CHECK(FirstRow(QsgdCodec(8, 512, false), 12) == "0000803f7fc02000815f0d8e");
  CHECK(FirstRow(QsgdCodec(4, 512, false), 8) == "0000803fc70259a1");
  CHECK(FirstRow(QsgdCodec(4, 512, true), 8) == "e70bf63fe3013cd1");
}

TEST_CASE("a threshold payload is as documented", "[codec][golden]") {
  std::vector<float> residual(8);
  ThresholdEncoder encoder(0.75f, /*packs=*/false);
  encoder.Encode(kRow.data(), residual.data(), 8);
  CHECK(Hex(encoder.Finish(), 99) == "0000403f0000000000000000070000000000000003000000");
}

TEST_CASE("a top-k payload is as documented", "[codec][golden]") {
  std::vector<float> residual(8);
  // Of 8 entries ceil(8 * 1537 / 4096), which are 4, are sent.
  const auto encoder = TopkCodec({1537})->selective()->NewSelector()->NewEncoder();
  encoder->Encode(kRow.data(), residual.data(), 8);
  CHECK(Hex(encoder->Finish(), 99) == "3333533f0000803f0010015c001c80");
}

}  // namespace
}  // namespace tessera
