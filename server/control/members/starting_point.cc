#include "server/control/members/starting_point.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/control/members/member_pace.h"

namespace tessera {
namespace {

// In lockstep, by how many exchanges one member may say that it is ahead of what servers and the others last said:
// they make some between two reports.
constexpr uint64_t kAheadMax = 64;
// More exchanges than a member makes between two reports of its servers.
constexpr uint64_t kUnreportedMax = 100'000;

// The member that was furthest behind when the checkpoint was made; nullptr: the manifest names nobody.
const CheckpointMember* LastOf(const Manifest& manifest) {
  const auto last = std::min_element(
      manifest.members.begin(), manifest.members.end(),
      [](const CheckpointMember& a, const CheckpointMember& b) { return a.step < b.step; });
  return last != manifest.members.end() ? &*last : nullptr;
}

}  // namespace

void StartingPoint::GoBack(Generation generation) {
  begun_from_ = saved_;
  begun_from_sum_ = SumOf(begun_from_->manifest);
  generation_ = generation;
  ++changes_;
}

v1::RestoreOrder StartingPoint::Order() const {
  v1::RestoreOrder order;
  order.set_generation(generation_.value());
  order.set_step(begun_from_->manifest.step);
  order.set_from_restore(begun_from_->from_restore);
  order.set_manifest_sum(begun_from_sum_);
  return order;
}

Exchange StartingPoint::first_exchange() const {
  return Exchange(begun_from_ != nullptr ? begun_from_->manifest.exchange + 1 : 1);
}

ExchangeSteps StartingPoint::steps() const {
  if (begun_from_ == nullptr) return {facts_.local_steps, nullptr};
  const Manifest& manifest = begun_from_->manifest;
  const CheckpointMember* const last = LastOf(manifest);
  if (facts_.synchronous || last == nullptr) return {facts_.local_steps, &manifest};
  return {facts_.local_steps, last->exchange, last->step};
}

void StartingPoint::BeginMember(MemberRecord* member) const {
  member->first_exchange = Exchange(1);
  if (begun_from_ == nullptr) return;
  const Manifest& manifest = begun_from_->manifest;
  member->restored = true;
  if (facts_.synchronous) {
    member->first_exchange = first_exchange();
    member->first_step = manifest.step;
    return;
  }
  // Members advanced on their own: each goes on from where it was, and one more from the last of them.
  const CheckpointMember* from = LastOf(manifest);
  for (const CheckpointMember& saved : manifest.members) {
    if (saved.rank == member->rank.value()) from = &saved;
  }
  member->first_step = from != nullptr ? from->step : manifest.step;
  member->first_exchange =
      Exchange(from != nullptr ? from->exchange + 1 : manifest.step / facts_.local_steps + 1);
}

uint64_t StartingPoint::ExamplesOf(const MemberRecord& member) const {
  // What members did before the job went back is undone, or is part of examples_before().
  if (member.planned_in <= generation_) return 0;
  return member.report ? member.report->examples() : member.progress.examples();
}

uint64_t StartingPoint::examples_before() const {
  if (begun_from_ == nullptr) return 0;
  if (begun_from_->job.examples) return *begun_from_->job.examples;
  // An older checkpoint does not say: those who are in it are taken to have made all its steps.
  uint64_t steps = 0;
  for (const CheckpointMember& member : begun_from_->manifest.members) steps += member.step;
  return steps * static_cast<uint64_t>(facts_.batch_size);
}

Exchange StartingPoint::Reached(const MemberTable& members, const ServerTable& servers) const {
  const Exchange committed = servers.HighestCommitted();
  Exchange reached = std::max(HighestExchange(members), committed);
  if (facts_.synchronous) {
    // Too small an exchange does no harm: servers promise a later one.
    const Exchange common =
        members.Counted().empty() ? committed : std::max(committed, LeastExchange(members));
    reached = std::min(reached, Exchange(common.value() + kAheadMax));
  }
  if (begun_from_ == nullptr || !facts_.synchronous) return reached;
  // Those who went on from there may be lost before anybody has heard of an exchange of theirs.
  return std::max(reached, Exchange(begun_from_->manifest.exchange));
}

uint64_t StartingPoint::StepReached(uint64_t step, const ServerTable& servers) const {
  // Servers count the pushes of all members, and go on counting where the job goes back or a standby takes over: nobody
  // has made more exchanges, but for those since the servers' last report.
  const uint64_t exchanges = servers.MostPushes() + kAheadMax;
  return std::min(step, FurthestBegun() + exchanges * static_cast<uint64_t>(facts_.local_steps));
}

absl::Status StartingPoint::CheckSavedStep(uint64_t step, const ServerTable& servers) const {
  if (facts_.synchronous) return absl::OkStatus();
  // What came since the servers' last report is not known, and is never as much as this.
  const uint64_t exchanges = 2 * servers.MostPushes() + kUnreportedMax;
  const uint64_t most = FurthestBegun() + exchanges * static_cast<uint64_t>(facts_.local_steps);
  if (step <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("saved: step is ", step, ", want at most ", most,
                                                 " after the ", servers.MostPushes(),
                                                 " pushes that servers have counted"));
}

uint64_t StartingPoint::FurthestBegun() const {
  uint64_t begun = 0;
  if (begun_from_ != nullptr) {
    begun = begun_from_->manifest.step;
    for (const CheckpointMember& member : begun_from_->manifest.members) {
      begun = std::max(begun, member.step);
    }
  }
  return begun;
}

void StartingPoint::Save(SavedStates* saved, v1::MembershipState* state) const {
  state->set_restore_generation(generation_.value());
  state->set_saved(saved->Add(saved_));
  state->set_begun_from(saved->Add(begun_from_));
}

absl::Status StartingPoint::Load(const v1::MembershipState& state, const SavedStates& saved) {
  generation_ = Generation(state.restore_generation());
  TESSERA_RETURN_IF_ERROR(saved.Find(state.saved(), &saved_));
  TESSERA_RETURN_IF_ERROR(saved.Find(state.begun_from(), &begun_from_));
  if (generation_ != Generation() && begun_from_ == nullptr) {
    return absl::InvalidArgumentError("the job goes on from a checkpoint that is not named");
  }
  begun_from_sum_ = begun_from_ != nullptr ? SumOf(begun_from_->manifest) : 0;
  return absl::OkStatus();
}

}  // namespace tessera
