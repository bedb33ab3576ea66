#include "worker/client/turns.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(20);

// What the worker's thread got, for the test's own to look at when it has ended: Catch is no matter of several threads.
using Answers = std::vector<absl::Status>;

TEST_CASE("the worker's thread waits for the caller's answer, and the caller for its question") {
  Turns turns;
  int answer = 0, answer_seen = 0;
  Answers answers;
  std::thread worker([&] {
    answers.push_back(turns.Ask(Want::kMinibatch));
    answer_seen = answer;
    answers.push_back(turns.Ask(Want::kExchange));
    turns.End(absl::OkStatus());
  });
  Want want = Want::kNothing;
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kMinibatch);
  CHECK(turns.Answer(Want::kMinibatch, [&] { answer = 7; }).ok());
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kExchange);
  CHECK(turns.Answer(Want::kExchange, [] {}).ok());
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kEnd);
  worker.join();
  CHECK(answers == Answers(2));
  CHECK(answer_seen == 7);
}

TEST_CASE("an answer to another question is refused and changes nothing") {
  Turns turns;
  absl::Status answered = absl::UnknownError("");
  std::thread worker([&] {
    answered = turns.Ask(Want::kMinibatch);
    turns.End(absl::OkStatus());
  });
  Want want = Want::kNothing;
  REQUIRE(turns.Await(kLong, &want).ok());
  const absl::Status wrong = turns.Answer(Want::kExchange, [] { FAIL("it was written"); });
  CHECK(absl::IsFailedPrecondition(wrong));
  CHECK(wrong.message() == "tessera_exchange: not now; the last verdict asks for tessera_step");
  CHECK(turns.Answer(Want::kMinibatch, [] {}).ok());
  // The answer is given: another one has no question.
  CHECK(absl::IsFailedPrecondition(turns.Answer(Want::kMinibatch, [] {})));
  REQUIRE(turns.Await(kLong, &want).ok());
  worker.join();
  CHECK(answered.ok());
}

TEST_CASE("Cancel ends a question; its answer is not written, and the next question stands") {
  Turns turns;
  Answers answers;
  std::thread worker([&] {
    answers.push_back(turns.Ask(Want::kMinibatch));
    answers.push_back(turns.Ask(Want::kExchange));  // lost, too, until BeginAgain
    turns.BeginAgain();
    answers.push_back(turns.Ask(Want::kValues));
    turns.End(absl::AbortedError("over"));
  });
  Want want = Want::kNothing;
  REQUIRE(turns.Await(kLong, &want).ok());
  turns.Cancel(absl::AbortedError("lost"));
  CHECK(turns.Answer(Want::kMinibatch, [] { FAIL("it was written"); }).ok());
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kValues);
  CHECK(turns.Answer(Want::kValues, [] {}).ok());
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kEnd);
  CHECK(turns.end().message() == "over");
  worker.join();
  const absl::Status lost = absl::AbortedError("lost");
  CHECK(answers == Answers{lost, lost, absl::OkStatus()});
}

TEST_CASE("Await says for whom it waits when its time is over, and may be called again") {
  Turns turns;
  Want want = Want::kNothing;
  turns.SetWaitingFor("server 1");
  const absl::Status late = turns.Await(kShort, &want);
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(late.message() == "waiting for server 1; tessera_wait goes on with it");
  // Until the next question there is nothing to answer.
  CHECK(absl::IsFailedPrecondition(turns.Answer(Want::kMinibatch, [] {})));
  absl::Status answered = absl::UnknownError("");
  std::thread worker([&] {
    answered = turns.Ask(Want::kMinibatch);
    turns.End(absl::OkStatus());
  });
  REQUIRE(turns.Await(kLong, &want).ok());
  CHECK(want == Want::kMinibatch);
  CHECK(turns.Answer(Want::kMinibatch, [] {}).ok());
  worker.join();
  CHECK(answered.ok());
}

TEST_CASE("after End nothing is cancelled, and what the thread came to stays") {
  Turns turns;
  turns.End(absl::NotFoundError("the job file"));
  turns.Cancel(absl::CancelledError("too late"));
  Want want = Want::kNothing;
  REQUIRE(turns.Await(kShort, &want).ok());
  CHECK(want == Want::kEnd);
  CHECK(absl::IsNotFound(turns.end()));
}

}  // namespace
}  // namespace tessera
