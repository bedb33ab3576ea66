// When a host that asks again and again gets its next reply.
#include "server/rpc/reply_pace.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

constexpr int64_t kReply = 100'000 - ReplyPace::kCallBytes;
constexpr absl::Duration kPatience = absl::Seconds(2);

TEST_CASE("a host has so many bytes a second, and others have their own",
          "[rpc][status][strangers]") {
  // Ten replies a second, two of them at once.
  ReplyPace pace({1'000'000, 200'000});
  absl::Time now = absl::FromUnixSeconds(1000);
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::ZeroDuration());
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::ZeroDuration());
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::ZeroDuration());
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::Milliseconds(100));
  CHECK(pace.Take(2, kReply, now, kPatience) == absl::ZeroDuration());
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += pace.Take(1, kReply, now, kPatience) < kPatience;
  // It is not made to wait for what it was refused.
  CHECK(taken == 18);
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::InfiniteDuration());
  now += absl::Seconds(10);
  CHECK(pace.Take(1, kReply, now, kPatience) == absl::ZeroDuration());
}

TEST_CASE("hosts that owe nothing are forgotten", "[rpc][status][strangers]") {
  ReplyPace pace({1'000'000, 0});
  absl::Time now = absl::FromUnixSeconds(1000);
  for (uint64_t host = 0; host < 5000; ++host) {
    CHECK(pace.Take(host, kReply, now, kPatience) == absl::ZeroDuration());
    now += absl::Milliseconds(1);
  }
  CHECK(pace.hosts() < 2000);
}

}  // namespace
}  // namespace tessera
