// What a shard gives to a checkpoint, and begins with when it is restored.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "server/shard/shard.h"

namespace tessera {

absl::Status Shard::Order(const CopyOrder& order) {
  if (order.mark.number == copied_.mark.number && !is_copied_here_) {
    return absl::AbortedError("the leader that had copied this shard was lost with its copy");
  }
  if (order.mark.number > copied_.mark.number) order_ = order;
  return absl::OkStatus();
}

bool Shard::IsCopyDue() const {
  if (!order_.has_value()) return false;
  if (order_->after == kCopyAtOnce) return true;
  if (order_->after == Exchange(0)) return pending_count_ == 0;
  return policy_->Collecting() > order_->after;
}

std::optional<ShardCopy> Shard::TakeCopy() {
  if (!IsCopyDue()) return std::nullopt;
  copied_ = *std::exchange(order_, std::nullopt);
  is_copied_here_ = true;
  ShardCopy copy;
  copy.order = copied_;
  copy.values = ReadNow();
  // Folds do not wait for a disk.
  copy.values.snapshot = store_.TakeKeptSnapshot();
  copy.counters = counters();
  for (const auto& [id, member] : members_) copy.folded.push_back({id, member.folded});
  std::sort(copy.folded.begin(), copy.folded.end());
  copy.whole_next = forms_ && forms_->IsWhole(policy_->Collecting());
  const bool saves_core = cores_ != nullptr && policy_->Collecting() != Exchange(0);
  const bool is_end = copied_.after == kCopyAtOnce;
  const Exchange of = is_end ? Exchange(policy_->Collecting().value() - 1) : copied_.after;
  state_copies_.resize(state_.size() + (saves_core ? 1 : 0));
  for (size_t s = 0; s < state_copies_.size(); ++s) {
    std::shared_ptr<std::vector<float>>& kept = state_copies_[s];
    // The memory of the last copy, unless that is still being written.
    if (kept == nullptr || kept.use_count() > 1) kept = std::make_shared<std::vector<float>>();
    if (s < state_.size()) {
      kept->assign(state_[s].begin(), state_[s].end());
    } else {
      cores_->Save(of, kept.get());
    }
    copy.states.push_back(kept);
  }
  return copy;
}

ReadResult Shard::ReadAfter(Exchange after) {
  ReadResult read = ReadNow();
  if (copied_.after == Exchange(0) || copied_.after == after) read.checkpoint = copied_.mark;
  return read;
}

absl::Status Shard::Load(const SavedShard& saved) {
  const bool has_core = cores_ != nullptr && policy_->Collecting() != Exchange(0);
  std::vector<float> core(has_core ? slices_.size : 0);
  int block = 0;
  for (const Slice& slice : slices_.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < store_.block_count() && store_.offset(block) < slice_end; ++block) {
      const BlockStore::Rewrite write = store_.BeginRewrite(block);
      const int64_t rows = write.size / slice.columns;
      TESSERA_RETURN_IF_ERROR(
          saved.read_rows(slice.parameter, /*state=*/-1, row, row + rows, write.out));
      row += rows;
    }
    for (size_t s = 0; s < state_.size(); ++s) {
      float* const state = state_[s].data() + slice.offset;
      TESSERA_RETURN_IF_ERROR(saved.read_rows(slice.parameter, static_cast<int>(s), slice.row_begin,
                                              slice.row_end, state));
      if (s >= saved.divisors.size()) continue;
      const float factor = rule_->divisor(static_cast<int>(s)) / saved.divisors[s];
      if (factor != 1) {
        std::transform(state, state + slice.size(), state,
                       [factor](float v) { return factor * v; });
      }
    }
    if (has_core) {
      TESSERA_RETURN_IF_ERROR(saved.read_rows(slice.parameter, static_cast<int>(state_.size()),
                                              slice.row_begin, slice.row_end,
                                              core.data() + slice.offset));
    }
  }
  if (cores_ != nullptr) cores_->Load(saved.exchange, saved.core_every, std::move(core), &store_);
  counters_ = saved.counters;
  is_loaded_ = true;
  if (saved.whole_next && forms_) {
    forms_->Take({saved.exchange, /*is_whole=*/false, /*is_whole_next=*/true});
  }
  return absl::OkStatus();
}

}  // namespace tessera
