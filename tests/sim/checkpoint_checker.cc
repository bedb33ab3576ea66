// What must be true of checkpoints and of going back to one.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace tessera {

Generation Checker::EraOf(MemberId member) const {
  const auto found = eras_.find(member);
  return found == eras_.end() ? Generation() : found->second;
}

CoreChecker& Checker::CoresOf(Generation era) {
  const auto found = cores_.find(era);
  if (found != cores_.end()) return found->second;
  CoreChecker& cores =
      cores_.emplace(era, CoreChecker(*options_.core, options_.job_seed, options_.shards))
          .first->second;
  for (const Ledger& ledger : ledgers_) {
    cores.SetNumbers(ledger.shard, shard_numbers_[ledger.shard.value()]);
  }
  return cores;
}

uint64_t Checker::OnCopied(CopyId copy, Exchange after, Version version,
                           const std::vector<float>& values) {
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " copied for a checkpoint");
  FollowSelection(copy);
  const Ledger& ledger = ledgers_[copy.value()];
  OnCounted(copy, version);
  CompareValues(ledger, values, nullptr, where);
  // At the end some may begin with an exchange that the others do not make: it is not in the values, but for
  // those who begin with a round of subnets.
  const bool is_end = after == kCopyAtOnce || (options_.lockstep && after == Exchange(0));
  const bool is_half = options_.subnets != nullptr ? IsInRound(copy) : !ledger.folded.empty();
  if (is_half && (!is_end || options_.subnets != nullptr)) {
    Violate(absl::StrCat(where, ": an update is half collected"));
  }
  if (after != Exchange(0) && ledger.committed > after) {
    Violate(absl::StrCat(where, ": contains exchange ", ledger.committed.value(), ", want ",
                         after.value()));
  }
  copies_.push_back(ledger);
  copies_.back().copied_after = after == kCopyAtOnce ? Exchange(0) : after;
  return copies_.size() - 1;
}

void Checker::OnWhole(const Manifest& manifest, const std::vector<uint64_t>& copies,
                      const std::vector<SavedWorker>& workers) {
  const std::string where = absl::StrCat("checkpoint of step ", manifest.step);
  if (copies.size() != leaders_.size()) return Violate(absl::StrCat(where, ": shards are missing"));
  whole_copies_[manifest.step] = copies;
  if (workers.empty()) Violate(absl::StrCat(where, ": has no worker's file"));
  for (const uint64_t number : copies) {
    const Ledger& copy = copies_[number];
    if (copy.era != copies_[copies[0]].era) {
      Violate(absl::StrCat(where, ": shards are of before and after the job went back"));
    }
    // At the end the last may have gone before their exchange was complete, and another one begins after it.
    const bool is_of_it = copy.copied_after == Exchange(0)
                              ? copy.committed <= Exchange(manifest.exchange)
                              : copy.committed == Exchange(manifest.exchange);
    if (options_.lockstep && !is_of_it) {
      Violate(absl::StrCat(where, ": shard ", copy.shard.value(), " is of exchange ",
                           copy.committed.value(), ", want ", manifest.exchange));
    }
  }
  const uint64_t steps = manifest.exchange * options_.local_steps;
  if (options_.lockstep && manifest.step > steps) {
    Violate(absl::StrCat(where, ": is of exchange ", manifest.exchange, ", after which ", steps,
                         " steps are made"));
  }
  for (const SavedWorker& worker : workers) {
    // Those who began late may have fewer steps left at the end.
    const bool is_end = copies_[copies[0]].copied_after == Exchange(0);
    const bool is_same =
        worker.exchange == Exchange(manifest.exchange) && (worker.step == manifest.step || is_end);
    if (!options_.lockstep || is_same) continue;
    Violate(absl::StrCat(where, ": worker ", worker.rank.value(), " is at exchange ",
                         worker.exchange.value(), ", step ", worker.step, ", want ",
                         manifest.exchange, " and ", manifest.step));
  }
}

void Checker::OnKnownWhole(uint64_t step) {
  if (!wholes_.empty() && step <= wholes_.back()) {
    Violate(absl::StrCat("a checkpoint of step ", step, " came after one of ", wholes_.back()));
  }
  wholes_.push_back(step);
}

void Checker::OnRestoreOrder(Generation generation, uint64_t step) {
  const auto [found, is_new] = restores_.emplace(generation, step);
  if (found->second != step) {
    Violate(absl::StrCat("generation ", generation.value(), " is of step ", step,
                         " for one server, of ", found->second, " for another"));
  }
  if (!is_new) return;
  // One whose end was kept may have been heard of by nobody else.
  if (wholes_.empty() || step > wholes_.back()) wholes_.push_back(step);
  if (step == wholes_.back()) return;
  Violate(absl::StrCat("the job goes back to step ", step, ", and there is a checkpoint of ",
                       wholes_.back()));
}

void Checker::OnRestored(CopyId copy, uint64_t lead_term, Generation generation, uint64_t step,
                         Version version, const std::vector<float>& values) {
  const std::string where = absl::StrCat("shard ", ShardOf(copy), " restored from step ", step);
  const auto whole = whole_copies_.find(step);
  if (whole == whole_copies_.end()) return Violate(absl::StrCat(where, ": there is no such"));
  Ledger& ledger = ledgers_[copy.value()];
  const size_t shard = ledger.shard.value();
  Ledger from = copies_[whole->second[shard]];
  from.era = generation;
  from.term = ledger.term;
  from.copy = ledger.copy;
  from.leads = true;
  from.lead_term = lead_term;
  from.serves = true;
  from.is_blank = false;
  // Its members are others now, and the policy begins anew.
  from.plan = Plan();
  from.clocks.clear();
  from.applied.clear();
  from.resting.clear();
  from.highest = Exchange();
  from.round = Exchange(1);
  from.has_begun = false;
  if (!options_.lockstep) {
    from.selecting.reset();
    from.gradient.clear();
  }
  // What was selected then is, or will be again, of the same values; also where the others have yet to go back.
  if (options_.core && options_.lockstep && cores_.count(generation) == 0) {
    for (const uint64_t number : whole->second) {
      const Ledger& saved = copies_[number];
      if (!saved.selecting) continue;
      CoresOf(generation)
          .OnSelection(saved.shard, *saved.selecting, saved.selected_values,
                       saved.selected_gradient);
    }
  }
  ledger = std::move(from);
  // Another one has been told to lead meanwhile.
  if (lead_term >= lead_terms_[shard]) {
    leaders_[shard] = copy;
    told_[shard] = {{}, KnowledgeOf(copy)};
  }
  OnCounted(copy, version);
  CompareValues(ledger, values, nullptr, where);
}

void Checker::OnResumed(MemberId member, Exchange exchange, uint64_t step,
                        const std::optional<SavedWorker>& saved) {
  if (!saved || (saved->exchange == exchange && saved->step == step)) return;
  Violate(absl::StrCat("member ", member.value(), ": goes on after exchange ", exchange.value(),
                       ", step ", step, ", and has saved exchange ", saved->exchange.value(),
                       ", step ", saved->step));
}

}  // namespace tessera
