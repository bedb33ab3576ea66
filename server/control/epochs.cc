#include "server/control/epochs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/method/train_rows.h"
#include "server/control/members/batch_sizes.h"
#include "server/control/members/member_pace.h"

namespace tessera {
namespace {

// Steps of such an epoch as it would be cut now; 0: it could not be. Where a whole job is one epoch, one of another
// length is as good: who goes on with more steps begins the next epoch there.
uint64_t StepsNow(const SavedCut& cut, const JobFacts& facts) {
  if (facts.is_of_tensors) {
    return facts.steps_per_epoch > 0 ? static_cast<uint64_t>(facts.steps_per_epoch) : cut.steps;
  }
  const absl::StatusOr<int64_t> steps =
      EpochSteps(static_cast<int64_t>(cut.rows_total),
                 std::max<int64_t>(1, static_cast<int64_t>(cut.ranks.size())), facts.batch_size);
  return steps.ok() ? static_cast<uint64_t>(*steps) : 0;
}

}  // namespace

absl::Status CheckBatchSize(const SavedState& saved, const JobFacts& facts) {
  uint64_t least = saved.manifest.step;
  for (const CheckpointMember& member : saved.manifest.members) {
    least = std::min(least, member.step);
  }
  for (const SavedCut& cut : saved.job.cuts) {
    const uint64_t end = cut.first_step + cut.steps;
    if (end <= least || cut.first_step >= saved.manifest.step) continue;
    const uint64_t now = StepsNow(cut, facts);
    if (now == cut.steps) continue;
    if (facts.is_of_tensors) {
      return absl::FailedPreconditionError(absl::StrCat(
          "train.steps_per_epoch: is ", now, ", want ", cut.steps,
          " as before: the checkpoint of step ", saved.manifest.step, " is in the midst of epoch ",
          cut.epoch,
          "; go on with the former number, or from a checkpoint at an epoch's end (step ", end,
          " is one)"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "train.batch_size: ", facts.batch_size, " makes ", now, " steps an epoch, want ", cut.steps,
        " as before: the checkpoint of step ", saved.manifest.step, " is in the midst of epoch ",
        cut.epoch,
        "; go on with the former batch size, or from a checkpoint at an epoch's end (step ", end,
        " is one)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Epochs::StepsOfRows(uint64_t epoch, uint64_t rows, size_t seats) const {
  const absl::StatusOr<int64_t> steps =
      EpochSteps(static_cast<int64_t>(rows), static_cast<int64_t>(seats), facts_.batch_size);
  if (steps.ok()) return static_cast<uint64_t>(*steps);
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", epoch, ": ", steps.status().message(),
                   "; lower train.batch_size or the number of workers"));
}

absl::StatusOr<Epochs::Cut> Epochs::MakeCut(uint64_t epoch, const MemberTable& members) const {
  Cut cut;
  uint64_t rows = 0;
  for (const MemberRecord* member : members.Counted()) {
    if (member->state != MemberState::kAdmitted) continue;
    if (!facts_.has_data(member->rank)) continue;
    cut.seats.push_back({member->member, member->rank});
    rows = facts_.rows_are_local ? rows + member->rows : member->rows;
  }
  if (cut.seats.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, ": no worker that has data is left"));
  }
  if (facts_.is_of_tensors) {
    cut.steps =
        static_cast<uint64_t>(facts_.steps_per_epoch > 0 ? facts_.steps_per_epoch : facts_.steps);
    rows = 0;
  } else {
    TESSERA_ASSIGN_OR_RETURN(cut.steps, StepsOfRows(epoch, rows, cut.seats.size()));
  }
  if (!cuts_.empty()) cut.first_step = cuts_.rbegin()->second.end();
  cut.rows_total = rows;
  if (facts_.rows_by_speed) DealBySpeed(members, &cut);
  return cut;
}

void Epochs::DealBySpeed(const MemberTable& members, Cut* cut) const {
  std::map<Rank, int64_t> before;
  if (!cuts_.empty()) {
    for (const Seat& seat : cuts_.rbegin()->second.seats) before[seat.rank] = seat.batch_rows;
  }
  std::vector<MeasuredBatches> measured;
  for (const Seat& seat : cut->seats) {
    const auto found = before.find(seat.rank);
    measured.push_back(BatchesOf(*members.Find(seat.member),
                                 found == before.end() ? 0 : found->second, facts_.batch_size));
  }
  const std::vector<int64_t> sizes = NextBatchSizes(measured, facts_.batch_size);
  for (size_t i = 0; i < sizes.size(); ++i) cut->seats[i].batch_rows = sizes[i];
}

bool Epochs::AreSizes(const std::vector<Seat>& seats) const {
  int64_t sum = 0;
  for (const Seat& seat : seats) {
    if (seat.batch_rows < 0 || seat.batch_rows > kBatchMost * facts_.batch_size) return false;
    sum += seat.batch_rows;
  }
  return sum == static_cast<int64_t>(seats.size()) * facts_.batch_size &&
         std::none_of(seats.begin(), seats.end(),
                      [](const Seat& seat) { return seat.batch_rows == 0; });
}

void Epochs::Append(Cut cut) {
  const uint64_t epoch = NextEpoch();
  if (!cuts_.empty() && cuts_.rbegin()->second.IsLike(cut)) {
    ++cuts_.rbegin()->second.epochs;
  } else {
    cuts_[epoch] = std::move(cut);
  }
}

absl::StatusOr<v1::EpochCut> Epochs::Begin(const MemberRecord& asker, uint64_t epoch, uint64_t step,
                                           const MemberTable& members, bool keeps_all) {
  const uint64_t first = cuts_.empty() ? 0 : cuts_.begin()->first;
  const uint64_t next = NextEpoch();
  if (epoch > next || epoch < first) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", asker.rank.value(), ": epoch is ",
                                                   epoch, ", want one in [", first, ", ", next,
                                                   "]"));
  }
  const bool is_new = epoch == next;
  if (is_new) {
    const uint64_t begin = cuts_.empty() ? 0 : cuts_.rbegin()->second.end();
    if (step < begin) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", asker.rank.value(), ": epoch ",
                                                     epoch, " begins at step ", begin, ", not at ",
                                                     step));
    }
    TESSERA_ASSIGN_OR_RETURN(Cut cut, MakeCut(epoch, members));
    Append(std::move(cut));
    ++changes_;
  }
  const auto run = std::prev(cuts_.upper_bound(epoch));
  const Cut& cut = run->second;
  v1::EpochCut reply;
  reply.set_parts(cut.seats.size());
  reply.set_part(cut.seats.size());
  reply.set_steps(cut.steps);
  reply.set_first_step(cut.BeginOf(epoch - run->first));
  reply.set_rows_total(cut.rows_total);
  const auto seat = std::lower_bound(cut.seats.begin(), cut.seats.end(), asker.rank,
                                     [](const Seat& s, Rank rank) { return s.rank < rank; });
  if (seat != cut.seats.end() && seat->rank == asker.rank) {
    reply.set_part(seat - cut.seats.begin());
    if (seat->batch_rows > 0) {
      uint64_t before = 0;
      for (auto other = cut.seats.begin(); other != seat; ++other) before += other->batch_rows;
      reply.set_batch_rows(seat->batch_rows);
      reply.set_rows_before(before);
    }
  } else if (facts_.is_of_tensors) {
    // No rows were dealt out: whoever joins in the midst of an epoch, which may be the whole job, trains at once.
    reply.set_part(asker.rank.value() % cut.seats.size());
  }
  asked_[asker.member] = epoch;
  // Once an epoch: it looks at every member.
  if (is_new && !keeps_all) Prune(members);
  return reply;
}

