// MemberTable: members that ended long ago, of which sums are kept.
#include <algorithm>

#include "common/base/check.h"
#include "common/checkpoint/manifest.h"
#include "server/control/member_table.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

uint64_t SumOf(uint64_t a, uint64_t b) { return std::min(a + b, kSavedCountEnd - 1); }

}  // namespace

std::vector<MemberId> MemberTable::EndedLongAgo() const {
  std::vector<MemberId> found;
  if (ended_.size() <= kEndedKept) return found;
  size_t left = ended_.size() - kEndedKept;
  for (auto it = ended_.begin(); left > 0; ++it, --left) found.push_back(it->second);
  return found;
}

bool MemberTable::IsForgotten(MemberId member) const {
  return member != MemberId() && member <= last() && Find(member) == nullptr;
}

void MemberTable::Forget(MemberId member, uint64_t examples) {
  const MemberRecord& record = records_.at(member);
  TESSERA_CHECK(!IsLive(record.state));
  v1::ForgottenMembers& sum = forgotten_;
  sum.set_count(sum.count() + 1);
  sum.set_examples(SumOf(sum.examples(), examples));
  uint64_t step = record.progress.step();
  if (record.report) {
    AddTraffic(TrafficOf(*record.report), sum.mutable_traffic());
    step = std::max<uint64_t>(step, record.report->steps());
  } else {
    AddTraffic(record.progress.traffic(), sum.mutable_traffic());
  }
  sum.set_step(std::max<uint64_t>(sum.step(), step));
  sum.set_first_step(std::max<uint64_t>(sum.first_step(), record.first_step));
  sum.set_exchange(std::max<uint64_t>(sum.exchange(), record.progress.exchange()));
  sum.set_first_exchange(std::max<uint64_t>(sum.first_exchange(), record.first_exchange.value()));
  if (record.had_part()) {
    sum.set_joined(sum.joined() + 1);
    sum.set_lost(sum.lost() + IsLost(record.state));
  }
  if (record.had_part() && record.state == MemberState::kLeft) {
    sum.set_has_left(true);
    sum.set_left_step(std::max<uint64_t>(sum.left_step(), record.progress.step()));
    sum.set_left_epoch(std::max<uint64_t>(sum.left_epoch(), record.progress.epoch()));
  }
  if (const auto life = by_life_.find(record.life);
      life != by_life_.end() && life->second == member) {
    by_life_.erase(life);
  }
  --in_state_[static_cast<size_t>(record.state)];
  ended_.erase(record.ending);
  records_.erase(member);
}

void MemberTable::UndoForgotten(uint64_t step) {
  forgotten_.set_exchange(0);
  forgotten_.set_first_exchange(0);
  forgotten_.set_first_step(std::min<uint64_t>(forgotten_.first_step(), step));
  forgotten_.set_examples(0);
  forgotten_.set_step(std::min<uint64_t>(forgotten_.step(), step));
  forgotten_.set_left_step(std::min<uint64_t>(forgotten_.left_step(), step));
}

}  // namespace tessera
