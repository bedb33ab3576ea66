#include "server/rpc/log_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/shard_log_message.h"

namespace tessera {
namespace {

// Entries without values that go together: well under a head's limit, with one that is as large as a
// single one may be.
constexpr size_t kEntryBytes = size_t{8} << 10;

}  // namespace

LogQueue::LogQueue(v1::LogHeader header, int64_t bytes_max, absl::Duration silence_max)
    : header_(std::move(header)), bytes_max_(bytes_max), silence_max_(silence_max) {
  report_.set_shard(header_.shard());
  report_.set_term(header_.term());
}

LogQueue::Entry LogQueue::ToEntry(uint64_t position, Version version, ShardEvent event) {
  Entry made;
  // The message is made on the shard's thread, which owns what the event refers to.
  made.entry = ToMessage(std::move(event), &made.payload);
  made.entry.set_position(position);
  made.entry.set_version(version.value());
  return made;
}

void LogQueue::Begin(bool copies, absl::Time now) {
  begun_ = true;
  moved_ = now;
  unsent_header_ = header_;
  unsent_header_->set_copies(copies);
}

void LogQueue::Add(Entry added, absl::Time now) {
  if (broken_) return;
  // An image is always taken.
  // The first one is taken however large it is, or nothing could ever be sent.
  const bool is_too_much = bytes_ > 0 && bytes_ + added.payload.size() > bytes_max_;
  if (is_too_much && !added.entry.has_image()) {
    Break("the standby is too slow");
    return;
  }
  // Time counts from when something is owed: a standby with nothing to acknowledge is silent.
  if (!IsOwed()) moved_ = now;
  added_ = added.entry.position();
  bytes_ += added.payload.size();
  entries_.push_back(std::move(added));
}

bool LogQueue::OnAcknowledged(uint64_t position, absl::Time now) {
  // The entry whose values are still being sent cannot be acknowledged yet.
  const uint64_t most = sending_ == nullptr || sent_ == 0 ? sent_ : sent_ - 1;
  if (position > most || position < acknowledged_) {
    Break(absl::StrCat("the standby acknowledged entry ", position, ", want one from ",
                       acknowledged_, " to ", most));
    return false;
  }
  has_answered_ = true;
  acknowledged_ = position;
  moved_ = now;
  return true;
}

bool LogQueue::CheckProgress(absl::Time now) {
  const absl::Duration pause = now - std::exchange(checked_, now);
  // This process stood still: the standby may have answered all the while.
  if (pause > silence_max_ / 2) moved_ = now;
  if (broken_ || !IsOwed() || now - moved_ <= silence_max_) return false;
  return Break(
      absl::StrCat("the standby has not answered for ",
                   absl::FormatDuration(absl::Trunc(now - moved_, absl::Milliseconds(1)))));
}

bool LogQueue::Break(const std::string& why) {
  if (broken_) return false;
  broken_ = true;
  report_.set_broken(why);
  // What a broken queue held is freed; the standby begins anew with an image.
  entries_.clear();
  sending_.reset();
  return true;
}

std::optional<LogQueue::Message> LogQueue::Next(int64_t room) {
  if (broken_) return std::nullopt;
  Message message;
  size_t entry_bytes = 0;
  bool has_any = unsent_header_.has_value();
  if (has_any) *message.head.mutable_header() = *std::exchange(unsent_header_, std::nullopt);
  // Entries without values travel together; one with values is the last of its message, and its values follow.
  while (sending_ == nullptr && !entries_.empty() && entry_bytes < kEntryBytes) {
    Entry next = std::move(entries_.front());
    entries_.pop_front();
    entry_bytes += next.entry.ByteSizeLong();
    sent_ = next.entry.position();
    *message.head.add_entries() = std::move(next.entry);
    has_any = true;
    if (next.payload.size() == 0) continue;
    sending_ = std::make_shared<const Payload>(std::move(next.payload));
    piece_ = 0;
    offset_ = 0;
  }
  while (sending_ != nullptr && room > 0) {
    const Payload::Piece& piece = sending_->pieces()[piece_];
    const int64_t taken = std::min(room, piece.size - offset_);
    message.values.Append({piece.data + offset_, taken}, sending_);
    room -= taken;
    offset_ += taken;
    bytes_ -= taken;
    if (offset_ < piece.size) continue;
    offset_ = 0;
    if (++piece_ == sending_->pieces().size()) sending_.reset();
  }
  if (!has_any && message.values.size() == 0) return std::nullopt;
  return message;
}

}  // namespace tessera
