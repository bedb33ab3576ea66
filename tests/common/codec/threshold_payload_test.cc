#include "common/codec/threshold_payload.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/codec/tau.h"
#include "tests/common/codec/coded_bytes.h"

namespace tessera {
namespace {

std::vector<char> Words(float tau, uint32_t packing, const std::vector<uint32_t>& words) {
  std::vector<char> bytes(8 + 4 * words.size());
  std::memcpy(bytes.data(), &tau, 4);
  std::memcpy(bytes.data() + 4, &packing, 4);
  if (!words.empty()) std::memcpy(bytes.data() + 8, words.data(), 4 * words.size());
  return bytes;
}

std::vector<float> Read(const std::vector<char>& bytes, int64_t entries,
                        const std::vector<int64_t>& cuts = {}) {
  const Payload payload = Cut(bytes, cuts);
  REQUIRE(CheckThresholdPayload(payload, entries).ok());
  std::vector<float> out(entries, 9);
  ThresholdReader(payload).Assign(entries, 1, out.data());
  return out;
}

TEST_CASE("entries at tau or beyond are sent as tau, the rest is held back", "[codec][threshold]") {
  const std::vector<float> update = {0.5f, 1.0f, -1.0f, -0.25f, 0.0f, 3.0f};
  std::vector<float> residual = {0.75f, 0, 0, -0.5f, 0, 0};
  ThresholdEncoder encoder(1.0f, false);
  encoder.Encode(update.data(), residual.data(), 6);
  CHECK(encoder.sent() == 4);
  CHECK(residual == std::vector<float>{0.25f, 0, 0, -0.75f, 0, 2});
  const std::vector<char> bytes = encoder.Finish();
  CHECK(bytes == Words(1.0f, 0, {0, 0, 1, 2 << 1}));
  CHECK(Read(bytes, 6) == std::vector<float>{1, 1, -1, 0, 0, 1});
}

TEST_CASE(
    "over 1000 steps what was sent and what is held back is the sum of all updates, whatever "
    "parts it was sent in",
    "[codec][threshold]") {
  constexpr int64_t kEntries = 5000;
  Tau tau(0, 0.01);
  std::vector<float> residual(kEntries);
  std::vector<double> sent(kEntries);
  std::vector<double> wanted(kEntries);
  std::vector<double> moved(kEntries);
  for (int step = 0; step < 1000; ++step) {
    const std::vector<float> update = Normal(kEntries, step);
    std::vector<float> magnitudes;
    SampleMagnitudes(update.data(), residual.data(), kEntries, 1000, &magnitudes);
    tau.Lead(magnitudes);
    // The partition changes with every step; an entry's residual stays where it is.
    const int64_t border = step * 7 % kEntries;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, border}, {border, kEntries}}) {
      ThresholdEncoder encoder(tau.value(), step % 2 == 0);
      encoder.Encode(update.data() + begin, residual.data() + begin, end - begin);
      const std::vector<float> read = Read(encoder.Finish(), end - begin);
      for (int64_t i = begin; i < end; ++i) sent[i] += read[i - begin];
    }
    for (int64_t i = 0; i < kEntries; ++i) {
      wanted[i] += update[i];
      moved[i] += std::fabs(update[i]);
    }
  }
  for (int64_t i = 0; i < kEntries; ++i) {
    REQUIRE(std::fabs(sent[i] + residual[i] - wanted[i]) <= 1e-6 * moved[i]);
  }
}

TEST_CASE("packed words are fewer bytes and read the same in any pieces", "[codec][threshold]") {
  constexpr int64_t kEntries = 400000;
  const std::vector<float> update = Normal(kEntries, 1);
  std::mt19937 random(6);
  for (const float tau : {0.1f, 2.9f}) {
    std::vector<char> bytes[2];
    for (const bool packs : {false, true}) {
      std::vector<float> residual(kEntries);
      ThresholdEncoder encoder(tau, packs);
      encoder.Encode(update.data(), residual.data(), kEntries);
      bytes[packs] = encoder.Finish();
    }
    CHECK(bytes[1].size() < 0.5 * bytes[0].size());
    const std::vector<float> wanted = Read(bytes[0], kEntries);
    CHECK(Read(bytes[1], kEntries) == wanted);
    CHECK(Read(bytes[1], kEntries, RandomCuts(bytes[1].size(), 700, &random)) == wanted);
    CHECK(Read(bytes[0], kEntries, RandomCuts(bytes[0].size(), 11, &random)) == wanted);
  }
}

