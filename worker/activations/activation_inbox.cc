#include "worker/activations/activation_inbox.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/log.h"
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
    cancelled_ = true;
    all = queue_.TakeAll();
  }
  for (const DueAnswer& due : all) due.Send();
  moved_.Notify();
}

absl::Status ActivationInbox::Check(const ComingBatch& batch) const {
  absl::MutexLock lock(&mutex_);
  return queue_.Check(batch);
}

absl::Status ActivationInbox::Deliver(const ComingBatch& batch, const Payload& payload, Answered answered)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // Options are constant.
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ActivationQueue::Waiting> waiting,
                           ActivationQueue::Unpack(queue_.options(), batch, payload, std::move(answered)));
  DueAnswer due;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return absl::UnavailableError("activations: this worker is about to end, or to join again");
    due = queue_.Deliver(std::move(waiting));
  }
  due.Send();
  moved_.Notify();
  return absl::OkStatus();
}

absl::Time ActivationInbox::TellOfWait(uint64_t step, absl::Time since, int told) {
  if (told == 0) return since + kShortWait;
  if (told == 1) on_wait_();
  if (told >= 2) {
    std::vector<Rank> missing;
    {
      absl::MutexLock lock(&mutex_);
      missing = queue_.Missing();
    }
    const std::string names = absl::StrJoin(missing, ", ", [](std::string* text, Rank rank) {
      absl::StrAppend(text, "worker ", rank.value());
    });
    Log(LogLevel::kInfo,
        absl::StrCat("worker: waits for activations of step ", step, " from ",
                     names.empty() ? "workers with data, of which none is left" : names, " since ",
                     absl::FormatDuration(absl::Trunc(SteadyNow() - since, absl::Seconds(1)))));
  }
  return since + kTellEvery * told;
}

absl::StatusOr<const ActivationReceiver::Batch*> ActivationInbox::Next(uint64_t step) {
  const absl::Time since = SteadyNow();
  int told = 0;
  absl::Time tell_at = TellOfWait(step, since, told);
  while (true) {
    std::vector<DueAnswer> late;
    ActivationQueue::Turn turn;
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("activations: cancelled");
      turn = queue_.Take(step);
      if (turn == ActivationQueue::Turn::kBatch) return &queue_.batch();
      if (turn == ActivationQueue::Turn::kOver) late = queue_.TakeLate();
    }
    for (const DueAnswer& due : late) due.Send();
    if (turn == ActivationQueue::Turn::kOver) return nullptr;
    if (SteadyNow() >= tell_at) tell_at = TellOfWait(step, since, ++told);
    moved_.WaitUntil(tell_at);
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
