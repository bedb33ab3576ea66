#include "worker/rpc/retry.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"

namespace tessera {
namespace {

using Verdict = Retry::Verdict;
constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
const absl::Time kBegin = absl::UnixEpoch();

// Fails at every moment that is due, so many times. Returns the pauses.
std::vector<absl::Duration> Pauses(Retry* retry, int count) {
  std::vector<absl::Duration> pauses;
  absl::Time now = kBegin;
  for (int i = 0; i < count; ++i) {
    REQUIRE(retry->OnFailure(kUnavailable, now) == Verdict::kAgain);
    pauses.push_back(retry->due() - now);
    now = retry->due();
  }
  return pauses;
}

TEST_CASE("pauses double up to the longest, and are at least half of that", "[retry]") {
  Retry retry(ServerRetry(absl::InfiniteDuration()), MemberId(3));
  CHECK(retry.due() == absl::InfinitePast());
  absl::Duration longest = absl::Milliseconds(10);
  for (const absl::Duration pause : Pauses(&retry, 40)) {
    CHECK(pause <= longest);
    CHECK(pause >= longest / 2);
    longest = std::min(absl::Seconds(1), 2 * longest);
  }
  CHECK(retry.failures() == 40);
}

TEST_CASE(
    "callers that fail at the same moment come back at different ones, each always at the same",
    "[retry]") {
  std::set<absl::Duration> firsts;
  for (uint64_t number = 0; number < 100; ++number) {
    // Of ten workers, each of which calls ten servers.
    const MemberId caller(number / 10);
    Retry retry(CoordinatorRetry(absl::InfiniteDuration()), caller, number % 10);
    Retry again(CoordinatorRetry(absl::InfiniteDuration()), caller, number % 10);
    const std::vector<absl::Duration> pauses = Pauses(&retry, 3);
    CHECK(Pauses(&again, 3) == pauses);
    firsts.insert(pauses[0]);
  }
  CHECK(firsts.size() > 95);
  CHECK(*firsts.rbegin() - *firsts.begin() > absl::Milliseconds(20));  // Of 25.
}

TEST_CASE("the time counts from the first failure, and the last attempt is when it is over",
          "[retry]") {
  Retry retry(ServerRetry(absl::Seconds(10)), MemberId(1));
  absl::Time now = kBegin + absl::Hours(1);  // As long as the first attempt took.
  const absl::Time end = now + absl::Seconds(10);
  while (retry.OnFailure(kUnavailable, now) == Verdict::kAgain) {
    REQUIRE(now < end);
    REQUIRE(retry.due() <= end);
    now = retry.due();
  }
  CHECK(now == end);
}

TEST_CASE("time that counts from a moment that is named is over sooner", "[retry]") {
  Retry retry(CoordinatorRetry(absl::Seconds(3)), MemberId(1));
  retry.CountFrom(kBegin);
  CHECK(retry.OnFailure(kUnavailable, kBegin + absl::Milliseconds(2999)) == Verdict::kAgain);
  CHECK(retry.due() == kBegin + absl::Seconds(3));
  CHECK(retry.OnFailure(kUnavailable, retry.due()) == Verdict::kLate);
}

TEST_CASE("whoever is forgiven has the whole time again, and no shorter pauses", "[retry]") {
  Retry retry(ServerRetry(absl::Seconds(1)), MemberId(1));
  for (int i = 0; i < 20; ++i) retry.OnFailure(kUnavailable, kBegin);
  retry.Forgive();
  const absl::Time later = kBegin + absl::Seconds(5);
  CHECK(retry.OnFailure(kUnavailable, later) == Verdict::kAgain);
  CHECK(retry.due() - later >= absl::Milliseconds(500));
  CHECK(retry.OnFailure(kUnavailable, later + absl::Milliseconds(999)) == Verdict::kAgain);
  CHECK(retry.OnFailure(kUnavailable, later + absl::Seconds(1)) == Verdict::kLate);
}

TEST_CASE("another one is called at once, and its failures are counted anew", "[retry]") {
  Retry retry(LayerWorkerRetry(absl::Seconds(1)), MemberId(1));
  for (int i = 0; i < 20; ++i) retry.OnFailure(kUnavailable, kBegin);
  retry.Restart();
  CHECK(retry.failures() == 0);
  CHECK(retry.due() == absl::InfinitePast());
  const absl::Time later = kBegin + absl::Seconds(5);
  CHECK(retry.OnFailure(kUnavailable, later) == Verdict::kAgain);
  CHECK(retry.due() - later <= absl::Milliseconds(20));
}

TEST_CASE("what no other attempt can change is not tried again", "[retry]") {
  struct Case {
    RetryPolicy policy;
    std::set<absl::StatusCode> again;
  };
  using Code = absl::StatusCode;
  const Case cases[] = {
      {ServerRetry(absl::Seconds(1)),
       {Code::kUnavailable, Code::kAborted, Code::kResourceExhausted, Code::kCancelled,
        Code::kUnimplemented}},
      {LayerWorkerRetry(absl::Seconds(1)),
       {Code::kCancelled, Code::kUnknown, Code::kDeadlineExceeded, Code::kNotFound,
        Code::kAlreadyExists, Code::kResourceExhausted, Code::kFailedPrecondition, Code::kAborted,
        Code::kOutOfRange, Code::kUnimplemented, Code::kInternal, Code::kUnavailable,
        Code::kDataLoss}},
      {CoordinatorRetry(absl::Seconds(1)),
       {Code::kUnavailable, Code::kDeadlineExceeded, Code::kAborted}},
  };
  for (const Case& c : cases) {
    for (int value = 1; value <= 16; ++value) {
      const auto code = static_cast<Code>(value);
      INFO(absl::StatusCodeToString(code));
      Retry retry(c.policy, MemberId(1));
      CHECK(retry.OnFailure(code, kBegin) ==
            (c.again.count(code) > 0 ? Verdict::kAgain : Verdict::kRefused));
    }
  }
}

}  // namespace
}  // namespace tessera
