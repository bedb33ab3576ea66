#include "server/core/core_agreement.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

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

bool CoreAgreement::IsSound(const CoreReport& report) const {
  if (report.buckets.size() != report.counts.size()) return false;
  if (report.above > options_.entries) return false;
  const uint32_t end = report.stage == CoreStage::kFine ? kFineBuckets : kCoarseBuckets;
  uint64_t sum = report.above;
  for (size_t i = 0; i < report.buckets.size(); ++i) {
    if (report.buckets[i] >= end || report.counts[i] > options_.entries) return false;
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
  if (selected_.has_value() && report.core == *selected_) {
    return {{server, QuestionAfter(report.stage, server)}};
  }
  // A core was for exchanges that nobody was left to make.
  if (report.core > core_ && report.stage == CoreStage::kSums) Begin(report.core);
  if (report.core != core_) return {};
  if (report.stage < stage_) return {{server, QuestionAfter(report.stage, server)}};
  if (report.stage != stage_ || answered_[server.value()]) return {};
  Take(server, report);
  answered_[server.value()] = true;
  if (std::find(answered_.begin(), answered_.end(), false) != answered_.end()) return {};
  Advance();
  return AskAll();
}

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

void CoreAgreement::Begin(uint64_t core) {
  ++changes_;
  core_ = core;
  stage_ = CoreStage::kSums;
  answered_.assign(answered_.size(), false);
}

bool CoreAgreement::IsIn(const BucketRange& range) const {
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
    case CoreStage::kSample:
      next.buckets = RangeOf(counts_, wanted, options_.entries);
      counts_.assign(kCoarseBuckets, 0);
      stage_ = CoreStage::kCoarse;
      break;
    case CoreStage::kCoarse:
      if (!IsIn(next.buckets)) {
        next.buckets = BucketRange();
        counts_.assign(kCoarseBuckets, 0);
        above_ = 0;
        stage_ = CoreStage::kWide;
        break;
      }
      [[fallthrough]];
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

}  // namespace tessera
