#include "server/core/core_search.h"

#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

std::vector<uint64_t> BitsFor(int64_t size) { return std::vector<uint64_t>((size + 63) / 64); }

// May `next` be asked after `last` was answered?
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

void CoreSearch::Ask(const CoreQuestion& question) {
  if (question.core != options_.core || working_ || core_.has_value()) return;
  if (!Follows(stage(), question.stage, question.all_ties)) return;
  if (question.buckets.last >= kCoarseBuckets || question.fine >= kFineBuckets) return;
  const bool has_ties = static_cast<int>(question.ties.size()) == options_.parameters;
  if (question.stage == CoreStage::kDone && !question.all_ties && !has_ties) return;
  question_ = question;
  report_.reset();
  working_ = true;
  run_ = 0;
  place_ = 0;
  above_count_ = 0;
  counts_.assign(stage() == CoreStage::kFine ? kFineBuckets : kCoarseBuckets, 0);
  if (stage() == CoreStage::kCoarse || stage() == CoreStage::kWide) {
    above_ = BitsFor(options_.slices->size);
    within_ = above_;
  }
}

bool CoreSearch::Advance() {
  if (!working_) return false;
  // What comes later is about the candidates, which are few.
  if (stage() <= CoreStage::kWide && run_ < options_.runs.size()) {
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
  if (stage() == CoreStage::kSums) {
    // Of no use without a gradient.
    if (run.g != nullptr) AddMagnitudes(run, &sums_);
  } else if (stage() == CoreStage::kSample) {
    Sample(run);
  } else {
    above_count_ += SplitAt(question_.buckets, run, question_.gradient_weight, place_,
                            above_.data(), within_.data(), &counts_);
  }
}

void CoreSearch::Sample(const SignificanceRun& run) {
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
    case CoreStage::kSums:
    case CoreStage::kSample:
    case CoreStage::kCoarse:
    case CoreStage::kWide:
      break;
    case CoreStage::kFine:
      CountCandidates();
      break;
    case CoreStage::kTies:
      SortCandidates();
      break;
    case CoreStage::kDone:
      if (question_.all_ties) SortCandidates();
      TakeTies();
      return;
  }
  Report();
}

void CoreSearch::Report() {
  report_.emplace();
  report_->core = options_.core;
  report_->stage = stage();
  report_->weight_sum = sums_.w;
  report_->gradient_sum = sums_.g;
  report_->above = above_count_;
  if (stage() == CoreStage::kTies) return CountTies();
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    report_->buckets.push_back(static_cast<uint32_t>(i));
    report_->counts.push_back(counts_[i]);
  }
}

template <typename Visit>
void CoreSearch::ForCandidates(Visit visit) {
  size_t run = 0;
  int64_t run_begin = 0;
  for (size_t w = 0; w < within_.size(); ++w) {
    for (uint64_t word = within_[w]; word != 0; word &= word - 1) {
      const int64_t place = static_cast<int64_t>(w) * 64 + __builtin_ctzll(word);
      while (place - run_begin >= options_.runs[run].size) run_begin += options_.runs[run++].size;
      const SignificanceRun& in = options_.runs[run];
      visit(w, word & -word, SignificanceAt(in, place - run_begin));
    }
  }
}

void CoreSearch::CountCandidates() {
  const uint32_t bucket = question_.buckets.first;
  ForCandidates([&](size_t w, uint64_t bit, uint32_t s) {
    if (s >> 16 == bucket) {
      ++counts_[s & 0xffff];
      return;
    }
    if (s >> 16 > bucket) above_[w] |= bit;
    within_[w] &= ~bit;
  });
}

void CoreSearch::SortCandidates() {
  const uint32_t threshold = question_.buckets.first << 16 | question_.fine;
  ForCandidates([&](size_t w, uint64_t bit, uint32_t s) {
    if (s > threshold) above_[w] |= bit;
    if (s != threshold) within_[w] &= ~bit;
  });
}

void CoreSearch::CountTies() {
  const EntrySet ties(options_.slices->size, within_);
  report_->ties.assign(options_.parameters, 0);
  for (const Slice& slice : options_.slices->slices) {
    report_->ties[slice.parameter] = ties.CountIn(slice.offset, slice.offset + slice.size());
  }
}

void CoreSearch::TakeTies() {
  if (question_.all_ties) {
    for (size_t w = 0; w < above_.size(); ++w) above_[w] |= within_[w];
  } else {
    const EntrySet ties(options_.slices->size, within_);
    for (const Slice& slice : options_.slices->slices) {
      EntryWalk walk(ties);
      walk.Next(slice.offset, ties.size());
      const EntryWalk::Run first = walk.Next(
          slice.offset + slice.size(), static_cast<int64_t>(question_.ties[slice.parameter]));
      for (int64_t place = first.begin; place < first.end; ++place) {
        if (ties.Contains(place)) above_[place / 64] |= uint64_t{1} << place % 64;
      }
    }
  }
  core_.emplace(options_.slices->size, std::move(above_));
  above_ = {};
  within_ = {};
}

}  // namespace tessera
