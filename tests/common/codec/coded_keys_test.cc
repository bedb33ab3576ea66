#include "common/codec/coded_keys.h"

#include <catch2/catch.hpp>

#include "tests/common/codec/all_codecs.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

TEST_CASE("sizes are those computed by hand", "[codec][keys]") {
  // A matrix of 20 x 1000, a vector of 20, a matrix of 10 x 20.
  const ModelShape shape = ShapeWith({{20, 1000}, {20, 1}, {10, 20}});
  const int64_t n = 20000 + 20 + 200;
  CHECK(KeysOf(F32Codec(), shape).bytes() == 4 * n);
  CHECK(KeysOf(Bf16Codec(), shape).bytes() == 2 * n);
  CHECK(KeysOf(F16Codec(), shape).bytes() == 2 * n);
  CHECK(KeysOf(Int8Codec(), shape).bytes() == 20 * 1004 + (4 + 20) + 10 * 24);
  // Rows of 1000 are buckets of 512 and 488; both small parameters are f32.
  CHECK(KeysOf(QsgdCodec(), shape).bytes() == 20 * (4 + 512 + 4 + 488) + 4 * 220);
  CHECK(KeysOf(QsgdCodec(3, 100), shape).bytes() == 20 * 10 * (4 + 38) + 4 * 220);
  for (const Codec& codec : AllCodecs()) CHECK(KeysOf(codec, shape).entries() == n);
}

TEST_CASE("eight bits in buckets of 512 take 25.2 % of f32", "[codec][keys]") {
  const ModelShape shape = ShapeWith({{2048, 4096}});
  const double share =
      static_cast<double>(KeysOf(QsgdCodec(), shape).bytes()) / KeysOf(F32Codec(), shape).bytes();
  CHECK(share == 0.251953125);
}

TEST_CASE("a parameter is small by all of its entries, not by a server's part", "[codec][keys]") {
  const ModelShape shape = ShapeWith({{100, 100}, {99, 101}});
  const CodedKeys keys(QsgdCodec(), SlicesOf(shape, ShardId(1), 10), shape);
  REQUIRE(keys.segments().size() == 2);
  CHECK(keys.segments()[0].form == &kQsgdForm);
  CHECK(keys.segments()[1].form == &kF32Form);
  CHECK(keys.bytes() == 10 * 104 + 4 * keys.segments()[1].entries);
}

TEST_CASE("a long vector is cut into rows of 1024", "[codec][keys]") {
  const ModelShape shape = ShapeWith({{10001, 1}});
  CHECK(KeysOf(Int8Codec(), shape).bytes() == 10 * 4 + 10001);
  CHECK(KeysOf(QsgdCodec(), shape).bytes() == 20 * 4 + 10001);
  CHECK(KeysOf(QsgdCodec(8, 1 << 20), shape).bytes() == 10 * 4 + 10001);
}

TEST_CASE("a server that owns nothing has no bytes", "[codec][keys]") {
  const ModelShape shape = ShapeWith({{1, 5}});
  const CodedKeys keys(Int8Codec(), SlicesOf(shape, ShardId(0), 3), shape);
  CHECK(keys.bytes() == 0);
  CHECK(keys.entries() == 0);
  CHECK(keys.segments().empty());
}

TEST_CASE("buckets are numbered through the payload", "[codec][keys]") {
  const ModelShape shape = ShapeWith({{20, 1000}, {5, 5}, {20, 600}});
  const CodedKeys keys = KeysOf(QsgdCodec(), shape);
  REQUIRE(keys.segments().size() == 3);
  CHECK(keys.segments()[1].first_bucket == 40);
  CHECK(keys.segments()[2].first_bucket == 41);
}

}  // namespace
}  // namespace tessera
