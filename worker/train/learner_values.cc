#include "worker/train/learner_values.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Pulls of one round that find it cut otherwise. A cut does not change once its round is open, so
// that the second pull succeeds, or the third where a server had yet to hear of a change.
constexpr int kRecutsMax = 10;

}  // namespace

absl::StatusOr<ExchangeResult> LearnerValues::Fetch(Exchange after) {
  fetch_due_ = false;
  TESSERA_ASSIGN_OR_RETURN(ExchangeResult pulled,
                           servers_.Pull(after, learner_.value_keys(), learner_.values()));
  TESSERA_ASSIGN_OR_RETURN(pulled, FollowCut(after, pulled));
  NoteExamples(pulled.job_examples);
  TESSERA_RETURN_IF_ERROR(Adopt());
  return pulled;
}

absl::StatusOr<ExchangeResult> LearnerValues::FollowCut(Exchange after, ExchangeResult pulled) {
  if (pulled.needs_all) {
    learner_.exchange_keys()->Drop();
    return servers_.Pull(after, learner_.value_keys(), learner_.values());
  }
  for (int recuts = 0; pulled.recut.has_value() || pulled.is_whole; ++recuts) {
    if (recuts == kRecutsMax) {
      return absl::InternalError(absl::StrCat("round ", after.Next().value(), ": cut otherwise ",
                                              recuts, " times in a row, want one cut"));
    }
    if (!pulled.is_whole) {
      TESSERA_RETURN_IF_ERROR(learner_.Recut(*pulled.recut));
    } else if (has_tail_) {
      TESSERA_RETURN_IF_ERROR(learner_.BeginTail());
    } else {
      return absl::InternalError(absl::StrCat("round ", after.Next().value(),
                                              ": servers say that it is of the whole model, want "
                                              "subnets to the end of this job"));
    }
    absl::StatusOr<ExchangeResult> again =
        servers_.Pull(after, learner_.value_keys(), learner_.values());
    if (!again.ok()) return again;
    again->push_seconds += pulled.push_seconds;
    again->wait_seconds += pulled.wait_seconds;
    again->pull_seconds += pulled.pull_seconds;
    pulled = *std::move(again);
  }
  return pulled;
}

absl::Status LearnerValues::Adopt() {
  TESSERA_RETURN_IF_ERROR(learner_.AdoptValues());
  progress_.SetPlace(learner_.update_keys().subnet);
  return absl::OkStatus();
}

void LearnerValues::AskCores() {
  const ExchangeKeys* const keys = learner_.exchange_keys();
  if (keys == nullptr || cores_due_) return;
  const std::optional<uint64_t> wanted = keys->wanted();
  if (!wanted.has_value()) return;
  servers_.AskCores(*wanted);
  cores_due_ = true;
}

absl::Status LearnerValues::TakeCores() {
  if (!cores_due_) return absl::OkStatus();
  cores_due_ = false;
  progress_.BeginWait();
  TESSERA_ASSIGN_OR_RETURN(Cores cores, servers_.TakeCores());
  learner_.exchange_keys()->Adopt(std::move(cores));
  progress_.phases().Enter(Phase::kCompute);
  return absl::OkStatus();
}

void LearnerValues::Tell(const ExchangeResult& pulled) {
  if (learner_.exchange_keys() != nullptr) learner_.exchange_keys()->Tell(pulled.cores);
}

}  // namespace tessera
