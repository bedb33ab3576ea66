#include "server/shard/push_stage.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"

namespace tessera {

// Returns how many of the bytes that are reserved or staged lie in the place that the next in order has of its own.
// At most a slice: what a member sends beyond that takes the room of all.
int64_t PushStage::OwnBytes(MemberId next) const {
  const auto found = reserved_.find(next);
  int64_t bytes = found == reserved_.end() ? 0 : found->second;
  for (const StagedPush& push : pushes_) {
    if (push.member == next) bytes += push.payload.size();
  }
  return std::min(bytes, slice_bytes_);
}

bool PushStage::Reserve(MemberId member, int64_t bytes, bool has_place) {
  const std::optional<MemberId> next = policy_.NextInOrder();
  int64_t taken = reserved_bytes_ + bytes_;
  // Where order matters the next in order has a place of its own, which takes none of the others' room;
  // elsewhere what there is for it is anybody's.
  if (next.has_value()) taken -= OwnBytes(*next);
  const int64_t limit = bytes_max_ + (next.has_value() ? 0 : slice_bytes_);
  const bool is_next = next.has_value() ? *next == member : taken == 0;
  // The next in order is never refused, or its exchange could not go on; nor is one that is to be let in.
  if (!is_next && taken + bytes > limit && !has_place) return false;
  reserved_[member] += bytes;
  reserved_bytes_ += bytes;
  return true;
}

void PushStage::Release(MemberId member, int64_t bytes) {
  const auto found = reserved_.find(member);
  if (found == reserved_.end()) return;  // Small pushes arrive whole and reserve nothing.
  // A member's reservation may have been dropped with the member; no more is given back than it has.
  const int64_t given_back = std::min(bytes, found->second);
  found->second -= given_back;
  reserved_bytes_ -= given_back;
  if (found->second == 0) reserved_.erase(found);
}

int64_t PushStage::PushesBefore(MemberId member) const {
  const std::optional<MemberId> next = policy_.NextInOrder();
  if (!next.has_value()) return 0;
  const auto place = [&](MemberId id) {
    const PlanMember* const found = plan_.Find(id);
    return found == nullptr ? 0 : found - plan_.members.data();
  };
  // Who comes before the next in order has been folded: its turn is in the next exchange.
  const int64_t distance = place(member) - place(*next);
  return distance < 0 ? distance + static_cast<int64_t>(plan_.members.size()) : distance;
}

void PushStage::Add(StagedPush push) {
  bytes_ += push.payload.size();
  pushes_.push_back(std::move(push));
}

std::deque<StagedPush>::const_iterator PushStage::FindNext() const {
  const std::optional<MemberId> next = policy_.NextInOrder();
  if (!next.has_value()) return pushes_.begin();
  return std::find_if(pushes_.begin(), pushes_.end(),
                      [&](const StagedPush& push) { return push.member == *next; });
}

const StagedPush* PushStage::Next() const {
  const auto next = FindNext();
  return next == pushes_.end() ? nullptr : &*next;
}

StagedPush PushStage::TakeNext() {
  const auto next = pushes_.begin() + (FindNext() - pushes_.begin());
  TESSERA_CHECK(next != pushes_.end());
  StagedPush push = std::move(*next);
  pushes_.erase(next);
  bytes_ -= push.payload.size();
  return push;
}

std::vector<MemberId> PushStage::WaitsFor() const {
  std::vector<MemberId> missing = policy_.WaitsFor();
  // A push that is staged waits only for its turn.
  missing.erase(std::remove_if(missing.begin(), missing.end(),
                               [&](MemberId member) {
                                 return std::any_of(
                                     pushes_.begin(), pushes_.end(),
                                     [&](const StagedPush& s) { return s.member == member; });
                               }),
                missing.end());
  return missing;
}

}  // namespace tessera
