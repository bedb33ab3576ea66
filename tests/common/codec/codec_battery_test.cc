// What every codec of known size must do, for each of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/codec/arrival_check.h"
#include "common/codec/decoder.h"
#include "common/codec/encoder.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

// Two parameters that qsgd codes, one that it does not, and a vector.
ModelShape Shape() { return ShapeWith({{13, 801}, {10, 20}, {11000, 1}, {10003, 1}}); }

std::vector<float> Decode(const CodedKeys& keys, const std::vector<char>& bytes) {
  const Payload payload = Cut(bytes, {});
  std::vector<float> out(keys.entries());
  PayloadReader(keys, payload, CodecPath::kScalar).Assign(keys.entries(), 1, out.data());
  return out;
}

// By definition, for codecs that round by the values alone.
float LargestError(const Codec& codec, const Segment& segment, float value, float largest) {
  if (segment.form == &kF32Form || codec->traits().loss == CodecLoss::kNone) return 0;
  if (codec->kind() == "f16") return std::fabs(value) * 0x1p-11f + 0x1p-25f;
  if (codec->kind() == "int8") return largest / 127 * 0.5001f;
  // No codec of single entries is coarser than bf16.
  if (!segment.has_headers()) return std::fabs(value) * 0x1p-8f;
  return largest / segment.divisor * 1.0001f;
}

TEST_CASE("a reader sees each entry within the codec's error", "[codec][battery]") {
  const ModelShape shape = Shape();
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    const std::vector<float> read = Decode(keys, EncodeAll(keys, values));
    int64_t at = 0;
    for (const Segment& s : keys.segments()) {
      for (int64_t i = 0; i < s.entries;) {
        const int64_t size = s.BucketAt(i);
        float scale = 0;
        double squares = 0;
        for (int64_t k = 0; k < size; ++k) {
          const float x = std::fabs(values[at + i + k]);
          scale = std::max(scale, x);
          squares += static_cast<double>(x) * x;
        }
        if (s.l2_norm) scale = static_cast<float>(std::sqrt(squares));
        for (int64_t k = 0; k < size; ++k) {
          const float x = values[at + i + k];
          const float error = LargestError(codec, s, x, scale);
          REQUIRE(std::fabs(read[at + i + k] - x) <= error);
        }
        i += size;
      }
      at += s.entries;
    }
  }
}

TEST_CASE("all paths write the same payload", "[codec][battery][paths]") {
  const ModelShape shape = Shape();
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    const std::vector<char> wanted = EncodeAll(keys, values, {7, 1}, CodecPath::kScalar);
    for (const CodecPath path : PathsHere()) {
      REQUIRE(EncodeAll(keys, values, {7, 1}, path) == wanted);
    }
  }
}

TEST_CASE("a payload is the same whatever chunks it is written in", "[codec][battery]") {
  const ModelShape shape = Shape();
  const std::vector<float> values = Normal(shape.size, 1);
  std::mt19937 random(2);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    const std::vector<char> wanted = EncodeAll(keys, values);
    for (int round = 0; round < 20; ++round) {
      Encoder encoder(keys, {7, 1});
      std::vector<char> got;
      std::vector<float> seen(values.size());
      int64_t at = 0;
      while (encoder.left() > 0) {
        REQUIRE(encoder.left() == keys.bytes() - static_cast<int64_t>(got.size()));
        const int64_t room = Encoder::kRoomMin + random() % 3000;
        std::vector<char> chunk(room);
        const Encoder::Step step = encoder.Encode(values.data() + at, values.size() - at,
                                                  chunk.data(), room, seen.data() + at);
        REQUIRE(step.bytes > 0);
        REQUIRE(step.bytes <= room);
        got.insert(got.end(), chunk.begin(), chunk.begin() + step.bytes);
        at += step.entries;
      }
      REQUIRE(at == static_cast<int64_t>(values.size()));
      REQUIRE(got == wanted);
      REQUIRE(SameBits(seen, Decode(keys, wanted)));
      REQUIRE(encoder.ahead().entries == 0);
    }
  }
}

TEST_CASE("an encoder that is given one bucket at a time writes the same payload",
          "[codec][battery]") {
  const ModelShape shape = Shape();
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    std::vector<char> got(keys.bytes());
    Encoder encoder(keys, {7, 1});
    int64_t at = 0;
    int64_t bytes = 0;
    while (encoder.left() > 0) {
      const Encoder::Ahead ahead = encoder.ahead();
      REQUIRE(ahead.entries > 0);
      REQUIRE((!ahead.whole || ahead.entries <= keys.bucket_max()));
      // Where it need not be whole, less will do.
      const int64_t count = ahead.whole ? ahead.entries : std::min<int64_t>(ahead.entries, 77);
      const std::vector<float> bucket(values.begin() + at, values.begin() + at + count);
      const Encoder::Step step =
          encoder.Encode(bucket.data(), count, got.data() + bytes, encoder.left());
      REQUIRE(step.entries == count);
      at += count;
      bytes += step.bytes;
    }
    REQUIRE(got == EncodeAll(keys, values));
  }
}

