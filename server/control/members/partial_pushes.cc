#include "server/control/members/partial_pushes.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {
namespace {

void LogPartial(const MemberRecord& member) {
  if (!member.has_partial_push()) return;
  Log(LogLevel::kWarning, absl::StrCat("control: partial push worker=", member.rank.value(),
                                       " member=", member.member.value()));
}

}  // namespace

uint64_t PartialPushes::count() const {
  uint64_t partial = earlier_;
  for (const auto& [id, member] : members_.all()) partial += member.has_partial_push();
  return partial;
}

void PartialPushes::OnRemoved(const v1::PlanApplied::Removed& removed, ShardId server) {
  MemberRecord* const member = members_.Find(MemberId(removed.member()));
  if (member == nullptr || member->counted_by.count(server) == 0) return;
  const Exchange exchange(removed.last_exchange());
  const auto [found, is_new] = member->last_counted.emplace(server, exchange);
  if (!is_new && found->second == exchange) return;
  const bool was_partial = member->has_partial_push();
  found->second = exchange;
  ++changes_;
  if (!was_partial) LogPartial(*member);
}

void PartialPushes::OnServerLost(ShardId server) {
  for (const auto& [id, member] : members_.all()) {
    if (member.counted_by.count(server) == 0 || member.last_counted.count(server) > 0) continue;
    MemberRecord* const record = members_.Find(id);
    record->counted_by.erase(server);
    ++changes_;
    LogPartial(*record);
  }
}

}  // namespace tessera
