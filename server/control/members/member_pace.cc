#include "server/control/members/member_pace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera {

Exchange HighestExchange(const MemberTable& members) {
  Exchange highest(members.forgotten().exchange());
  for (const auto& [id, record] : members.all()) {
    highest = std::max(highest, Exchange(record.progress.exchange()));
  }
  return highest;
}

uint64_t LeastStep(const MemberTable& members) {
  const std::vector<const MemberRecord*>& counted = members.Counted();
  uint64_t least = std::max<uint64_t>(members.forgotten().step(), members.forgotten().first_step());
  if (counted.empty()) {
    // All were lost: what the furthest of them did is in the parameters, and what it began with.
    for (const auto& [id, record] : members.all()) {
      least = std::max<uint64_t>(least, std::max(record.progress.step(), record.first_step));
    }
    return least;
  }
  least = std::numeric_limits<uint64_t>::max();
  for (const MemberRecord* record : counted) {
    least = std::min<uint64_t>(least, std::max(record->progress.step(), record->first_step));
  }
  return least;
}

Exchange LeastExchange(const MemberTable& members) {
  const auto furthest = [](uint64_t exchange, uint64_t first) {
    return Exchange(std::max<uint64_t>(exchange, first > 0 ? first - 1 : 0));
  };
  const auto reached = [&](const MemberRecord& record) {
    return furthest(record.progress.exchange(), record.first_exchange.value());
  };
  const std::vector<const MemberRecord*>& counted = members.Counted();
  Exchange least = furthest(members.forgotten().exchange(), members.forgotten().first_exchange());
  if (counted.empty()) {
    for (const auto& [id, record] : members.all()) least = std::max(least, reached(record));
    return least;
  }
  least = reached(*counted[0]);
  for (const MemberRecord* record : counted) least = std::min(least, reached(*record));
  return least;
}

uint64_t StepBudget(const MemberTable& members, MemberId member, int64_t local_steps) {
  const MemberRecord* record = members.Find(member);
  const double speed = record == nullptr ? 0 : record->progress.steps_per_second();
  if (!(speed > 0)) return 0;
  double fastest = speed;
  for (const MemberRecord* other : members.Counted()) {
    fastest = std::max(fastest, other->progress.steps_per_second());
  }
  const double share = std::floor(static_cast<double>(local_steps) * speed / fastest);
  return std::max<uint64_t>(1, static_cast<uint64_t>(share));
}

}  // namespace tessera
