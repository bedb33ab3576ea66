// What must be true of evaluations, and of how the rows of epochs are shared out.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace tessera {

bool Checker::MayMove(const Plan& plan) const {
  return !options_.lockstep &&
         std::any_of(plan.members.begin(), plan.members.end(),
                     [this](const PlanMember& member) { return IsRogue(member.member); });
}

void Checker::OnEvaluates(MemberId member, Attempt attempt, uint64_t part, uint64_t parts,
                          const std::vector<Version>& versions) {
  const std::string where = absl::StrCat("evaluation ", attempt.evaluation, " attempt ",
                                         attempt.attempt, " by member ", member.value());
  // Who was lost meanwhile may read, and nobody hears its scores.
  if (LeaderOf(0)->plan.Find(member) == nullptr) return;
  Standing& standing = evaluations_[{EraOf(member), attempt.evaluation, attempt.attempt}];
  const Plan& plan = LeaderOf(0)->plan;
  // Where all are lost nobody ends it, and whoever comes later begins one of the same number.
  const bool is_new = std::all_of(standing.members.begin(), standing.members.end(),
                                  [&plan](const auto& place) { return !plan.Find(place.second); });
  if (is_new) {
    standing = Standing();
    standing.parts = parts;
    standing.versions = versions;
    for (size_t shard = 0; shard < leaders_.size(); ++shard) {
      standing.generations.push_back(LeaderOf(shard)->plan.generation);
    }
  }
  if (part >= parts || parts != standing.parts) {
    Violate(absl::StrCat(where, ": part ", part, " of ", parts, ", want one of ", standing.parts));
  }
  if (const MemberId other = standing.members.emplace(part, member).first->second;
      other != member) {
    Violate(absl::StrCat(where, ": part ", part, " is also that of member ", other.value()));
  }
  for (size_t shard = 0; shard < versions.size(); ++shard) {
    // Of those who were lost since, what they had pushed may come: the others begin again.
    const Plan& led = LeaderOf(shard)->plan;
    const bool is_same = led.generation == standing.generations[shard] && !MayMove(led);
    if (versions[shard] == standing.versions[shard] || !is_same) continue;
    Violate(absl::StrCat(where, ": version of shard ", shard, " is ", versions[shard].value(),
                         ", want ", standing.versions[shard].value(), " as others score"));
  }
}

void Checker::OnScores(MemberId member, Attempt attempt) {
  const auto found = evaluations_.find({EraOf(member), attempt.evaluation, attempt.attempt});
  if (found == evaluations_.end()) return;
  for (size_t shard = 0; shard < leaders_.size(); ++shard) {
    const Ledger& ledger = *LeaderOf(shard);
    if (ledger.plan.Find(member) == nullptr) return;
    // Those who were lost since leave what they had pushed, and the others begin again.
    const bool is_same = ledger.plan.generation == found->second.generations[shard] &&
                         ledger.era == EraOf(member) && !MayMove(ledger.plan);
    if (!is_same || Version(ledger.version) == found->second.versions[shard]) continue;
    Violate(absl::StrCat("shard ", shard, ": committed version ", ledger.version,
                         " while evaluation ", attempt.evaluation, " stood at ",
                         found->second.versions[shard].value()));
  }
}

void Checker::OnCut(MemberId member, Rank rank, uint64_t epoch, const v1::EpochCut& cut) {
  const std::string where = absl::StrCat("epoch ", epoch, " of member ", member.value());
  const auto [found, is_new] = epochs_.try_emplace({EraOf(member), epoch});
  const v1::EpochCut& first = found->second.first;
  if (is_new) found->second.first = cut;
  const bool is_same = cut.first_step() == first.first_step() && cut.steps() == first.steps() &&
                       cut.parts() == first.parts() && cut.rows_total() == first.rows_total();
  if (!is_same) {
    Violate(absl::StrCat(where, ": steps [", cut.first_step(), ", +", cut.steps(), ") of ",
                         cut.parts(), " parts, for others [", first.first_step(), ", +",
                         first.steps(), ") of ", first.parts()));
  }
  // Whoever came later has none.
  if (cut.part() >= cut.parts()) return;
  const Rank other = found->second.ranks.emplace(cut.part(), rank).first->second;
  if (other != rank) {
    Violate(absl::StrCat(where, ": part ", cut.part(), " is also that of worker ", other.value()));
  }
  const auto own = std::make_pair(cut.rows_before(), cut.rows_before() + cut.batch_rows());
  for (const auto& [part, rows] : found->second.rows) {
    const bool is_its = part == cut.part() && rows == own;
    const bool is_apart = part < cut.part() ? rows.second <= own.first : own.second <= rows.first;
    if (is_its || (part != cut.part() && is_apart && rows.second > 0)) continue;
    Violate(absl::StrCat(where, ": rows [", own.first, ", ", own.second, ") of a step, and part ",
                         part, " has [", rows.first, ", ", rows.second, ")"));
  }
  if (cut.batch_rows() > 0) found->second.rows[cut.part()] = own;
}

void Checker::OnFinishes(MemberId member, Exchange exchange, bool has_done_all) {
  finishes_.push_back({member, exchange, has_done_all});
}

void Checker::CheckFinished(bool is_drained) {
  if (finishes_.empty()) return Violate("the job ended well, and nobody has finished");
  for (const Finish& finish : finishes_) {
    const std::string who = absl::StrCat("member ", finish.member.value(), " finished ");
    if (!finish.has_done_all && !is_drained) {
      Violate(absl::StrCat(who, "with steps to do, and nobody had asked it to"));
    }
    if (options_.lockstep && finish.exchange != finishes_[0].exchange) {
      Violate(absl::StrCat(who, "after exchange ", finish.exchange.value(), ", another one after ",
                           finishes_[0].exchange.value()));
    }
  }
}

}  // namespace tessera
