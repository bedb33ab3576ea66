// One connection's frames, within the limits and beyond them.
#include "common/rpc/frame_limits.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

namespace tessera {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum Type : uint8_t {
  kData,
  kHeaders,
  kPriority,
  kReset,
  kSettings,
  kPing = 6,
  kWindow = 8,
  kMore
};

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}

std::string Error(uint8_t code) { return std::string("\0\0\0", 3) + static_cast<char>(code); }

// A connection whose bytes come so many at a time, and whose clock is the test's.
class Followed {
 public:
  explicit Followed(size_t piece = 1 << 20, const FrameLimits& limits = FrameLimits())
      : piece_(piece), frames_(limits) {
    CHECK(Receive(kPreface + Frame(kSettings, 0, 0)).empty());
  }

  // Why the connection is to be closed; empty: it goes on.
  std::string Receive(const std::string& bytes) { return Pass(bytes, &ConnectionFrames::Received); }
  std::string Send(const std::string& bytes) { return Pass(bytes, &ConnectionFrames::Sent); }
  void Acknowledge() { CHECK(Receive(Frame(kSettings, 1, 0)).empty()); }
  void Wait(absl::Duration time) { now_ += time; }
  int streams() const { return frames_.streams(); }

  // Frames until the connection is to be closed, `most` at most; how many went through, and the reason.
  template <typename Make>
  int Flood(int most, Make make, std::string* why) {
    for (int i = 0; i < most; ++i) {
      *why = Receive(make(i));
      if (!why->empty()) return i;
    }
    return most;
  }

 private:
  std::string Pass(const std::string& bytes,
                   const char* (ConnectionFrames::*pass)(absl::Span<const uint8_t>, absl::Time)) {
    for (size_t at = 0; at < bytes.size(); at += piece_) {
      const char* const why =
          (frames_.*pass)(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()) + at,
                                              std::min(piece_, bytes.size() - at)),
                          now_);
      if (why != nullptr) return why;
    }
    return "";
  }

  const size_t piece_;
  absl::Time now_ = absl::UnixEpoch();
  ConnectionFrames frames_;
};

// A call, whole or begun, on the i-th stream.
std::string Begin(int i, bool ends = false) {
  return Frame(kHeaders, ends ? 5 : 4, static_cast<uint32_t>(2 * i + 1), std::string(60, 'h'));
}

TEST_CASE("calls that are answered are followed, however their frames are cut", "[frame_limits]") {
  const size_t piece = GENERATE(1, 2, 7, 100000);
  CAPTURE(piece);
  Followed followed(piece);
  CHECK(followed.Send(Frame(kSettings, 0, 0, std::string(6, 's'))).empty());
  followed.Acknowledge();
  for (int i = 0; i < 300; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 1);
    REQUIRE(followed
                .Receive(Begin(i) + Frame(kData, 0, stream, std::string(500, 'd')) +
                         Frame(kData, 1, stream, "d"))
                .empty());
    REQUIRE(followed.streams() == 1);
    // Trailers alone, trailers after data, and a question that is cut off with NO_ERROR.
    if (i % 3 == 0) REQUIRE(followed.Send(Frame(kHeaders, 5, stream, "h")).empty());
    if (i % 3 == 1) REQUIRE(followed.Send(Frame(kData, 1, stream, "d")).empty());
    if (i % 3 == 2) REQUIRE(followed.Send(Frame(kReset, 0, stream, Error(0))).empty());
    REQUIRE(followed.streams() == 0);
  }
}

TEST_CASE("a client that never acknowledges SETTINGS gets so many calls and bytes",
          "[frame_limits]") {
  const FrameLimits limits;
  std::string why;
  SECTION("calls that are open") {
    Followed followed;
    CHECK(followed.Flood(
              1000, [](int i) { return Begin(i); }, &why) == limits.streams_unacknowledged_max);
  }
  SECTION("calls that are answered") {
    Followed followed;
    const int passed = followed.Flood(
        1000,
        [&](int i) {
          static_cast<void>(
              i > 0 && followed.Send(Frame(kHeaders, 5, static_cast<uint32_t>(2 * i - 1))).empty());
          return Begin(i, true);
        },
        &why);
    CHECK(passed == limits.streams_unacknowledged_max);
    CHECK(why == "too many calls of a client that has not acknowledged SETTINGS");
  }
  SECTION("bytes") {
    Followed followed;
    const std::string data(16 << 10, 'd');
    const int passed = followed.Flood(
        1000, [&](int) { return Frame(kData, 0, 1, data); }, &why);
    CHECK(passed <= limits.bytes_unacknowledged_max / static_cast<int64_t>(data.size()));
    CHECK(why == "too many bytes of a client that has not acknowledged SETTINGS");
  }
  SECTION("and as many as it likes afterwards") {
    Followed followed;
    followed.Acknowledge();
    const std::string data(16 << 10, 'd');
    CHECK(followed.Flood(
              1000, [&](int) { return Frame(kData, 0, 1, data); }, &why) == 1000);
  }
}