TEST_CASE("entries are read range by range, weighted, assigned or added", "[codec][threshold]") {
  const std::vector<char> bytes = Words(2.0f, 0, {1 << 1, 0 << 1 | 1, 5 << 1});
  const Payload payload = Cut(bytes, {9, 10});
  ThresholdReader reader(payload);
  std::vector<float> sum(10, 1);
  reader.Accumulate(2, 0.5f, sum.data());
  reader.Assign(4, 0.5f, sum.data() + 2);
  reader.Accumulate(4, 0.5f, sum.data() + 6);
  CHECK(sum == std::vector<float>{1, 2, -1, 0, 0, 0, 1, 1, 2, 1});
}

TEST_CASE("the entries sent, taken in parts, are what is assigned", "[codec][threshold]") {
  const int64_t count = 10000;
  const std::vector<float> update = Normal(count, 3);
  std::vector<float> residual(count);
  ThresholdEncoder encoder(1.5f, true);
  encoder.Encode(update.data(), residual.data(), count);
  const std::vector<char> bytes = encoder.Finish();
  const std::vector<float> wanted = Read(bytes, count);
  const Payload payload = Cut(bytes, {9, 100});
  ThresholdReader reader(payload);
  std::vector<float> got(count);
  int64_t places[7];
  float values[7];
  int64_t sent = 0;
  for (int64_t end = 0; end < count;) {
    end = std::min<int64_t>(count, end + 1234);
    while (const int64_t taken = reader.Take(end, 7, 0.5f, places, values)) {
      REQUIRE(taken <= 7);
      sent += taken;
      for (int64_t i = 0; i < taken; ++i) {
        REQUIRE((places[i] >= end - 1234 && places[i] < end));
        got[places[i]] += 2 * values[i];
      }
    }
    REQUIRE((!reader.NextPlace().has_value() || *reader.NextPlace() >= end));
  }
  CHECK(got == wanted);
  CHECK(sent == encoder.sent());
  CHECK_FALSE(reader.NextPlace().has_value());
}

TEST_CASE("a skip word passes over 2^31 - 1 entries", "[codec][threshold]") {
  const std::vector<char> bytes = Words(1.0f, 0, {0xfffffffeu, 3 << 1});
  const Payload payload = Cut(bytes, {});
  const int64_t place = (int64_t{1} << 31) - 1 + 3;
  CHECK(CheckThresholdPayload(payload, place + 1).ok());
  CHECK_FALSE(CheckThresholdPayload(payload, place).ok());
  ThresholdReader reader(payload);
  // Ranges without an entry cost nothing.
  reader.Accumulate(place, 1, nullptr);
  float last = 0;
  reader.Accumulate(1, 1, &last);
  CHECK(last == 1);
}

TEST_CASE("an update that is not finite is refused on arrival", "[codec][threshold]") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> update = {1, bad, 3};
    std::vector<float> residual(3);
    ThresholdEncoder encoder(0.5f, true);
    encoder.Encode(update.data(), residual.data(), 3);
    const std::vector<char> bytes = encoder.Finish();
    const absl::Status status = CheckThresholdPayload(Cut(bytes, {}), 3);
    CHECK(status.message() ==
          "threshold: tau is nan, want a finite number above 0; the training diverged, try a lower "
          "learning rate");
  }
}

