#include "server/core/core_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/core/core_messages.h"

namespace tessera {
namespace {

// The weight c of |g| in the significance |w| + c |g|: the job's own, or the one that gives both the same share over
// the whole model. 0 where the gradient is 0 or not finite: then the weights alone decide.
float WeightOf(double wanted, const std::vector<MagnitudeSums>& sums) {
  if (wanted > 0) return static_cast<float>(wanted);
  MagnitudeSums all;
  for (const MagnitudeSums& s : sums) {
    all.w += s.w;
    all.g += s.g;
  }
  const double weight = all.g > 0 ? all.w / all.g : 0;
  return std::isfinite(weight) ? static_cast<float>(weight) : 0;
}

}  // namespace

CoreAgreement::CoreAgreement(const Options& options)
    : options_(options),
      answered_(options.servers),
      questions_(options.servers),
      sums_(options.servers),
      ties_(options.servers) {}

// A report comes from another process and is used as indices: everything in it is checked.
bool CoreAgreement::IsSound(const CoreReport& report) const {
  if (report.buckets.size() != report.counts.size()) return false;
  if (report.above > options_.entries) return false;
  const uint32_t end = report.stage == CoreStage::kFine ? kFineBuckets : kCoarseBuckets;
  uint64_t sum = report.above;
  for (size_t i = 0; i < report.buckets.size(); ++i) {
    if (report.buckets[i] >= end || report.counts[i] > options_.entries) return false;
    // Buckets ascend, so that none is counted twice.
    if (i > 0 && report.buckets[i] <= report.buckets[i - 1]) return false;
    sum += report.counts[i];
  }
  if (sum > options_.entries) return false;
  if (report.stage == CoreStage::kTies) {
    return static_cast<int>(report.ties.size()) == options_.parameters;
  }
  return report.stage != CoreStage::kDone;
}

CoreAgreement::Questions CoreAgreement::OnReport(ShardId server, const CoreReport& report) {
  if (server.value() >= answered_.size() || !IsSound(report)) return {};
  // The outcome got lost on the way to it.
  // The server asks again for what it has not heard: the answer to its last question.
  if (selected_.has_value() && report.core == *selected_) {
    return {{server, QuestionAfter(report.stage, server)}};
  }
  // A core was for exchanges that nobody was left to make.
  if (report.core > core_ && report.stage == CoreStage::kSums) Begin(report.core);
  if (report.core != core_) return {};
  // A server that was started anew goes through the stages again, by the questions that the others had.
  if (report.stage < stage_) return {{server, QuestionAfter(report.stage, server)}};
  if (report.stage != stage_ || answered_[server.value()]) return {};
  // One report of each server and stage counts; a repeated one would be added twice.
  Take(server, report);
  answered_[server.value()] = true;
  if (std::find(answered_.begin(), answered_.end(), false) != answered_.end()) return {};
  Advance();
  return AskAll();
}

// The first stage waits for nobody by itself: servers report their sums when an exchange comes that wants a core.
std::vector<ShardId> CoreAgreement::Missing() const {
  const bool has_begun = std::find(answered_.begin(), answered_.end(), true) != answered_.end();
  if (stage_ == CoreStage::kSums && !has_begun) return {};
  std::vector<ShardId> missing;
  for (size_t i = 0; i < answered_.size(); ++i) {
    if (!answered_[i]) missing.push_back(ShardId(i));
  }
  return missing;
}

// Earlier questions follow from the last: of the buckets that they asked for, the one that the last core entry
// was found in is enough.
CoreQuestion CoreAgreement::QuestionAfter(CoreStage stage, ShardId server) const {
  const CoreQuestion& last = questions_[server.value()];
  CoreStage next = last.stage;
  if (stage == CoreStage::kSums) next = CoreStage::kSample;
  if (stage == CoreStage::kSample) next = CoreStage::kCoarse;
  if (stage == CoreStage::kCoarse && last.stage > CoreStage::kFine) next = CoreStage::kFine;
  if (stage == CoreStage::kWide) next = CoreStage::kFine;
  if (stage == CoreStage::kFine && !last.all_ties) next = CoreStage::kTies;
  if (next >= last.stage) return last;
  CoreQuestion question = last;
  question.stage = next;
  question.all_ties = false;
  question.ties.clear();
  if (next == CoreStage::kSample) question.buckets = BucketRange();
  if (next < CoreStage::kTies) question.fine = 0;
  return question;
}

void CoreAgreement::Take(ShardId server, const CoreReport& report) {
  switch (report.stage) {
    case CoreStage::kSums:
      sums_[server.value()] = {report.weight_sum, report.gradient_sum};
      break;
    case CoreStage::kSample:
    case CoreStage::kCoarse:
    case CoreStage::kWide:
    case CoreStage::kFine:
      above_ += report.above;
      for (size_t i = 0; i < report.buckets.size(); ++i) {
        counts_[report.buckets[i]] += report.counts[i];
      }
      break;
    case CoreStage::kTies:
      ties_[server.value()] = report.ties;
      break;
    case CoreStage::kDone:
      break;
  }
}

// The stage begins without answers of anybody.
void CoreAgreement::Begin(uint64_t core) {
  ++changes_;
  core_ = core;
  stage_ = CoreStage::kSums;
  answered_.assign(answered_.size(), false);
}

bool CoreAgreement::IsIn(const BucketRange& range) const {
  // The sample gave a range of buckets that the last core entry is likely in. It is in it where no more than wanted lie
  // above, and enough in or above.
  if (above_ > options_.core_entries) return false;
  uint64_t reached = above_;
  for (uint32_t bucket = range.first; bucket <= range.last; ++bucket) reached += counts_[bucket];
  return reached >= options_.core_entries;
}

void CoreAgreement::Advance() {
  ++changes_;
  answered_.assign(answered_.size(), false);
  CoreQuestion next = questions_.front();
  const uint64_t wanted = options_.core_entries;
  switch (stage_) {
    case CoreStage::kSums:
      next = CoreQuestion();
      next.core = core_;
      next.gradient_weight = WeightOf(options_.gradient_weight, sums_);
      counts_.assign(kCoarseBuckets, 0);
      above_ = 0;
      stage_ = CoreStage::kSample;
      break;
    // The counts of a sample say where to look; those of all entries follow.
    case CoreStage::kSample:
      next.buckets = RangeOf(counts_, wanted, options_.entries);
      counts_.assign(kCoarseBuckets, 0);
      stage_ = CoreStage::kCoarse;
      break;
    case CoreStage::kCoarse:
      // The range missed: all buckets are counted, which is slower and certain.
      if (!IsIn(next.buckets)) {
        next.buckets = BucketRange();
        counts_.assign(kCoarseBuckets, 0);
        above_ = 0;
        stage_ = CoreStage::kWide;
        break;
      }
      [[fallthrough]];
    // One bucket of the upper 16 bits is left, and its entries are counted by the lower 16.
    case CoreStage::kWide: {
      const Threshold threshold = FindThreshold(counts_, wanted - above_);
      next.buckets = {threshold.bucket, threshold.bucket};
      above_ += threshold.above;
      counts_.assign(kFineBuckets, 0);
      stage_ = CoreStage::kFine;
      break;
    }
    case CoreStage::kFine: {
      const Threshold threshold = FindThreshold(counts_, wanted - above_);
      next.fine = threshold.bucket;
      above_ += threshold.above;
      // All entries of the last value belong to the core, so that nobody needs to say which.
      next.all_ties = counts_[next.fine] == wanted - above_;
      stage_ = next.all_ties ? CoreStage::kDone : CoreStage::kTies;
      break;
    }
    case CoreStage::kTies:
    case CoreStage::kDone:
      stage_ = CoreStage::kDone;
      break;
  }
  next.stage = stage_;
  for (CoreQuestion& question : questions_) question = next;
  if (stage_ != CoreStage::kDone) return;
  if (!next.all_ties) EndTies();
  selected_ = core_;
  // The next core begins with the sums of its exchange.
  Begin(core_ + 1);
}

// In the order of the model: by parameter, and of each by server, as their rows follow each other.
void CoreAgreement::EndTies() {
  uint64_t left = options_.core_entries - above_;
  for (CoreQuestion& question : questions_) question.ties.assign(options_.parameters, 0);
  for (int parameter = 0; parameter < options_.parameters; ++parameter) {
    for (size_t server = 0; server < ties_.size(); ++server) {
      const uint64_t taken = std::min(left, ties_[server][parameter]);
      questions_[server].ties[parameter] = taken;
      left -= taken;
    }
  }
}

CoreAgreement::Questions CoreAgreement::AskAll() const {
  Questions questions;
  for (size_t server = 0; server < questions_.size(); ++server) {
    questions.push_back({ShardId(server), questions_[server]});
  }
  return questions;
}

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
  // Most buckets are empty: only the others are kept.
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
  // The state was written by another process of this job, perhaps of another build.
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
