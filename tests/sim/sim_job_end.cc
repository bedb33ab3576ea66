// How a simulated job ends, and whether it may end so.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/sim/sim_job.h"

namespace tessera {
namespace {

// With faults ended, everything is found out within a few leases and the rest of the job takes
// seconds.
constexpr absl::Duration kPatience = absl::Seconds(60);

}  // namespace

bool SimJob::MayMiss(const MemberRecord& record) const {
  for (uint64_t life = record.life; life <= workers_.size(); ++life) {
    const SimWorker& worker = *workers_[life - 1];
    const bool is_it = life == record.life || worker.wanted_rank() == record.rank.value();
    if (is_it && (harm_.MayBeSilent(worker.node()) || harm_.MayHang(worker.node()))) return true;
  }
  return false;
}

void SimJob::CheckLoss(const MemberRecord& record) {
  // Whatever becomes of it, it has asked for that.
  if (record.life >= kFirstRogueLife) return;
  const SimWorker& worker = *workers_[record.life - 1];
  const absl::Time now = queue_.now();
  const std::string who =
      absl::StrCat("member ", record.member.value(), " was lost (", record.ended, "): ");
  if (record.state == MemberState::kMissed) {
    if (!MayMiss(record)) checker_.Violate(absl::StrCat(who, "its worker was well"));
  } else if (absl::StartsWith(record.ended, "last heard")) {
    const absl::Duration silence = now - coordinator_->Heard(worker.node());
    if (silence <= kLease) {
      checker_.Violate(absl::StrCat(who, "it was heard ", absl::FormatDuration(silence), " ago"));
    } else if (!harm_.MayBeSilent(worker.node())) {
      checker_.Violate(absl::StrCat(who, "its worker was well"));
    }
  } else if (absl::StartsWith(record.ended, "it kept its lease")) {
    const bool may_stand = harm_.MayHang(worker.node()) || harm_.MayBeSilent(worker.node());
    if (!may_stand) checker_.Violate(absl::StrCat(who, "it did not hang"));
  } else {
    checker_.Violate(absl::StrCat(who, "there is no such reason"));
  }
}

void SimJob::CheckFailure(const std::string& why) {
  const Coordinator& coordinator = coordinator_->state();
  const Membership& membership = coordinator.membership();
  Harm::Facts facts;
  facts.keeps_standbys = options_.standbys;
  const v1::MembershipState saved = coordinator.Save().membership();
  facts.can_go_back = checker_.wholes() > 0 && !saved.training_over() && !saved.drain_wanted();
  facts.rollbacks = coordinator.Status(queue_.now()).checkpoint().rollbacks();
  facts.has_told_unkept = coordinator_->has_told_unkept();
  for (size_t rank = 0; rank < servers_.size(); ++rank) {
    const absl::Time heard = coordinator_->Heard(servers_[rank]->node());
    if (queue_.now() - heard > kLease) facts.silent.insert(static_cast<uint32_t>(rank));
  }
  if (const auto objection = harm_.Objection(why, facts, kLease)) checker_.Violate(*objection);
  if (!absl::StartsWith(why, "all workers are gone")) return;
  for (const auto& [member, record] : membership.members().all()) {
    if (!IsLive(record.state) || !membership.sites().MayBegin(record)) continue;
    checker_.Violate(
        absl::StrCat("the job failed with \"", why, "\": member ", member.value(), " could go on"));
  }
}

void SimJob::OnStatus(const v1::JobStatus& status, uint64_t coordinator) {
  checker_.OnStatus(status, coordinator);
  if (coordinator_ == nullptr) return;  // It is being made.
  // A server that cannot be done without drains the job: where nothing else happens to servers only one whose first
  // checkpoint could not be written, as a worker's disk fails.
  const bool may_drain = options_.leaves && (!OnlyLeaves() || options_.checkpoints);
  if (may_drain && coordinator_->state().membership().draining()) harm_.OnDrained();
  // Nobody is asked any more once the job has failed.
  const std::string why(coordinator_->state().outcome().message());
  if (failures_.count(why) > 0) return;
  for (const auto& [member, record] : coordinator_->state().membership().members().all()) {
    if (!IsLost(record.state) || !losses_.emplace(member, record.ended).second) continue;
    CheckLoss(record);
  }
  if (why.empty()) return;
  failures_.insert(why);
  CheckFailure(why);
}

std::set<MemberId> SimJob::Lost() {
  std::set<MemberId> lost;
  for (const auto& [member, record] : coordinator_->state().membership().members().all()) {
    // Also those that the coordinator ended, with training, before they could begin.
    if (record.life >= kFirstRogueLife) {
      lost.insert(member);
      continue;
    }
    const bool finished = record.state == MemberState::kLeft && record.ended == "finished";
    if (!IsLive(record.state) && !finished) lost.insert(member);
    const bool is_late = record.state == MemberState::kLeft && !finished;
    if (is_late && checker_.HasPushed(member)) {
      checker_.Violate(
          absl::StrCat("member ", member.value(), " had pushed, and was ended: ", record.ended));
    }
  }
  return lost;
}

std::string SimJob::Describe() const {
  std::string text =
      absl::StrCat("at ", absl::FormatDuration(queue_.now() - absl::UnixEpoch()), " coordinator ",
                   coordinator_->state().Status(queue_.now()).state(), " waits for:");
  for (const std::string& name : coordinator_->state().membership().WaitingFor()) {
    absl::StrAppend(&text, " ", name);
  }
  for (const auto& server : servers_) absl::StrAppend(&text, "\n  ", server->Describe());
  for (const auto& host : hosts_) absl::StrAppend(&text, "\n  ", host->Describe());
  for (const auto& worker : workers_) absl::StrAppend(&text, "\n  ", worker->Describe());
  if (rogue_ != nullptr) absl::StrAppend(&text, "\n  the rogue made: ", rogue_->made());
  return text;
}

SimOutcome SimJob::Run() {
  const absl::Time give_up = faults_end_ + kPatience;
  while (!checker_.violation().has_value()) {
    if (coordinator_->ended() && AllOver() && queue_.now() > faults_end_) break;
    if (queue_.now() > give_up) {
      // What was told and not kept may have reached workers only, as its way to all servers was longer than the
      // coordinator lived. Then nobody can know.
      if (coordinator_->has_told_unkept() && !coordinator_->has_given_up()) break;
      checker_.OnStuck(Describe());
      break;
    }
    TESSERA_CHECK(queue_.RunNext());
  }
  // What is still on its way arrives: late messages to a job that has ended.
  const absl::Time quiet = queue_.now() + kLease;
  while (!checker_.violation().has_value() && queue_.now() < quiet) queue_.RunNext();
  return Judge();
}

SimOutcome SimJob::Judge() {
  SimOutcome outcome;
  const Coordinator& coordinator = coordinator_->state();
  const Membership& membership = coordinator.membership();
  const std::set<MemberId> lost = Lost();
  outcome.finished = coordinator.ended() && coordinator.outcome().ok();
  outcome.drained = harm_.is_drained();
  outcome.reached = checker_.reached();
  outcome.several = shape_.parameters.size() > 1 ? 1 : 0;
  outcome.struck_evaluating = struck_evaluating_;
  outcome.rollbacks = coordinator.Status(queue_.now()).checkpoint().rollbacks();
  outcome.checkpoints = checker_.wholes();
  // The report is exact where every server was there to the end.
  if (!checker_.violation().has_value() && outcome.finished && membership.servers().AllClosed()) {
    std::optional<uint64_t> partial_pushes;
    // A rogue pushes what it likes to whom it likes, and leaves as one that has finished.
    if (outcome.rollbacks == 0 && rogue_ == nullptr) partial_pushes = membership.partial_pushes();
    checker_.OnEnd(lost, partial_pushes, harm_.is_drained());
    outcome.judged = true;
  }
  if (!checker_.violation().has_value() && !options_.faults && !outcome.finished) {
    checker_.Violate(absl::StrCat("no faults, but: ", coordinator.outcome().message()));
  }
  outcome.violation = checker_.violation();
  outcome.commits = checker_.commits();
  if (rogue_ != nullptr) {
    outcome.rogue_calls = rogue_->calls_made();
    outcome.rogue_pushes = rogue_->pushes_taken();
  }
  for (const MemberId member : lost) {
    const MemberRecord& record = *membership.members().Find(member);
    if (record.life >= kFirstRogueLife) continue;
    outcome.lost += record.state == MemberState::kRejoins ? 0 : 1;
  }
  for (const auto& [member, record] : membership.members().all()) {
    outcome.joined_late += record.first_exchange > Exchange(1);
  }
  outcome.partial_pushes = membership.partial_pushes();
  if (options_.standbys) outcome.takeovers = coordinator.Status(queue_.now()).takeovers();
  outcome.protected_again = protected_again_;
  outcome.left = left_;
  outcome.coordinators = coordinators_;
  outcome.forgiven = coordinator_->has_told_unkept();
  outcome.duration = queue_.now() - absl::UnixEpoch();
  outcome.fingerprint =
      Scrambled(outcome.commits + 1000003 * absl::ToInt64Nanoseconds(outcome.duration)) +
      dice_.Next();
  return outcome;
}

}  // namespace tessera
