#include "worker/activations/activation_inbox.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

// A wait that is worth a question to the coordinator.
constexpr absl::Duration kShortWait = absl::Milliseconds(300);
constexpr absl::Duration kTellEvery = absl::Seconds(10);

}  // namespace

void ActivationInbox::SetWorkers(const v1::WorkerList& list) {
  {
    absl::MutexLock lock(&mutex_);
    queue_.SetWorkers(list);
  }
  moved_.Notify();
}

void ActivationInbox::Leave() {
  {
    absl::MutexLock lock(&mutex_);
    queue_.Leave();
  }
  moved_.Notify();
}

void ActivationInbox::Cancel() {
  std::vector<DueAnswer> all;
  {
    absl::MutexLock lock(&mutex_);
    // Calls that come later are refused.
    cancelled_ = true;
    all = queue_.TakeAll();
  }
  // Answers go out without the lock, as sending may call back.
  for (const DueAnswer& due : all) due.Send();
  moved_.Notify();
}

absl::Status ActivationInbox::Check(const ComingBatch& batch) const {
  absl::MutexLock lock(&mutex_);
  return queue_.Check(batch);
}

// Unpacking a batch takes long, and goes on without the lock: other senders are not held up.
absl::Status ActivationInbox::Deliver(const ComingBatch& batch, const Payload& payload,
                                      Answered answered) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // Options are constant.
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<ActivationQueue::Waiting> waiting,
      ActivationQueue::Unpack(queue_.options(), batch, payload, std::move(answered)));
  DueAnswer due;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) {
      return absl::UnavailableError("activations: this worker is about to end, or to join again");
    }
    due = queue_.Deliver(std::move(waiting));
  }
  due.Send();
  moved_.Notify();
  return absl::OkStatus();
}

std::string ActivationInbox::MissingNames(Generation plan) const {
  absl::MutexLock lock(&mutex_);
  if (!queue_.Has(plan)) {
    return absl::StrCat("those of plan ", plan.value(),
                        ", of which the coordinator has yet to tell,");
  }
  const std::vector<Rank> missing = queue_.Missing();
  if (missing.empty()) return "workers with data, of which none is left";
  return absl::StrJoin(missing, ", ", [](std::string* text, Rank rank) {
    absl::StrAppend(text, "worker ", rank.value());
  });
}

absl::StatusOr<const ActivationReceiver::Batch*> ActivationInbox::Next(uint64_t step,
                                                                       Generation plan) {
  const absl::Time since = SteadyNow();
  LongWait wait(since, kTellEvery);
  // Where the plan is not known it asks at once, and once more when the wait is no short one.
  bool asks_at_once = true, asks_later = true;
  while (true) {
    std::vector<DueAnswer> late;
    ActivationQueue::Turn turn;
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("activations: cancelled");
      turn = queue_.Take(step, plan);
      // The batch stays in the queue's hands until it is answered.
      if (turn == ActivationQueue::Turn::kBatch) return &queue_.batch();
      if (turn == ActivationQueue::Turn::kOver) late = queue_.TakeLate();
    }
    // Those that come too late are told, so that they go on with the next step.
    for (const DueAnswer& due : late) due.Send();
    if (turn == ActivationQueue::Turn::kOver) return nullptr;
    const absl::Time now = SteadyNow();
    if (turn == ActivationQueue::Turn::kNoPlan && std::exchange(asks_at_once, false)) on_wait_();
    if (now >= since + kShortWait && std::exchange(asks_later, false)) on_wait_();
    if (wait.IsDue(now)) {
      Log(LogLevel::kInfo, absl::StrCat("worker: waits for activations of step ", step, " from ",
                                        MissingNames(plan), " since ", wait.SoFar(now)));
    }
    // Batches, lists and Cancel wake it.
    moved_.WaitUntil(asks_later ? since + kShortWait : wait.next());
  }
}

void ActivationInbox::Answer(double loss, absl::Span<const float> gradient) {
  DueAnswer due;
  {
    absl::MutexLock lock(&mutex_);
    due = queue_.Answer(loss, gradient);
  }
  due.Send();
}

}  // namespace tessera