TEST_CASE("calls at once are bounded whatever the client has acknowledged", "[frame_limits]") {
  Followed followed;
  // It is an answer to nothing here; gRPC takes it for one.
  followed.Acknowledge();
  std::string why;
  CHECK(followed.Flood(
            1000, [](int i) { return Begin(i, i % 2 == 0); }, &why) == FrameLimits().streams_max);
  CHECK(why == "too many calls at once");
}

TEST_CASE("headers are bounded in bytes and frames", "[frame_limits]") {
  Followed followed;
  followed.Acknowledge();
  std::string why;
  SECTION("bytes of one frame") {
    why = followed.Receive(Frame(kHeaders, 4, 1, std::string((64 << 10) + 1, 'h')));
    CHECK(why == "too many bytes of headers");
  }
  SECTION("bytes of many") {
    CHECK(followed.Receive(Frame(kHeaders, 0, 1, "h")).empty());
    const std::string more(16 << 10, 'h');
    CHECK(followed.Flood(
              1000, [&](int) { return Frame(kMore, 0, 1, more); }, &why) == 3);
    CHECK(why == "too many bytes of headers");
  }
  SECTION("frames of nothing") {
    CHECK(followed.Receive(Frame(kHeaders, 0, 1, "h")).empty());
    CHECK(followed.Flood(
              1000, [](int) { return Frame(kMore, 0, 1); }, &why) ==
          FrameLimits().continuations_max);
    CHECK(why == "too many CONTINUATION frames");
  }
  SECTION("of each call anew") {
    for (uint32_t i = 0; i < 20; ++i) {
      const uint32_t stream = 2 * i + 1;
      REQUIRE(followed.Receive(Frame(kHeaders, 0, stream, "h")).empty());
      for (int k = 0; k < 8; ++k) REQUIRE(followed.Receive(Frame(kMore, 0, stream, "h")).empty());
    }
  }
}

TEST_CASE("resets and control frames come at a pace", "[frame_limits]") {
  Followed followed;
  followed.Acknowledge();
  const FrameLimits limits;
  std::string why;
  SECTION("calls that the client resets") {
    const auto reset = [](int i) {
      return Begin(i) + Frame(kReset, 0, static_cast<uint32_t>(2 * i + 1), Error(8));
    };
    CHECK(followed.Flood(10000, reset, &why) == limits.resets.at_once);
    CHECK(why == "too many calls are reset");
  }
  SECTION("calls that the server resets for the client's errors") {
    for (int i = 0; i <= limits.resets.at_once; ++i) {
      REQUIRE(why.empty());
      REQUIRE(followed.Receive(Begin(i)).empty());
      why = followed.Send(Frame(kReset, 0, static_cast<uint32_t>(2 * i + 1), Error(1)));
    }
    CHECK(why == "too many calls are reset for errors");
  }
  SECTION("control frames") {
    const int type = GENERATE(int{kPing}, int{kSettings}, int{kPriority}, 0x77, int{kData});
    CAPTURE(type);
    const auto control = [&](int) { return Frame(static_cast<uint8_t>(type), 0, 0); };
    // The client's SETTINGS were the first.
    CHECK(followed.Flood(10000, control, &why) == limits.control.at_once - 1);
    CHECK(why == "too many PING, SETTINGS or empty frames");
  }
  SECTION("control frames that come at the pace") {
    for (int i = 0; i < 10000; ++i) {
      REQUIRE(followed.Receive(Frame(kPing, 0, 0, std::string(8, 'p'))).empty());
      followed.Wait(absl::Seconds(1 / limits.control.per_second));
    }
  }
  SECTION("answers to the server's own pings") {
    CHECK(followed.Flood(
              10000, [](int) { return Frame(kPing, 1, 0, std::string(8, 'p')); }, &why) == 10000);
  }
  SECTION("small frames of any type") {
    const int most = static_cast<int>(limits.small.at_once);
    const int passed = followed.Flood(
        2 * most, [](int) { return Frame(kWindow, 0, 0, Error(1)); }, &why);
    CHECK(passed > most - 100);
    CHECK(passed <= most);
    CHECK(why == "too many small frames");
  }
}

}  // namespace
}  // namespace tessera