TEST_CASE("a payload reads the same whatever pieces it comes in and calls it is read with",
          "[codec][battery]") {
  const ModelShape shape = Shape();
  const std::vector<float> values = Normal(shape.size, 1);
  std::mt19937 random(3);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    const std::vector<char> bytes = EncodeAll(keys, values);
    const std::vector<float> wanted = Decode(keys, bytes);
    for (int round = 0; round < 12; ++round) {
      const CodecPath path = PathsHere()[round % PathsHere().size()];
      const Payload payload = Cut(bytes, RandomCuts(bytes.size(), round < 6 ? 9 : 5000, &random));
      PayloadReader reader(keys, payload, path);
      std::vector<float> out(values.size(), 2);
      for (int64_t at = 0; at < keys.entries();) {
        const int64_t count = std::min<int64_t>(keys.entries() - at, random() % 700);
        if (random() % 2 == 0) {
          reader.Assign(count, 0.5f, out.data() + at);
        } else {
          reader.Accumulate(count, 0.5f, out.data() + at);
          for (int64_t i = at; i < at + count; ++i) {
            REQUIRE(out[i] == 2.0f + 0.5f * wanted[i]);
            out[i] = 0.5f * wanted[i];
          }
        }
        at += count;
      }
      for (size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == 0.5f * wanted[i]);
    }
  }
}

TEST_CASE("bytes that arrive one by one are decoded as they come", "[codec][battery]") {
  const ModelShape shape = ShapeWith({{3, 45}, {70, 150}});
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    const std::vector<char> bytes = EncodeAll(keys, values);
    Decoder decoder(keys);
    std::vector<float> out(values.size());
    int64_t at = 0;
    for (const char byte : bytes) {
      const Decoder::Step step =
          decoder.Assign(&byte, 1, 1, out.data() + at, static_cast<int64_t>(out.size()) - at);
      REQUIRE(step.bytes == 1);
      at += step.entries;
    }
    REQUIRE(at == static_cast<int64_t>(values.size()));
    REQUIRE(decoder.left() == 0);
    REQUIRE(SameBits(out, Decode(keys, bytes)));
  }
}

TEST_CASE("zeros and the smallest numbers are sent as zeros by codecs with headers",
          "[codec][battery]") {
  const ModelShape shape = ShapeWith({{20, 801}});
  for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), -1e-38f, 1e-31f}) {
    const std::vector<float> values(shape.size, x);
    for (const Codec& codec : AllCodecs()) {
      const CodedKeys keys = KeysOf(codec, shape);
      const std::vector<float> read = Decode(keys, EncodeAll(keys, values));
      const bool has_headers = keys.segments()[0].has_headers();
      for (const float y : read) {
        REQUIRE(std::isfinite(y));
        if (has_headers) REQUIRE(y == 0);
        REQUIRE(std::fabs(y - x) <= 1.01e-31f);
      }
    }
  }
}

TEST_CASE("a row of equal numbers is read as those", "[codec][battery]") {
  const ModelShape shape = ShapeWith({{20, 801}});
  for (const float x : {1.0f, -3.5f, 1e-20f, 2e4f}) {
    const std::vector<float> values(shape.size, x);
    for (const Codec& codec : AllCodecs()) {
      if (codec->kind() == "f16" && x == 1e-20f) continue;
      const CodedKeys keys = KeysOf(codec, shape);
      if (keys.segments()[0].l2_norm) continue;
      for (const float y : Decode(keys, EncodeAll(keys, values))) {
        REQUIRE(y == Approx(x).epsilon(0.004));
      }
    }
  }
}

int64_t BadEntry(const CodedKeys& keys, const std::vector<char>& bytes,
                 const std::vector<int64_t>& cuts) {
  ArrivalCheck check(keys);
  bool fine = true;
  const Payload payload = Cut(bytes, cuts);
  for (const Payload::Piece& piece : payload.pieces()) {
    fine = check.Feed(piece.data, piece.size) && fine;
  }
  REQUIRE(fine == (check.bad_entry() < 0));
  return check.bad_entry();
}

