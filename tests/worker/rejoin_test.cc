#include "worker/rejoin.h"

#include <catch2/catch.hpp>

#include <utility>

namespace tessera {
namespace {

using Answer = RejoinQuestion::Answer;

const absl::Time kBegin = absl::FromUnixSeconds(1000);
constexpr absl::Duration kLease = absl::Seconds(10);
// The coordinator has known for a lease by then.
const absl::Time kKnown = kBegin + 2 * kLease + absl::Seconds(1);
const absl::Time kLater = kKnown + absl::Nanoseconds(1);

RejoinQuestion After(absl::Status why) { return RejoinQuestion(std::move(why), kLease, kBegin); }

v1::RenewReply Word(bool paused = false, bool rejoin = false) {
  v1::RenewReply word;
  word.set_paused(paused);
  word.set_rejoin(rejoin);
  return word;
}

TEST_CASE("a worker asks only where a server may have ended its training", "[rejoin]") {
  CHECK(After(absl::UnavailableError("")).may_be_server());
  CHECK(After(absl::AbortedError("")).may_be_server());
  CHECK(After(absl::CancelledError("")).may_be_server());
  CHECK(After(absl::FailedPreconditionError("")).may_be_server());
  CHECK_FALSE(After(absl::InternalError("")).may_be_server());
  CHECK_FALSE(After(absl::InvalidArgumentError("")).may_be_server());
  CHECK_FALSE(After(absl::ResourceExhaustedError("")).may_be_server());
}

TEST_CASE("it asks until the coordinator must know of a server that is lost", "[rejoin]") {
  RejoinQuestion question = After(absl::UnavailableError("server 1 is gone"));
  CHECK(question.OnWord(Word(), false, kBegin) == Answer::kAskAgain);
  CHECK(question.OnWord(Word(), false, kKnown) == Answer::kAskAgain);
  // All servers are there: the error was this worker's own.
  CHECK(question.OnWord(Word(), false, kLater) == Answer::kEnd);
}

TEST_CASE("a job that has gone back is joined again, whenever that is heard", "[rejoin]") {
  RejoinQuestion question = After(absl::UnavailableError("server 1 is gone"));
  CHECK(question.OnWord(Word(false, true), false, kBegin) == Answer::kJoinAgain);
  CHECK(question.OnWord(Word(true, true), false, kLater) == Answer::kJoinAgain);
  CHECK(
      After(absl::FailedPreconditionError("no member")).OnWord(Word(false, true), false, kLater) ==
      Answer::kJoinAgain);
}

TEST_CASE("a job that waits for a server is waited for, however long", "[rejoin]") {
  CHECK(After(absl::UnavailableError("")).OnWord(Word(true), false, kLater) == Answer::kAskAgain);
  CHECK(After(absl::FailedPreconditionError("")).OnWord(Word(true), false, kLater) ==
        Answer::kAskAgain);
}

TEST_CASE("what a server that is there refuses ends the worker", "[rejoin]") {
  CHECK(After(absl::FailedPreconditionError("")).OnWord(Word(), false, kBegin) == Answer::kEnd);
}

TEST_CASE("a call that is lost is no word", "[rejoin]") {
  RejoinQuestion question = After(absl::UnavailableError("server 1 is gone"));
  const absl::Status lost = absl::UnavailableError("connection reset");
  CHECK(question.OnWord(lost, false, kBegin) == Answer::kAskAgain);
  CHECK(question.OnWord(lost, false, kKnown) == Answer::kAskAgain);
  CHECK(question.OnWord(Word(false, true), false, kKnown) == Answer::kJoinAgain);
  CHECK(question.OnWord(lost, false, kLater) == Answer::kEnd);
}

TEST_CASE("a refusal of the coordinator is one", "[rejoin]") {
  RejoinQuestion question = After(absl::UnavailableError("server 1 is gone"));
  CHECK(question.OnWord(absl::FailedPreconditionError("not a member"), false, kBegin) ==
        Answer::kEnd);
}

TEST_CASE("a coordinator that is away with the server has as long as ever when it is back",
          "[rejoin]") {
  RejoinQuestion question = After(absl::UnavailableError("server 0 is gone"));
  const absl::Status away = absl::DeadlineExceededError("no answer");
  CHECK(question.OnWord(away, true, kLater) == Answer::kAskAgain);
  const absl::Time known = kLater + 2 * kLease + absl::Seconds(1);
  CHECK(question.OnWord(Word(), false, known) == Answer::kAskAgain);
  CHECK(question.OnWord(Word(), false, known + absl::Nanoseconds(1)) == Answer::kEnd);
}

}  // namespace
}  // namespace tessera
