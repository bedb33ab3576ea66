#include "server/control/members/member_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"

namespace tessera {
namespace {

// Weight of the newest rate: about the last five renewals count.
constexpr double kRateWeight = 0.4;
// A speed beyond it is no measurement: as if none had been told.
constexpr double kStepsPerSecondMax = 1e9;

}  // namespace

void MemberRecord::OnProgress(const v1::Progress& said, absl::Time now) {
  // An older message that came late. Steps may become fewer: what went with no exchange counts no more.
  const bool is_older =
      said.beats() > 0 ? said.beats() < progress.beats() : said.step() < progress.step();
  if (is_older) return;
  if (said.step() > progress.step()) {
    const double seconds = absl::ToDoubleSeconds(now - progressed_at);
    if (seconds > 0 && said.examples() >= progress.examples()) {
      const double rate = (said.examples() - progress.examples()) / seconds;
      examples_per_second = examples_per_second == 0
                                ? rate
                                : (1 - kRateWeight) * examples_per_second + kRateWeight * rate;
    }
    progressed_at = now;
  }
  stall.OnProgress(said, now);
  const v1::Progress before = progress;
  progress = said;
  progress.DiscardUnknownFields();
  if (!said.has_traffic()) *progress.mutable_traffic() = before.traffic();
  if (!said.has_phases()) *progress.mutable_phases() = before.phases();
  // Shares and budgets are made of it, and whoever says that it is infinitely fast would spoil the others'.
  const double speed = said.steps_per_second();
  if (!(speed >= 0 && speed <= kStepsPerSecondMax)) progress.set_steps_per_second(0);
}

void MemberRecord::UndoSince(uint64_t step) {
  counted_by.clear();
  last_counted.clear();
  site_until.reset();
  first_step = std::min(first_step, step);
  if (had_begun()) first_exchange = Exchange(1);
  progress.set_exchange(0);
  progress.set_step(std::min<uint64_t>(progress.step(), step));
  if (state != MemberState::kRejoins) return;
  // Its worker joins as another member, which takes these along (MemberTable::Add).
  v1::Progress kept;
  kept.mutable_traffic()->Swap(progress.mutable_traffic());
  kept.mutable_phases()->Swap(progress.mutable_phases());
  progress = std::move(kept);
}

bool MemberRecord::has_partial_push() const {
  if (last_counted.size() != counted_by.size()) return false;
  return std::any_of(last_counted.begin(), last_counted.end(), [this](const auto& counted) {
    return counted.second != last_counted.begin()->second;
  });
}

void MemberRecord::Save(v1::MemberState* saved) const {
  saved->set_member(member.value());
  saved->set_rank(static_cast<uint32_t>(rank.value()));
  saved->set_state(static_cast<uint32_t>(state));
  saved->set_life(life);
  saved->set_description(description);
  saved->set_address(address);
  saved->set_rows(rows);
  saved->set_train_sum(train_sum);
  saved->set_test_sum(test_sum);
  saved->set_values(values);
  saved->set_ended(ended);
  saved->set_last_heard(absl::ToUnixNanos(last_heard));
  saved->set_progressed_at(absl::ToUnixNanos(progressed_at));
  *saved->mutable_progress() = progress;
  saved->set_examples_per_second(examples_per_second);
  saved->set_first_exchange(first_exchange.value());
  saved->set_first_step(first_step);
  saved->set_planned_in(planned_in.value());
  saved->set_restored(restored);
  saved->set_drain_seen(drain_seen);
  saved->set_ending(ending);
  if (site_until) saved->set_site_until(site_until->value());
  if (told_checkpoint) saved->set_told_checkpoint(*told_checkpoint);
  if (report) *saved->mutable_report() = *report;
  for (ShardId server : counted_by) {
    saved->add_counted_by(static_cast<uint32_t>(server.value()));
  }
  for (const auto& [server, exchange] : last_counted) {
    saved->add_last_counted_by(static_cast<uint32_t>(server.value()));
    saved->add_last_counted(exchange.value());
  }
}

absl::StatusOr<MemberRecord> MemberRecord::Load(const v1::MemberState& saved) {
  const bool is_right = saved.rank() < kRankEnd &&
                        saved.state() <= static_cast<uint32_t>(MemberState::kMissed) &&
                        saved.last_counted_by_size() == saved.last_counted_size();
  if (!is_right) {
    return absl::InvalidArgumentError(absl::StrCat("member ", saved.member(), " has rank ",
                                                   saved.rank(), ", state ", saved.state(), " and ",
                                                   saved.last_counted_size(), " last exchanges of ",
                                                   saved.last_counted_by_size(), " servers"));
  }
  MemberRecord record;
  record.member = MemberId(saved.member());
  record.rank = Rank(saved.rank());
  record.state = static_cast<MemberState>(saved.state());
  record.life = saved.life();
  record.description = saved.description();
  record.address = saved.address();
  record.rows = saved.rows();
  record.train_sum = saved.train_sum();
  record.test_sum = saved.test_sum();
  if (v1::ValueKind_IsValid(static_cast<int>(saved.values()))) {
    record.values = static_cast<v1::ValueKind>(saved.values());
  }
  record.ended = saved.ended();
  record.last_heard = absl::FromUnixNanos(saved.last_heard());
  record.progressed_at = absl::FromUnixNanos(saved.progressed_at());
  record.progress = saved.progress();
  record.examples_per_second = saved.examples_per_second();
  record.first_exchange = Exchange(saved.first_exchange());
  record.first_step = saved.first_step();
  record.planned_in = Generation(saved.planned_in());
  record.restored = saved.restored();
  record.drain_seen = saved.drain_seen();
  record.ending = saved.ending();
  if (saved.has_site_until()) record.site_until = Exchange(saved.site_until());
  if (saved.has_told_checkpoint()) record.told_checkpoint = saved.told_checkpoint();
  if (saved.has_report()) record.report = saved.report();
  for (const uint32_t server : saved.counted_by()) record.counted_by.insert(ShardId(server));
  for (int i = 0; i < saved.last_counted_size(); ++i) {
    record.last_counted[ShardId(saved.last_counted_by(i))] = Exchange(saved.last_counted(i));
  }
  return record;
}

}  // namespace tessera
