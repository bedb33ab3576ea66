#include "server/control/members/warm_up.h"

#include <set>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// When many are waited for, this many of them are named.
constexpr size_t kNamesMax = 16;

}  // namespace

bool WarmUp::IsOn() const {
  if (facts_.warmup_steps == 0 || members_.Counted().empty()) return false;
  if (members_.forgotten().step() >= facts_.warmup_steps) return false;
  for (const auto& [id, member] : members_.all()) {
    if (member.progress.step() >= facts_.warmup_steps) return false;
  }
  return true;
}

void WarmUp::OnBegins(MemberId member, uint64_t step) {
  v1::Progress& progress = members_.Find(member)->progress;
  if (facts_.warmup_steps > 0 && progress.step() == 0) progress.set_step(step);
}

std::vector<std::string> WarmUp::End(MemberId member) {
  std::vector<std::string> names = YetToBegin(member);
  members_.Find(member)->awaits_others = !names.empty();
  return names;
}

std::optional<std::vector<std::string>> WarmUp::WaitingFor() const {
  for (const MemberRecord* member : members_.Counted()) {
    if (member->awaits_others) return YetToBegin(member->member);
  }
  return std::nullopt;
}

std::vector<std::string> WarmUp::YetToBegin(MemberId but) const {
  const bool is_ending = drain_.wanted() || stage_.training_over() || stage_.closed();
  if (facts_.warmup_steps == 0 || is_ending) return {};
  std::set<Rank> ranks;
  for (const auto& [id, member] : members_.all()) {
    if (id == but || !IsLive(member.state)) continue;
    // A server that has yet to copy another one may wait for the next push.
    if (member.state == MemberState::kWaiting && !servers_.IsReady(ShardId(member.rank.value()))) {
      continue;
    }
    const bool has_begun =
        member.state == MemberState::kAdmitted && member.progress.step() >= facts_.warmup_steps;
    if (!has_begun) ranks.insert(member.rank);
  }
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    if (names.size() < kNamesMax) names.push_back(absl::StrCat("worker ", rank.value()));
  }
  return names;
}

}  // namespace tessera
