#include "worker/rejoin.h"

#include <utility>

namespace tessera {
namespace {

constexpr absl::Duration kNoticeMargin = absl::Seconds(1);

}  // namespace

RejoinQuestion::RejoinQuestion(absl::Status why, absl::Duration lease, absl::Time now)
    : why_(std::move(why)),
      notice_after_(2 * lease + kNoticeMargin),
      notice_(now + notice_after_) {}

bool RejoinQuestion::may_be_server() const {
  return absl::IsUnavailable(why_) || absl::IsAborted(why_) || absl::IsFailedPrecondition(why_) ||
         absl::IsCancelled(why_);
}

RejoinQuestion::Answer RejoinQuestion::OnWord(const absl::StatusOr<v1::RenewReply>& word,
                                              bool may_return, absl::Time now) {
  if (!word.ok()) {
    // The coordinator was with the server that is lost, and comes back with it.
    if (may_return) notice_ = now + notice_after_;
    // A connection that breaks is no word; the renewals tell how long it may last.
    const bool asks_again = may_return || (absl::IsUnavailable(word.status()) && now <= notice_);
    return asks_again ? Answer::kAskAgain : Answer::kEnd;
  }
  if (word->rejoin()) return Answer::kJoinAgain;
  if (word->paused()) return Answer::kAskAgain;
  // A server that refuses is there: what it said is this worker's end.
  return absl::IsFailedPrecondition(why_) || now > notice_ ? Answer::kEnd : Answer::kAskAgain;
}

}  // namespace tessera
