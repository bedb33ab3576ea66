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
  if (order_->after == Exchange(0)) return !form_->holds_sum();
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
  copy.whole_next = form_->is_whole_next();
  const bool is_end = copied_.after == kCopyAtOnce;
  const Exchange of = is_end ? Exchange(policy_->Collecting().value() - 1) : copied_.after;
  state_copies_.resize(form_->saved_arrays());
  for (size_t s = 0; s < state_copies_.size(); ++s) {
    std::shared_ptr<std::vector<float>>& kept = state_copies_[s];
    // The memory of the last copy, unless that is still being written.
    if (kept == nullptr || kept.use_count() > 1) kept = std::make_shared<std::vector<float>>();
    form_->Save(static_cast<int>(s), of, kept.get());
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
  const std::vector<std::vector<float>*> arrays = form_->BeginLoad();
  int block = 0;
  for (const Slice& slice : traits_.slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < store_.block_count() && store_.offset(block) < slice_end; ++block) {
      const BlockStore::Rewrite write = store_.BeginRewrite(block);
      const int64_t rows = write.size / slice.columns;
      TESSERA_RETURN_IF_ERROR(
          saved.read_rows(slice.parameter, /*state=*/-1, row, row + rows, write.out));
      row += rows;
    }
    for (size_t s = 0; s < arrays.size(); ++s) {
      TESSERA_RETURN_IF_ERROR(saved.read_rows(slice.parameter, static_cast<int>(s), slice.row_begin,
                                              slice.row_end, arrays[s]->data() + slice.offset));
    }
  }
  form_->EndLoad(saved);
  counters_ = saved.counters;
  is_loaded_ = true;
  return absl::OkStatus();
}

}  // namespace tessera
