// CoreAgreement: to and from the coordinator's state.
#include "absl/strings/str_cat.h"
#include "server/core/core_agreement.h"
#include "server/core/core_messages.h"

namespace tessera {

v1::CoreAgreementState CoreAgreement::Save() const {
  v1::CoreAgreementState state;
  state.set_core(core_);
  state.set_stage(static_cast<uint32_t>(stage_));
  for (const bool answered : answered_) state.add_answered(answered);
  if (selected_) state.set_selected(*selected_);
  for (const CoreQuestion& question : questions_) *state.add_questions() = ToMessage(question);
  for (const MagnitudeSums& sums : sums_) {
    v1::CoreAgreementState::Sums& entry = *state.add_sums();
    entry.set_w(sums.w);
    entry.set_g(sums.g);
  }
  state.set_bucket_count(static_cast<uint32_t>(counts_.size()));
  for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    if (counts_[bucket] == 0) continue;
    state.add_buckets(static_cast<uint32_t>(bucket));
    state.add_counts(counts_[bucket]);
  }
  for (const std::vector<uint64_t>& ties : ties_) {
    state.add_ties()->mutable_of()->Add(ties.begin(), ties.end());
  }
  state.set_above(above_);
  return state;
}

absl::Status CoreAgreement::Load(const v1::CoreAgreementState& state) {
  const int servers = options_.servers;
  const bool is_right = state.stage() <= static_cast<uint32_t>(CoreStage::kDone) &&
                        state.answered_size() == servers && state.questions_size() == servers &&
                        state.sums_size() == servers && state.ties_size() == servers &&
                        (state.bucket_count() == 0 || state.bucket_count() == kCoarseBuckets ||
                         state.bucket_count() == kFineBuckets) &&
                        state.buckets_size() == state.counts_size();
  if (!is_right) {
    return absl::InvalidArgumentError(
        absl::StrCat("core is in stage ", state.stage(), " among ", state.answered_size(),
                     " servers, want ", servers, ", with ", state.bucket_count(), " counts"));
  }
  core_ = state.core();
  stage_ = static_cast<CoreStage>(state.stage());
  selected_.reset();
  if (state.has_selected()) selected_ = state.selected();
  for (int s = 0; s < servers; ++s) {
    answered_[s] = state.answered(s);
    questions_[s] = FromMessage(state.questions(s));
    sums_[s] = {state.sums(s).w(), state.sums(s).g()};
    ties_[s].assign(state.ties(s).of().begin(), state.ties(s).of().end());
  }
  counts_.assign(state.bucket_count(), 0);
  for (int i = 0; i < state.buckets_size(); ++i) {
    if (state.buckets(i) >= counts_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("core has a bucket ", state.buckets(i)));
    }
    counts_[state.buckets(i)] = state.counts(i);
  }
  above_ = state.above();
  return absl::OkStatus();
}

}  // namespace tessera
