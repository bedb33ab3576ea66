#include "server/control/members/start_list.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void StartList::GoBack(std::optional<std::set<Rank>> members) {
  if (members.has_value()) rejoining_ = *std::move(members);
  until_ = absl::InfiniteFuture();
}

bool StartList::IsTimeUp(absl::Time now) {
  if (!goes_back()) return false;
  if (until_ == absl::InfiniteFuture()) until_ = now + kRejoinLeases * facts_.lease_timeout;
  if (now <= until_) return false;
  // They were lost with the server, or since.
  until_ = absl::InfinitePast();
  return true;
}

std::set<Rank> StartList::Awaited() const {
  if (goes_back()) return rejoining_;
  std::set<Rank> ranks;
  for (int rank = 0; rank < facts_.workers; ++rank) ranks.insert(Rank(rank));
  return ranks;
}

// Asked at every join, by jobs of a thousand workers: without a list of them.
bool StartList::IsComplete(const MemberTable& members) const {
  const auto is_here = [&members](Rank rank) { return members.LiveAt(rank) != nullptr; };
  if (!goes_back()) {
    for (int rank = 0; rank < facts_.workers; ++rank) {
      if (!is_here(Rank(rank))) return false;
    }
    return true;
  }
  if (std::all_of(rejoining_.begin(), rejoining_.end(), is_here)) return true;
  return until_ == absl::InfinitePast() && !members.live().empty();
}

void StartList::MarkMissed(MemberTable* members) const {
  std::map<Rank, MemberId> missed;
  for (const auto& [id, record] : members->all()) {
    // The job may have gone back more than once since the member came: the last one that took part is who is lost.
    const bool is_missed = record.state == MemberState::kRejoins && record.had_begun() &&
                           WasMember(record.rank) && members->LiveAt(record.rank) == nullptr;
    if (is_missed) missed[record.rank] = std::max(missed[record.rank], id);
  }
  for (const auto& [rank, id] : missed) {
    MemberRecord* const record = members->Find(id);
    members->SetState(record, MemberState::kMissed);
    Log(LogLevel::kWarning,
        absl::StrCat("control: worker missed worker=", rank.value(), " member=", id.value(),
                     " why=\"not back in time since ", record->ended, "\""));
  }
}

void StartList::Save(v1::MembershipState* state) const {
  for (const Rank rank : rejoining_) state->add_rejoining(static_cast<uint32_t>(rank.value()));
  state->set_rejoin_until(until_ == absl::InfinitePast()     ? -1
                          : until_ == absl::InfiniteFuture() ? 0
                                                             : absl::ToUnixNanos(until_));
}

void StartList::Load(const v1::MembershipState& state) {
  rejoining_.clear();
  for (const uint32_t rank : state.rejoining()) rejoining_.insert(Rank(rank));
  until_ = state.rejoin_until() < 0    ? absl::InfinitePast()
           : state.rejoin_until() == 0 ? absl::InfiniteFuture()
                                       : absl::FromUnixNanos(state.rejoin_until());
}

}  // namespace tessera
