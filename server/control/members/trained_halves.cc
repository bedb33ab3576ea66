#include "server/control/members/trained_halves.h"

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

v1::WorkerEntry EntryOf(const MemberRecord& member) {
  v1::WorkerEntry entry;
  entry.set_member(member.member.value());
  entry.set_rank(static_cast<uint32_t>(member.rank.value()));
  entry.set_address(member.address);
  entry.set_first_step(member.first_step);
  return entry;
}

}  // namespace

v1::WorkerList TrainedHalves::WorkerListText() const {
  v1::WorkerList list;
  list.set_generation(plans_.generation().value());
  for (const MemberRecord* member : members_.Counted()) *list.add_workers() = EntryOf(*member);
  const uint64_t least = LeastStep(members_);
  for (const auto& [id, member] : members_.all()) {
    if (IsFormerWorker(member, least)) *list.add_former() = EntryOf(member);
  }
  return list;
}

bool TrainedHalves::IsFormerWorker(const MemberRecord& member, uint64_t least) const {
  const bool has_joined =
      !IsLive(member.state) && member.planned_in > plans_.first() && member.first_step >= least;
  return has_joined && !facts_.has_data(member.rank);
}

std::optional<TrainedHalves::Missing> TrainedHalves::FindMissing() const {
  const auto& counted = members_.Counted();
  if (facts_.front_workers == 0 || !stage_.started() || stage_.training_over() || counted.empty()) {
    return std::nullopt;
  }
  // Members are in the order of their ranks: those who train the layers in front come first.
  const bool has_front = facts_.has_data(counted.front()->rank);
  if (has_front && !facts_.has_data(counted.back()->rank)) return std::nullopt;
  const MemberRecord* last = nullptr;
  for (const auto& [id, record] : members_.all()) {
    if (facts_.has_data(record.rank) == has_front) continue;
    if (last == nullptr || record.last_heard >= last->last_heard) last = &record;
  }
  Missing half;
  const char* const layers = has_front ? "linear layers" : "layers in front of the linear ones";
  if (last == nullptr) {
    half.why = absl::StrCat("nobody trains the ", layers);
  } else {
    half.has_left = last->state == MemberState::kLeft;
    half.why = absl::StrCat("worker ", last->rank.value(), half.has_left ? " has left" : " is gone",
                            ", the last one that trained the ", layers);
    const char* const since = MayRejoin(last->state) ? "it has not come back since " : "";
    if (!half.has_left) absl::StrAppend(&half.why, " (", since, last->ended, ")");
  }
  absl::StrAppend(
      &half.why, "; start the job again",
      facts_.checkpoints ? ", with checkpoint.restore it goes on from its last checkpoint" : "");
  return half;
}

}  // namespace tessera