std::string Refusal(const std::vector<char>& bytes, int64_t entries) {
  const absl::Status status = CheckThresholdPayload(Cut(bytes, {}), entries);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

TEST_CASE("a payload that is none is refused with what is wrong", "[codec][threshold]") {
  CHECK(Refusal({1, 2, 3}, 5) == "threshold: payload is 3 bytes, want at least 8");
  CHECK(Refusal(Words(1, 7, {}), 5) == "threshold: packing is 7, want 0 or 1");
  CHECK(Refusal(Words(1, 0, {4 << 1, 0}), 5) ==
        "threshold: an entry is at 5, want less than the 5 entries");
  std::vector<char> cut = Words(1, 0, {0});
  cut.pop_back();
  CHECK(Refusal(cut, 5) == "threshold: the last word has 3 bytes, want 4");
  CHECK(Refusal(Words(1, 1, {0}), 5) == "threshold: a block has 0 words, want 1 to 65536");
  CHECK(Refusal(Words(1, 1, {1 << 20}), 5) ==
        "threshold: a block has 1048576 words, want 1 to 65536");
  CHECK(Refusal(Words(1, 1, {2}), 5) == "threshold: a block is cut off");
  CHECK(Refusal(Words(1, 1, {2, 5000}), 5).find("want at most") != std::string::npos);
  CHECK(Refusal(Words(1, 1, {2, 4, 0}), 5).find("does not unpack to 2 bytes") != std::string::npos);
  CHECK(Refusal(Words(0, 0, {}), 5).find("tau is 0") != std::string::npos);
  CHECK(Refusal(Words(-1, 0, {}), 5).find("tau is -1") != std::string::npos);
}

TEST_CASE(
    "small blocks are refused at the second one, so that a payload costs no more than its entries",
    "[codec][threshold]") {
  const std::vector<float> update = {0, 0, 1};
  std::vector<float> residual(3);
  ThresholdEncoder encoder(1.0f, true);
  encoder.Encode(update.data(), residual.data(), 3);
  std::vector<char> bytes = encoder.Finish();
  CHECK(Read(bytes, 3) == update);
  const std::vector<char> block(bytes.begin() + 8, bytes.end());
  bytes.insert(bytes.end(), block.begin(), block.end());
  CHECK(Refusal(bytes, 100) == "threshold: a block that is not the last has 1 words, want 65536");
}

TEST_CASE("a packed payload is refused where the job's are plain, a plain one never",
          "[codec][threshold]") {
  for (const bool packs : {false, true}) {
    std::vector<float> update = {0, 0, 1}, residual(3);
    ThresholdEncoder encoder(1.0f, packs);
    encoder.Encode(update.data(), residual.data(), 3);
    const std::vector<char> bytes = encoder.Finish();
    CHECK(CheckThresholdPayload(Cut(bytes, {}), 3, /*packs=*/true).ok());
    const absl::Status status = CheckThresholdPayload(Cut(bytes, {}), 3, /*packs=*/false);
    CHECK(status.message() ==
          (packs ? "threshold: packing is 1, want 0; the job's codec.push.threshold.packed is false"
                 : ""));
  }
}

TEST_CASE("bytes that were changed are refused or read within the entries",
          "[codec][threshold][fuzz]") {
  constexpr int64_t kEntries = 3000;
  std::mt19937 random(8);
  const std::vector<float> update = Normal(kEntries, 1);
  for (int round = 0; round < 400; ++round) {
    std::vector<float> residual(kEntries);
    ThresholdEncoder encoder(1.0f, round % 2 == 0);
    encoder.Encode(update.data(), residual.data(), kEntries);
    std::vector<char> bytes = encoder.Finish();
    for (int change = 0; change < 3; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    const Payload payload = Cut(bytes, {});
    const bool fine = CheckThresholdPayload(payload, kEntries).ok();
    std::vector<float> out(kEntries, 0);
    ThresholdReader(payload).Accumulate(kEntries, 1, out.data());
    if (fine) {
      for (const float x : out) REQUIRE(std::isfinite(x));
    }
  }
}

}  // namespace
}  // namespace tessera
