#include "server/control/members/forgotten_members.h"

#include <algorithm>

#include "common/checkpoint/manifest.h"
#include "server/control/traffic_sum.h"

namespace tessera {
namespace {

uint64_t SumOf(uint64_t a, uint64_t b) { return std::min(a + b, kSavedCountEnd - 1); }

}  // namespace

void ForgottenMembers::Add(const MemberRecord& record, uint64_t examples) {
  sum_.set_count(sum_.count() + 1);
  sum_.set_examples(SumOf(sum_.examples(), examples));
  uint64_t step = record.progress.step();
  if (record.report) {
    AddTraffic(TrafficOf(*record.report), sum_.mutable_traffic());
    step = std::max<uint64_t>(step, record.report->steps());
  } else {
    AddTraffic(record.progress.traffic(), sum_.mutable_traffic());
  }
  sum_.set_step(std::max<uint64_t>(sum_.step(), step));
  sum_.set_first_step(std::max<uint64_t>(sum_.first_step(), record.first_step));
  sum_.set_exchange(std::max<uint64_t>(sum_.exchange(), record.progress.exchange()));
  sum_.set_first_exchange(std::max<uint64_t>(sum_.first_exchange(), record.first_exchange.value()));
  if (record.had_part()) {
    sum_.set_joined(sum_.joined() + 1);
    sum_.set_lost(sum_.lost() + IsLost(record.state));
  }
  if (record.had_part() && record.state == MemberState::kLeft) {
    sum_.set_has_left(true);
    sum_.set_left_step(std::max<uint64_t>(sum_.left_step(), record.progress.step()));
    sum_.set_left_epoch(std::max<uint64_t>(sum_.left_epoch(), record.progress.epoch()));
  }
}

void ForgottenMembers::UndoSince(uint64_t step) {
  sum_.set_exchange(0);
  sum_.set_first_exchange(0);
  sum_.set_first_step(std::min<uint64_t>(sum_.first_step(), step));
  sum_.set_examples(0);
  sum_.set_step(std::min<uint64_t>(sum_.step(), step));
  sum_.set_left_step(std::min<uint64_t>(sum_.left_step(), step));
}

}  // namespace tessera
