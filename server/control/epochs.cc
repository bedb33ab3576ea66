#include "server/control/epochs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/method/train_rows.h"

namespace tessera {

absl::StatusOr<Epochs::Cut> Epochs::MakeCut(uint64_t epoch, const MemberTable& members) const {
  Cut cut;
  auto seats = std::make_shared<std::vector<Seat>>();
  uint64_t rows = 0;
  for (const MemberRecord* member : members.Counted()) {
    if (member->state != MemberState::kAdmitted) continue;
    if (!facts_.has_data(member->rank)) continue;
    seats->push_back({member->member, member->rank});
    rows = facts_.rows_are_local ? rows + member->rows : member->rows;
  }
  if (seats->empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, ": no worker that has data is left"));
  }
  const absl::StatusOr<int64_t> steps =
      EpochSteps(static_cast<int64_t>(rows), static_cast<int64_t>(seats->size()), facts_.batch_size);
  if (!steps.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", epoch, ": ", steps.status().message(),
                                                      "; lower train.batch_size or the number of workers"));
  }
  cut.steps = static_cast<uint64_t>(*steps);
  if (!cuts_.empty()) {
    const Cut& last = cuts_.rbegin()->second;
    cut.first_step = last.first_step + last.steps;
  }
  cut.rows_total = rows;
  cut.seats = std::move(seats);
  return cut;
}

absl::StatusOr<v1::EpochCut> Epochs::Begin(const MemberRecord& asker, uint64_t epoch,
                                           const MemberTable& members, bool keeps_all) {
  const uint64_t next = cuts_.empty() ? 0 : cuts_.rbegin()->first + 1;
  if (epoch > next || (!cuts_.empty() && epoch < cuts_.begin()->first)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", asker.rank.value(), ": epoch is ", epoch, ", want one in [",
        cuts_.empty() ? 0 : cuts_.begin()->first, ", ", next, "]"));
  }
  const bool is_new = epoch == next;
  if (is_new) {
    TESSERA_ASSIGN_OR_RETURN(Cut cut, MakeCut(epoch, members));
    cuts_[epoch] = std::move(cut);
    ++changes_;
  }
  const Cut& cut = cuts_[epoch];
  v1::EpochCut reply;
  reply.set_parts(cut.seats->size());
  reply.set_part(cut.seats->size());
  reply.set_steps(cut.steps);
  reply.set_first_step(cut.first_step);
  reply.set_rows_total(cut.rows_total);
  const auto seat = std::lower_bound(cut.seats->begin(), cut.seats->end(), asker.rank,
                                     [](const Seat& s, Rank rank) { return s.rank < rank; });
  if (seat != cut.seats->end() && seat->rank == asker.rank) {
    reply.set_part(seat - cut.seats->begin());
  }
  asked_[asker.member] = epoch;
  // Once an epoch: it looks at every member.
  if (is_new && !keeps_all) Prune(members);
  return reply;
}

std::vector<SavedCut> Epochs::Save(uint64_t least, uint64_t most) const {
  std::vector<SavedCut> saved;
  for (const auto& [epoch, cut] : cuts_) {
    // The last one tells where the next begins; one that begins later was cut by then, too, but may be
    // cut anew.
    const bool is_over = cut.first_step + cut.steps < least;
    const bool is_later = cut.first_step > most;
    if (is_over || is_later) continue;
    SavedCut entry{epoch, cut.first_step, cut.steps, cut.rows_total, {}};
    for (const Seat& seat : *cut.seats) entry.ranks.push_back(seat.rank.value());
    saved.push_back(std::move(entry));
  }
  return saved;
}

v1::EpochsState Epochs::SaveAll() const {
  v1::EpochsState state;
  for (const auto& [epoch, cut] : cuts_) {
    v1::EpochsState::Cut& entry = *state.add_cuts();
    entry.set_epoch(epoch);
    entry.set_first_step(cut.first_step);
    entry.set_steps(cut.steps);
    entry.set_rows_total(cut.rows_total);
    for (const Seat& seat : *cut.seats) {
      entry.add_members(seat.member.value());
      entry.add_ranks(static_cast<uint32_t>(seat.rank.value()));
    }
  }
  for (const auto& [member, epoch] : asked_) {
    state.add_members(member.value());
    state.add_asked(epoch);
  }
  return state;
}