TEST_CASE("what is not finite is refused on arrival, at its entry or bucket, under all cuts",
          "[codec][battery][arrival]") {
  const ModelShape shape = Shape();
  const float infinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(4);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    std::vector<float> values = Normal(shape.size, 1);
    REQUIRE(BadEntry(keys, EncodeAll(keys, values), {}) == -1);
    for (const float bad : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
      for (int round = 0; round < 6; ++round) {
        const int64_t place = random() % shape.size;
        std::vector<float> broken = values;
        broken[place] = bad;
        int64_t wanted = 0;
        for (const Segment& s : keys.segments()) {
          if (place >= wanted + s.entries) {
            wanted += s.entries;
            continue;
          }
          if (!s.has_headers()) {
            wanted = place;
            break;
          }
          int64_t i = 0;
          while (wanted + i + s.BucketAt(i) <= place) i += s.BucketAt(i);
          wanted += i;
          break;
        }
        for (const CodecPath path : PathsHere()) {
          const std::vector<char> bytes = EncodeAll(keys, broken, {7, 1}, path);
          REQUIRE(BadEntry(keys, bytes, RandomCuts(bytes.size(), 40, &random)) == wanted);
          REQUIRE(BadEntry(keys, bytes, RandomCuts(bytes.size(), 4000, &random)) == wanted);
        }
      }
    }
  }
}

TEST_CASE("a header below zero, or so large that a code would be infinite, is refused",
          "[codec][arrival]") {
  const ModelShape shape = ShapeWith({{100, 100}});
  for (const Codec& codec : {Int8Codec(), QsgdCodec(), QsgdCodec(2)}) {
    const CodedKeys keys = KeysOf(codec, shape);
    std::vector<char> bytes = EncodeAll(keys, Normal(shape.size, 1));
    const int64_t second = keys.segments()[0].bytes() / 100;
    const auto with_header = [&](float header) {
      std::memcpy(bytes.data() + second, &header, 4);
      return BadEntry(keys, bytes, {});
    };
    CHECK(with_header(1.0f) == -1);
    CHECK(with_header(-1e-30f) == 100);
    CHECK(with_header(std::numeric_limits<float>::max()) == 100);
    CHECK(with_header(std::nanf("")) == 100);
  }
}

TEST_CASE("any bytes are read without leaving the payload, and finite if they pass the check",
          "[codec][battery][fuzz]") {
  const ModelShape shape = ShapeWith({{30, 401}, {9, 9}, {10007, 1}});
  std::mt19937 random(5);
  for (const Codec& codec : AllCodecs()) {
    const CodedKeys keys = KeysOf(codec, shape);
    int passed = 0;
    for (int round = 0; round < 12; ++round) {
      std::vector<char> bytes(keys.bytes());
      for (char& byte : bytes) byte = static_cast<char>(random() & (round % 3 == 0 ? 0xff : 0x3b));
      const Payload payload = Cut(bytes, RandomCuts(bytes.size(), 300, &random));
      std::vector<float> out(keys.entries());
      PayloadReader(keys, payload, PathsHere()[round % PathsHere().size()])
          .Assign(keys.entries(), 1, out.data());
      if (BadEntry(keys, bytes, {}) >= 0) continue;
      ++passed;
      for (const float x : out) REQUIRE(std::isfinite(x));
    }
    REQUIRE(passed > 0);
  }
}

TEST_CASE("the mean of many qsgd payloads is the update", "[codec][qsgd]") {
  const ModelShape shape = ShapeWith({{100, 100}});
  const std::vector<float> values = Normal(shape.size, 1);
  for (const Codec& codec : {QsgdCodec(2), QsgdCodec(4, 64, true)}) {
    const CodedKeys keys = KeysOf(codec, shape);
    std::vector<double> sum(shape.size);
    std::vector<double> squares(shape.size);
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<float> read =
          Decode(keys, EncodeAll(keys, values, {7, static_cast<uint64_t>(round)}));
      for (int64_t i = 0; i < shape.size; ++i) {
        const double error = static_cast<double>(read[i]) - values[i];
        sum[i] += error;
        squares[i] += error * error;
      }
    }
    // Of independent errors with mean 0 the square of the sum is the sum of the squares, on average.
    double squared_sums = 0;
    double sums_of_squares = 0;
    double signed_sum = 0;
    for (int64_t i = 0; i < shape.size; ++i) {
      squared_sums += sum[i] * sum[i];
      sums_of_squares += squares[i];
      signed_sum += std::copysign(sum[i], values[i]);
    }
    CHECK(squared_sums / sums_of_squares == Approx(1).margin(0.08));
    // Neither towards 0 nor away from it.
    CHECK(std::fabs(signed_sum) < 4 * std::sqrt(sums_of_squares));
  }
}

}  // namespace
}  // namespace tessera