std::vector<SavedCut> Epochs::Save(uint64_t least, uint64_t most) const {
  std::vector<SavedCut> saved;
  for (const auto& [first, cut] : cuts_) {
    // The last one tells where the next begins; one that begins later was cut by then, too, but may be
    // cut anew.
    uint64_t index = least > cut.first_step ? (least - cut.first_step - 1) / cut.steps : 0;
    for (; index < cut.epochs && cut.BeginOf(index) <= most && saved.size() <= kSavedCutsMax;
         ++index) {
      SavedCut entry{first + index, cut.BeginOf(index), cut.steps, cut.rows_total, {}, {}};
      for (const Seat& seat : cut.seats) {
        entry.ranks.push_back(seat.rank.value());
        if (seat.batch_rows > 0) entry.batch_rows.push_back(seat.batch_rows);
      }
      saved.push_back(std::move(entry));
    }
  }
  return saved;
}

void Epochs::Write(uint64_t epoch, uint64_t first_step, const Cut& cut, v1::EpochsState* state) {
  v1::EpochsState::Cut& entry = *state->add_cuts();
  entry.set_epoch(epoch);
  entry.set_first_step(first_step);
  entry.set_steps(cut.steps);
  entry.set_rows_total(cut.rows_total);
  for (const Seat& seat : cut.seats) {
    entry.add_members(seat.member.value());
    entry.add_ranks(static_cast<uint32_t>(seat.rank.value()));
    if (seat.batch_rows > 0) entry.add_batch_rows(static_cast<uint32_t>(seat.batch_rows));
  }
}

