#include "common/codec/f32.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"
#include "common/codec/decoder.h"
#include "common/codec/payload.h"

namespace tessera {
namespace {

// `values` as bytes that begin at a misaligned address.
struct Bytes {
  explicit Bytes(const std::vector<float>& values, int misalign = 1)
      : memory(std::make_shared<std::vector<char>>(values.size() * 4 + 8)),
        data(memory->data() + misalign),
        size(static_cast<int64_t>(values.size()) * 4) {
    std::memcpy(data, values.data(), size);
  }

  // Pieces end at each of `cuts`, which ascend.
  Payload Cut(const std::vector<int64_t>& cuts) const {
    Payload payload;
    int64_t begin = 0;
    for (const int64_t cut : cuts) {
      payload.Append({data + begin, cut - begin}, memory);
      begin = cut;
    }
    payload.Append({data + begin, size - begin}, memory);
    return payload;
  }

  std::shared_ptr<std::vector<char>> memory;
  char* data;
  int64_t size;
};

std::vector<float> Ramp(int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = 1.0f + 0.25f * i;
  return values;
}

CodedKeys Singles(int64_t entries) { return CodedKeys::Plain(F32Codec(), entries); }

TEST_CASE("a payload counts its bytes and keeps its owner alive", "[codec][payload]") {
  auto owner = std::make_shared<int>(1);
  std::weak_ptr<int> alive = owner;
  Payload payload;
  const char bytes[3] = {};
  payload.Append({bytes, 3}, owner);
  payload.Append({bytes, 0}, nullptr);
  payload.Append({bytes, 2}, std::move(owner));
  CHECK(payload.size() == 5);
  CHECK(payload.pieces().size() == 2);
  Payload moved = std::move(payload);
  CHECK_FALSE(alive.expired());
  moved = Payload();
  CHECK(alive.expired());
}

TEST_CASE("values read the same wherever two cuts fall", "[codec][f32]") {
  const std::vector<float> values = Ramp(6);
  const Bytes bytes(values);
  for (int64_t a = 0; a <= bytes.size; ++a) {
    for (int64_t b = a; b <= bytes.size; ++b) {
      const Payload payload = bytes.Cut({a, b});
      std::vector<float> out(6, -1);
      const CodedKeys keys = Singles(6);
      PayloadReader(keys, payload).Assign(6, 1.0f, out.data());
      REQUIRE(out == values);
    }
  }
}

TEST_CASE("pieces of one byte each read the same", "[codec][f32]") {
  const std::vector<float> values = Ramp(9);
  const Bytes bytes(values, 3);
  std::vector<int64_t> cuts;
  for (int64_t i = 1; i < bytes.size; ++i) cuts.push_back(i);
  const Payload payload = bytes.Cut(cuts);
  std::vector<float> out(9, 10);
  const CodedKeys keys = Singles(9);
  PayloadReader(keys, payload).Accumulate(9, 2.0f, out.data());
  for (int i = 0; i < 9; ++i) CHECK(out[i] == 10 + 2 * values[i]);
}

TEST_CASE("calls of any length continue where the last one ended", "[codec][f32]") {
  const std::vector<float> values = Ramp(1000);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const Bytes bytes(values, round % 4);
    std::vector<int64_t> cuts;
    for (int64_t at = random() % 50; at < bytes.size; at += random() % 900) cuts.push_back(at);
    const Payload payload = bytes.Cut(cuts);
    std::vector<float> out(1000, 1);
    const CodedKeys keys = Singles(1000);
    PayloadReader reader(keys, payload);
    for (int64_t at = 0; at < 1000;) {
      const int64_t count = std::min<int64_t>(1000 - at, random() % 70);
      if (random() % 2 == 0) {
        reader.Assign(count, 0.5f, out.data() + at);
      } else {
        for (int64_t i = at; i < at + count; ++i) out[i] = 0;
        reader.Accumulate(count, 0.5f, out.data() + at);
      }
      at += count;
    }
    for (int i = 0; i < 1000; ++i) REQUIRE(out[i] == 0.5f * values[i]);
  }
}

TEST_CASE("no entries are read from no bytes", "[codec][f32]") {
  const Payload payload;
  const CodedKeys keys = Singles(0);
  PayloadReader(keys, payload).Assign(0, 1, nullptr);
  CHECK(payload.size() == 0);
}

TEST_CASE("every finite value passes the check", "[codec][finite]") {
  const float big = std::numeric_limits<float>::max();
  const std::vector<float> values = {
      0.0f, -0.0f, big, -big, std::numeric_limits<float>::denorm_min(), 1e-38f};
  const Bytes bytes(values);
  const CodedKeys keys = Singles(bytes.size / 4);
  ArrivalCheck check(keys);
  CHECK(check.Feed(bytes.data, bytes.size));
  CHECK(check.bad_entry() == -1);
  CHECK(check.Feed(nullptr, 0));
}

TEST_CASE("a value that is not finite is found at each place under each cut", "[codec][finite]") {
  const float bad_values[] = {std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::signaling_NaN(), -std::nanf("")};
  for (const float bad : bad_values) {
    for (int place = 0; place < 5; ++place) {
      std::vector<float> values = Ramp(5);
      std::memcpy(&values[place], &bad, 4);
      const Bytes bytes(values);
      for (int64_t a = 0; a <= bytes.size; ++a) {
        for (int64_t b = a; b <= bytes.size; ++b) {
          const CodedKeys keys = Singles(bytes.size / 4);
          ArrivalCheck check(keys);
          bool fine = check.Feed(bytes.data, a);
          fine = check.Feed(bytes.data + a, b - a) && fine;
          fine = check.Feed(bytes.data + b, bytes.size - b) && fine;
          REQUIRE_FALSE(fine);
          REQUIRE(check.bad_entry() == place);
        }
      }
    }
  }
}

TEST_CASE("the first of several bad values is named, in long runs too", "[codec][finite]") {
  for (const int place : {0, 1, 15, 16, 17, 255, 998, 999}) {
    std::vector<float> values = Ramp(1000);
    values[place] = std::nanf("");
    values[999] = std::nanf("");
    const Bytes bytes(values);
    const CodedKeys keys = Singles(bytes.size / 4);
    ArrivalCheck check(keys);
    const bool before = check.Feed(bytes.data, 3);
    const bool after = check.Feed(bytes.data + 3, bytes.size - 3);
    CHECK(before);
    CHECK_FALSE(after);
    CHECK(check.bad_entry() == place);
  }
}

TEST_CASE("an entry that is cut off is not judged", "[codec][finite]") {
  const Bytes bytes({1.0f, std::nanf("")});
  const CodedKeys keys = Singles(bytes.size / 4);
  ArrivalCheck check(keys);
  CHECK(check.Feed(bytes.data, 7));
  CHECK_FALSE(check.Feed(bytes.data + 7, 1));
  CHECK(check.bad_entry() == 1);
}

}  // namespace
}  // namespace tessera
