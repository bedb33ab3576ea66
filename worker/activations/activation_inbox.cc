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

absl::Time ActivationInbox::TellOfWait(uint64_t step, Generation plan, absl::Time since, int told) {
  if (told == 0) return since + kShortWait;
  if (told == 1) on_wait_();
  if (told >= 2) {
    std::vector<Rank> missing;
    bool has_plan = false;
    {
      absl::MutexLock lock(&mutex_);
      missing = queue_.Missing();
      has_plan = queue_.Has(plan);
    }
    std::string names = absl::StrJoin(missing, ", ", [](std::string* text, Rank rank) {
      absl::StrAppend(text, "worker ", rank.value());
    });
    if (names.empty()) names = "workers with data, of which none is left";
    if (!has_plan) names = absl::StrCat("those of plan ", plan.value(), ", of which the coordinator has yet to tell,");
    Log(LogLevel::kInfo,
        absl::StrCat("worker: waits for activations of step ", step, " from ", names, " since ",
                     absl::FormatDuration(absl::Trunc(SteadyNow() - since, absl::Seconds(1)))));
  }
  return since + kTellEvery * told;
}

absl::StatusOr<const ActivationReceiver::Batch*> ActivationInbox::Next(uint64_t step, Generation plan) {
  const absl::Time since = SteadyNow();
  int told = 0;
  absl::Time tell_at = TellOfWait(step, plan, since, told);
  bool has_asked = false;
  while (true) {
    std::vector<DueAnswer> late;
    ActivationQueue::Turn turn;
    {
      absl::MutexLock lock(&mutex_);
      if (cancelled_) return absl::CancelledError("activations: cancelled");
      turn = queue_.Take(step, plan);
      if (turn == ActivationQueue::Turn::kBatch) return &queue_.batch();
      if (turn == ActivationQueue::Turn::kOver) late = queue_.TakeLate();
    }
    for (const DueAnswer& due : late) due.Send();
    if (turn == ActivationQueue::Turn::kOver) return nullptr;
    if (turn == ActivationQueue::Turn::kNoPlan && !std::exchange(has_asked, true)) on_wait_();
    if (SteadyNow() >= tell_at) tell_at = TellOfWait(step, plan, since, ++told);
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
