#include "server/core/core_search.h"

#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

std::vector<uint64_t> BitsFor(int64_t size) { return std::vector<uint64_t>((size + 63) / 64); }

// May `next` be asked after `last` was answered?
// The wide count is skipped where the narrow one found the entry, and the ties where all of them belong.
bool Follows(CoreStage last, CoreStage next, bool all_ties) {
  if (static_cast<int>(next) == static_cast<int>(last) + 1) return true;
  if (last == CoreStage::kCoarse) return next == CoreStage::kFine;
  return last == CoreStage::kFine && next == CoreStage::kDone && all_ties;
}

}  // namespace

CoreSearch::CoreSearch(Options options) : options_(std::move(options)) {
  int64_t size = 0;
  for (const SignificanceRun& run : options_.runs) size += run.size;
  TESSERA_CHECK(size == options_.slices->size);
  question_.core = options_.core;
  question_.stage = CoreStage::kSums;
  working_ = true;
}

bool CoreSearch::Ask(const CoreQuestion& question) {
  if (question.core != options_.core || working_ || core_.has_value()) return false;
  // A repeated question, or one of another stage, finds the search elsewhere and is refused.
  if (!Follows(stage(), question.stage, question.all_ties)) return false;
  if (question.buckets.last >= kCoarseBuckets || question.fine >= kFineBuckets) return false;
  const bool has_ties = static_cast<int>(question.ties.size()) == options_.parameters;
  if (question.stage == CoreStage::kDone && !question.all_ties && !has_ties) return false;
  question_ = question;
  report_.reset();
  working_ = true;
  run_ = 0;
  place_ = 0;
  above_count_ = 0;
  counts_.assign(stage() == CoreStage::kFine ? kFineBuckets : kCoarseBuckets, 0);
  // Bits and values are the candidates of the last pass over all entries; later stages narrow these down.
  if (stage() == CoreStage::kCoarse || stage() == CoreStage::kWide) {
    above_ = BitsFor(options_.slices->size);
    within_ = above_;
    values_.clear();
  }
  return true;
}

bool CoreSearch::Advance() {
  if (!working_) return false;
  // What comes later is about the candidates, which are few.
  const bool reads = stage() > CoreStage::kSums && stage() <= CoreStage::kWide;
  if (reads && run_ < options_.runs.size()) {
    // A block at a time, so that pushes and reads are answered in between.
    const SignificanceRun& run = options_.runs[run_++];
    Work(run);
    place_ += run.size;
    if (run_ < options_.runs.size()) return true;
  }
  EndStage();
  working_ = false;
  return true;
}

void CoreSearch::Work(const SignificanceRun& run) {
  if (stage() == CoreStage::kSample) {
    Sample(run);
  } else {
    above_count_ += SplitAt(question_.buckets, run, question_.gradient_weight, place_,
                            above_.data(), within_.data(), &values_);
  }
}

void CoreSearch::Sample(const SignificanceRun& run) {
  // Every stride-th entry of the server's slice, wherever blocks begin, so that the sample does not depend on them.
  const int64_t stride = SampleStride(options_.entries);
  const int64_t first = (stride - place_ % stride) % stride;
  for (int64_t i = first; i < run.size; i += stride) {
    ++counts_[SignificanceAt(run, i) >> 16];
  }
}

uint32_t CoreSearch::SignificanceAt(const SignificanceRun& run, int64_t i) const {
  return SignificanceOf(run.w[i], run.g == nullptr ? 0 : run.g[i], question_.gradient_weight);
}

void CoreSearch::EndStage() {
  switch (stage()) {
    // Sums were made by the commit, and samples are counted as they are read.
    case CoreStage::kSums:
    case CoreStage::kSample:
      break;
    case CoreStage::kCoarse:
    case CoreStage::kWide:
      for (const uint32_t s : values_) ++counts_[s >> 16];
      break;
    case CoreStage::kFine:
      NarrowTo(question_.buckets.first << 16, question_.buckets.first << 16 | 0xffff);
      for (const uint32_t s : values_) ++counts_[s & 0xffff];
      break;
    case CoreStage::kTies:
      NarrowTo(threshold(), threshold());
      break;
    case CoreStage::kDone:
      if (question_.all_ties) NarrowTo(threshold(), threshold());
      TakeTies();
      return;
  }
  Report();
}

void CoreSearch::Report() {
  report_.emplace();
  report_->core = options_.core;
  report_->stage = stage();
  report_->weight_sum = options_.sums.w;
  report_->gradient_sum = options_.sums.g;
  report_->above = above_count_;
  if (stage() == CoreStage::kTies) return CountTies();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    report_->buckets.push_back(static_cast<uint32_t>(i));
    report_->counts.push_back(counts_[i]);
  }
}

void CoreSearch::NarrowTo(uint32_t first, uint32_t last) {
  size_t next = 0;
  // Candidates above the range are core, those below are none, and those within remain. values_ holds their S in order.
  size_t kept = 0;
  for (size_t w = 0; w < within_.size(); ++w) {
    uint64_t above = 0;
    uint64_t within = 0;
    for (uint64_t word = within_[w]; word != 0; word &= word - 1) {
      const uint32_t s = values_[next++];
      const uint64_t bit = word & -word;
      above |= s > last ? bit : 0;
      const bool stays = s >= first && s <= last;
      within |= stays ? bit : 0;
      values_[kept] = s;
      kept += stays;
    }
    above_[w] |= above;
    within_[w] = within;
  }
  values_.resize(kept);
}

void CoreSearch::CountTies() {
  const EntrySet ties(options_.slices->size, within_);
  report_->ties.assign(options_.parameters, 0);
  for (const Slice& slice : options_.slices->slices) {
    report_->ties[slice.parameter] = ties.CountIn(slice.offset, slice.offset + slice.size());
  }
}

void CoreSearch::TakeTies() {
  // Every entry that has the last value is core as well.
  if (question_.all_ties) {
    for (size_t w = 0; w < above_.size(); ++w) above_[w] |= within_[w];
  } else {
    const EntrySet ties(options_.slices->size, within_);
    for (const Slice& slice : options_.slices->slices) {
      // The first so many candidates of each parameter are core.
      EntryWalk walk(ties);
      walk.Next(slice.offset, ties.size());
      const EntryWalk::Run first = walk.Next(slice.offset + slice.size(),
                                             static_cast<int64_t>(question_.ties[slice.parameter]));
      for (int64_t place = first.begin; place < first.end; ++place) {
        if (ties.Contains(place)) above_[place / 64] |= uint64_t{1} << place % 64;
      }
    }
  }
  core_.emplace(options_.slices->size, std::move(above_));
  above_ = {};
  within_ = {};
  values_ = {};
}

}  // namespace tessera
