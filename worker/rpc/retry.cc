#include "worker/rpc/retry.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

// Doublings; there a pause has long been as long as it gets.
// 2^10 pauses of 10 ms are above the longest pause.
constexpr int kDoublingsMax = 10;
// What is left of a pause at least.
constexpr double kPauseShareMin = 0.5;

bool ServerMayAnswer(absl::StatusCode code) {
  // A server that restarts, or is behind, answers so for a while; UNIMPLEMENTED another program, which has the port of
  // one that is gone.
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kCancelled ||
         code == absl::StatusCode::kUnimplemented;
}

bool LayerWorkerMayAnswer(absl::StatusCode code) {
  // What is wrong with the batch, or must be set right by people. Whatever else comes may pass, or be from a program
  // that has the port of one that is gone, until the coordinator says who has taken its place.
  return code != absl::StatusCode::kInvalidArgument && code != absl::StatusCode::kUnauthenticated &&
         code != absl::StatusCode::kPermissionDenied;
}

bool CoordinatorMayAnswer(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kAborted;
}

// Numbers that follow each other are far apart in what comes of them.
// std::seed_seq spreads the bits, as members are numbered one by one.
std::minstd_rand RandomOf(uint64_t caller, uint64_t call) {
  std::seed_seq seed = {static_cast<uint32_t>(caller), static_cast<uint32_t>(caller >> 32),
                        static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32)};
  return std::minstd_rand(seed);
}

}  // namespace

RetryPolicy ServerRetry(absl::Duration time) {
  return {time, absl::Milliseconds(10), absl::Seconds(1), ServerMayAnswer};
}

RetryPolicy LayerWorkerRetry(absl::Duration time) {
  return {time, absl::Milliseconds(20), absl::Seconds(1), LayerWorkerMayAnswer};
}

RetryPolicy CoordinatorRetry(absl::Duration time) {
  return {time, absl::Milliseconds(50), absl::Milliseconds(50), CoordinatorMayAnswer};
}

Retry::Retry(RetryPolicy policy, MemberId caller, uint64_t call)
    : policy_(policy), caller_(caller), call_(call) {
  TESSERA_CHECK(policy.time > absl::ZeroDuration());
}

Retry::Verdict Retry::OnFailure(absl::StatusCode code, absl::Time now) {
  ++failures_;
  if (!policy_.may_help(code)) return Verdict::kRefused;
  if (give_up_ == absl::InfiniteFuture()) CountFrom(now);
  if (now >= give_up_) return Verdict::kLate;
  // The last attempt is due when the time is over, and not later.
  due_ = std::min(now + NextPause(), give_up_);
  return Verdict::kAgain;
}

void Retry::Restart() {
  failures_ = 0;
  give_up_ = absl::InfiniteFuture();
  due_ = absl::InfinitePast();
}

absl::Duration Retry::NextPause() {
  if (!random_) random_ = RandomOf(caller_.value(), call_);
  const int doublings = std::min(failures_ - 1, kDoublingsMax);
  // Half of a pause is fixed, so that servers are not asked at once, the other half is drawn, so that not all ask
  // together.
  const absl::Duration pause = std::min(policy_.pause_max, policy_.pause_min * (1 << doublings));
  return pause * std::uniform_real_distribution<double>(kPauseShareMin, 1)(*random_);
}

}  // namespace tessera