absl::Status Epochs::Load(const v1::EpochsState& state, const MemberTable& members) {
  cuts_.clear();
  asked_.clear();
  for (const v1::EpochsState::Cut& entry : state.cuts()) {
    const bool is_next = cuts_.empty() || entry.epoch() == cuts_.rbegin()->first + 1;
    if (!is_next || entry.steps() == 0 || entry.ranks_size() != entry.members_size()) {
      return absl::InvalidArgumentError(absl::StrCat("epoch ", entry.epoch(), " has ",
                                                     entry.steps(), " steps, ",
                                                     entry.ranks_size(), " ranks and ",
                                                     entry.members_size(), " members"));
    }
    Cut& cut = cuts_[entry.epoch()];
    auto seats = std::make_shared<std::vector<Seat>>();
    for (int i = 0; i < entry.ranks_size(); ++i) {
      seats->push_back({MemberId(entry.members(i)), Rank(entry.ranks(i))});
    }
    cut.seats = std::move(seats);
    cut.steps = entry.steps();
    cut.first_step = entry.first_step();
    cut.rows_total = entry.rows_total();
  }
  for (int i = 0; i < std::min(state.members_size(), state.asked_size()); ++i) {
    const MemberId member(state.members(i));
    if (members.IsForgotten(member)) continue;
    if (members.Find(member) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", member.value(), " began an epoch, and there is none"));
    }
    asked_[member] = state.asked(i);
  }
  return absl::OkStatus();
}

void Epochs::Restore(const std::vector<SavedCut>& cuts) {
  ++changes_;
  cuts_.clear();
  asked_.clear();
  for (const SavedCut& saved : cuts) {
    Cut& cut = cuts_[saved.epoch];
    auto seats = std::make_shared<std::vector<Seat>>();
    for (const uint64_t rank : saved.ranks) seats->push_back({MemberId(), Rank(rank)});
    cut.seats = std::move(seats);
    cut.steps = saved.steps;
    cut.first_step = saved.first_step;
    cut.rows_total = saved.rows_total;
  }
}

void Epochs::Prune(const MemberTable& members) {
  uint64_t least = cuts_.rbegin()->first;
  for (auto it = asked_.begin(); it != asked_.end();) {
    const MemberRecord* const member = members.Find(it->first);
    if (member == nullptr || !IsLive(member->state)) {
      it = asked_.erase(it);
      continue;
    }
    least = std::min(least, it->second);
    ++it;
  }
  // One that has not asked yet may begin with any epoch that is left.
  for (const MemberRecord* member : members.Counted()) {
    if (asked_.count(member->member) == 0) return;
  }
  // A joiner begins at most one exchange behind what is known of the others: within its epoch, or
  // earlier.
  const uint64_t step = std::min(members.LeastStep(), cuts_[least].first_step);
  while (cuts_.begin()->first < least) {
    const Cut& cut = cuts_.begin()->second;
    if (cut.first_step + cut.steps + facts_.local_steps > step) return;
    cuts_.erase(cuts_.begin());
  }
}

uint64_t Epochs::EpochOf(uint64_t step) const {
  for (const auto& [epoch, cut] : cuts_) {
    if (step < cut.first_step + cut.steps) return epoch;
  }
  return cuts_.empty() ? 0 : cuts_.rbegin()->first + 1;
}

double Epochs::EpochsDone(uint64_t step) const {
  if (cuts_.empty()) return 0;
  auto it = cuts_.begin();
  while (std::next(it) != cuts_.end() && step >= it->second.first_step + it->second.steps) ++it;
  const Cut& cut = it->second;
  const double into = step > cut.first_step ? static_cast<double>(step - cut.first_step) : 0;
  return it->first + into / cut.steps;
}

uint64_t Epochs::StepsPlanned() const {
  if (facts_.steps > 0) return facts_.steps;
  if (cuts_.empty()) return 0;
  const auto& [epoch, cut] = *cuts_.rbegin();
  const uint64_t left = static_cast<uint64_t>(facts_.epochs) > epoch ? facts_.epochs - epoch : 1;
  return cut.first_step + cut.steps * left;
}

}  // namespace tessera
