#include "worker/client/turns.h"

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"

namespace tessera {

absl::string_view FunctionFor(Want want) {
  switch (want) {
    case Want::kNothing:
      return "tessera_wait";
    case Want::kValues:
      return "tessera_pull";
    case Want::kMinibatch:
      return "tessera_step";
    case Want::kExchange:
      return "tessera_exchange";
    case Want::kScores:
      return "tessera_evaluate";
    case Want::kState:
      return "tessera_save_state";
    case Want::kEnd:
      return "tessera_close";
  }
  return "tessera_close";
}

absl::Status Turns::Ask(Want want) {
  absl::MutexLock lock(&mutex_);
  if (!cancelled_.ok()) return cancelled_;
  want_ = want;
  ++question_;
  answered_ = false;
  asked_.Notify();
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return answered_ || !cancelled_.ok();
  };
  mutex_.Await(absl::Condition(&is_over));
  want_ = Want::kNothing;
  // An answer that came first counts: its arrays are the caller's latest.
  return answered_ ? absl::OkStatus() : cancelled_;
}

void Turns::BeginAgain() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = absl::OkStatus();
}

void Turns::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  want_ = Want::kEnd;
  ++question_;
  answered_ = false;
  end_ = status;
  asked_.Notify();
}

void Turns::SetWaitingFor(absl::string_view whom) {
  absl::MutexLock lock(&mutex_);
  waiting_for_ = std::string(whom);
}

void Turns::Cancel(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (want_ != Want::kEnd) cancelled_ = why;
}

absl::Status Turns::Answer(Want want, absl::FunctionRef<void()> answer) {
  absl::MutexLock lock(&mutex_);
  if (shown_ != want) {
    if (shown_ == Want::kNothing) {
      return absl::FailedPreconditionError(absl::StrCat(
          FunctionFor(want),
          ": a call is in progress, or ran into its timeout; go on with tessera_wait"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        FunctionFor(want), ": not now; the last verdict asks for ", FunctionFor(shown_)));
  }
  shown_ = Want::kNothing;
  // A question that was withdrawn meanwhile is answered into the void: the caller learns of the next one from Await.
  const bool stands = want_ == want && question_ == shown_question_ && cancelled_.ok();
  if (!stands) return absl::OkStatus();
  answer();
  answered_ = true;
  want_ = Want::kNothing;
  return absl::OkStatus();
}

bool Turns::IsAsked() const {
  if (want_ == Want::kEnd) return true;
  return want_ != Want::kNothing && !answered_ && cancelled_.ok();
}

absl::Status Turns::Await(absl::Duration timeout, Want* want) {
  const absl::Time deadline = SteadyNow() + timeout;
  bool in_time = true;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (IsAsked()) {
        shown_ = want_;
        shown_question_ = question_;
        *want = want_;
        return absl::OkStatus();
      }
      if (!in_time) {
        return absl::DeadlineExceededError(
            absl::StrCat("waiting for ",
                         waiting_for_.empty() ? "the servers and the other workers" : waiting_for_,
                         "; tessera_wait goes on with it"));
      }
    }
    in_time = asked_.WaitUntil(deadline);
  }
}

Want Turns::shown() const {
  absl::MutexLock lock(&mutex_);
  return shown_;
}

absl::Status Turns::end() const {
  absl::MutexLock lock(&mutex_);
  return end_;
}

}  // namespace tessera