v1::EpochsState Epochs::SaveAll() const {
  v1::EpochsState state;
  for (const auto& [first, cut] : cuts_) Write(first, cut.first_step, cut, &state);
  if (!cuts_.empty() && cuts_.rbegin()->second.epochs > 1) {
    const Cut& last = cuts_.rbegin()->second;
    Write(NextEpoch() - 1, last.BeginOf(last.epochs - 1), last, &state);
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
    bool is_right = entry.steps() > 0 && entry.ranks_size() == entry.members_size();
    if (is_right && !cuts_.empty()) {
      // Those that are not written are cut as the one before them.
      Cut& last = cuts_.rbegin()->second;
      const uint64_t steps = entry.first_step() - last.first_step;
      is_right = entry.first_step() > last.first_step && steps % last.steps == 0 &&
                 entry.epoch() >= NextEpoch() &&
                 entry.epoch() - cuts_.rbegin()->first == steps / last.steps;
      if (is_right) last.epochs = steps / last.steps;
    }
    if (!is_right) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", entry.epoch(), " has ", entry.steps(), " steps from ", entry.first_step(),
          " on, ", entry.ranks_size(), " ranks and ", entry.members_size(), " members"));
    }
    Cut cut;
    for (int i = 0; i < entry.ranks_size(); ++i) {
      cut.seats.push_back({MemberId(entry.members(i)), Rank(entry.ranks(i))});
      if (i < entry.batch_rows_size()) cut.seats.back().batch_rows = entry.batch_rows(i);
    }
    if (entry.batch_rows_size() > 0 && !AreSizes(cut.seats)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "epoch ", entry.epoch(), " has ", entry.batch_rows_size(), " sizes of minibatches, want ",
          entry.ranks_size(), " with a mean of ", facts_.batch_size));
    }
    cut.steps = entry.steps();
    cut.first_step = entry.first_step();
    cut.rows_total = entry.rows_total();
    if (cuts_.empty()) {
      cuts_[entry.epoch()] = std::move(cut);
    } else {
      Append(std::move(cut));
    }
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

void Epochs::Restore(const std::vector<SavedCut>& cuts, uint64_t step) {
  ++changes_;
  cuts_.clear();
  asked_.clear();
  for (const SavedCut& saved : cuts) {
    const bool is_begun = cuts_.empty() || saved.first_step < step;
    if (!is_begun && StepsNow(saved, facts_) != saved.steps) break;
    Cut cut;
    for (size_t i = 0; i < saved.ranks.size(); ++i) {
      cut.seats.push_back({MemberId(), Rank(saved.ranks[i])});
      if (i < saved.batch_rows.size()) cut.seats.back().batch_rows = saved.batch_rows[i];
    }
    // The job that goes on may deal rows otherwise, or have another batch size.
    if (!facts_.rows_by_speed || !AreSizes(cut.seats)) {
      for (Seat& seat : cut.seats) seat.batch_rows = 0;
    }
    cut.steps = saved.steps;
    cut.first_step = saved.first_step;
    cut.rows_total = saved.rows_total;
    if (cuts_.empty()) {
      cuts_[saved.epoch] = std::move(cut);
    } else {
      Append(std::move(cut));
    }
  }
}

void Epochs::Prune(const MemberTable& members) {
  uint64_t least = NextEpoch() - 1;
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
  if (least <= cuts_.begin()->first) return;
  const auto run = std::prev(cuts_.upper_bound(least));
  const uint64_t step = std::min(LeastStep(members), run->second.BeginOf(least - run->first));
  const auto exchange = static_cast<uint64_t>(facts_.local_steps);
  while (cuts_.begin()->first < least) {
    const uint64_t begin = cuts_.begin()->second.first_step + exchange;
    const uint64_t over = step > begin ? (step - begin) / cuts_.begin()->second.steps : 0;
    if (over == 0) return;
    auto node = cuts_.extract(cuts_.begin());
    Cut& cut = node.mapped();
    const uint64_t dropped = std::min({over, least - node.key(), cut.epochs});
    if (dropped == cut.epochs) continue;
    node.key() += dropped;
    cut.first_step = cut.BeginOf(dropped);
    cut.epochs -= dropped;
    cuts_.insert(std::move(node));
  }
}

uint64_t Epochs::EpochOf(uint64_t step) const {
  for (const auto& [first, cut] : cuts_) {
    if (step < cut.end()) {
      return first + (step > cut.first_step ? (step - cut.first_step) / cut.steps : 0);
    }
  }
  return NextEpoch();
}

double Epochs::EpochsDone(uint64_t step) const {
  if (cuts_.empty()) return 0;
  auto run = cuts_.begin();
  while (std::next(run) != cuts_.end() && step >= run->second.end()) ++run;
  const auto& [first, cut] = *run;
  if (step <= cut.first_step) return static_cast<double>(first);
  // Beyond the last one that is known as if that went on.
  const uint64_t index = std::min((step - cut.first_step) / cut.steps, cut.epochs - 1);
  return static_cast<double>(first + index) +
         static_cast<double>(step - cut.BeginOf(index)) / static_cast<double>(cut.steps);
}

uint64_t Epochs::StepsPlanned() const {
  if (facts_.steps > 0) return facts_.steps;
  if (cuts_.empty()) return 0;
  const Cut& cut = cuts_.rbegin()->second;
  const uint64_t epoch = NextEpoch() - 1;
  const uint64_t left = static_cast<uint64_t>(facts_.epochs) > epoch ? facts_.epochs - epoch : 1;
  return cut.BeginOf(cut.epochs - 1) + cut.steps * left;
}

}  // namespace tessera
