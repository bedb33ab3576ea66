// What must be true of standbys: who leads has all that anybody was told.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shard/log/shard_recorder.h"
#include "tests/sim/checker.h"

namespace tessera {

CopyId Checker::AddCopy(ShardId shard, const ShardSlices& slices, uint64_t term) {
  Ledger& ledger = ledgers_.emplace_back();
  ledger.shard = shard;
  ledger.term = term;
  ledger.slices = slices;
  shard_numbers_[shard.value()] = NumbersIn(numbers_, slices);
  for (auto& [era, cores] : cores_) cores.SetNumbers(shard, shard_numbers_[shard.value()]);
  ledger.parameters.assign(slices.size, 0);
  if (options_.subnets != nullptr) ledger.parameters = options_.subnets->InitialValues(slices);
  ledger.pending.assign(slices.size, 0);
  return CopyId(ledgers_.size() - 1);
}

void Checker::OnFollows(CopyId copy, uint64_t term) {
  Ledger& ledger = ledgers_[copy.value()];
  ledger.term = term;
  if (const auto log = logs_.find({ledger.shard, term}); log != logs_.end()) {
    ledger.era = log->second;
  }
}

const Checker::Ledger* Checker::LeaderOf(size_t shard) const {
  return leaders_[shard].has_value() ? &ledgers_[leaders_[shard]->value()] : nullptr;
}

void Checker::OnImageTaken(CopyId leader, uint64_t term) {
  const Ledger& ledger = ledgers_[leader.value()];
  images_[{ledger.shard, term}] = ledger;
}

void Checker::OnLogBegun(CopyId leader, uint64_t term) {
  const Ledger& ledger = ledgers_[leader.value()];
  logs_[{ledger.shard, term}] = ledger.era;
}

void Checker::OnImage(CopyId copy) {
  Ledger& ledger = ledgers_[copy.value()];
  const auto image = images_.find({ledger.shard, ledger.term});
  if (image == images_.end()) {
    return Violate(absl::StrCat("shard ", ShardOf(copy), ": a copy of term ", ledger.term,
                                " has an image that nobody has made"));
  }
  const uint64_t term = ledger.term;
  const Shard* const shard = ledger.copy;
  ledger = image->second;
  ledger.term = term;
  ledger.copy = shard;
  ledger.leads = false;
  ledger.serves = false;
}

bool Checker::Has(const Ledger& ledger, MemberId member, Exchange exchange) const {
  if (ledger.applied.count({member, exchange}) > 0) return true;
  // Dropped with its member, or by one that will be told so.
  if (ledger.plan.Find(member) == nullptr) return true;
  for (const ShardEvent& event : ShardRecorder::StagedPushesOf(*ledger.copy)) {
    const auto& push = std::get<PushEvent>(event).push;
    if (push.member == member && push.exchange == exchange) return true;
  }
  return false;
}

void Checker::CheckKnows(const Ledger& ledger, Knowledge known, absl::string_view where) {
  const uint64_t version = known.version.value();
  // Of before the job went back.
  if (known.era < ledger.era) return;
  if (known.era > ledger.era) {
    return Violate(absl::StrCat(where, ": has what the job has gone back behind"));
  }
  if (version > ledger.version) {
    return Violate(
        absl::StrCat(where, ": version ", version, " was told, and it has ", ledger.version));
  }
  if (ledger.history[version] != known.history) {
    Violate(absl::StrCat(where, ": version ", version, " was told of other pushes"));
  }
}

bool Checker::IsBlank(const Ledger& ledger, bool is_new) const {
  const Ledger* const other = LeaderOf(ledger.shard.value());
  if (other == nullptr) return false;
  if (is_new) return other->plan.generation > Generation(0) || other->era > Generation(0);
  if (!options_.goes_back) return false;
  // What it followed is of no use, or not all there: it must be told to go back.
  const Told& told = told_[ledger.shard.value()];
  const bool has_all =
      std::all_of(told.acknowledged.begin(), told.acknowledged.end(),
                  [&](const auto& push) { return Has(ledger, push.first, push.second); });
  return !has_all || told.knowledge.era > ledger.era ||
         told.knowledge.version > Version(ledger.version);
}

void Checker::OnLeads(CopyId copy, uint64_t lead_term, bool is_new) {
  Ledger& ledger = ledgers_[copy.value()];
  const Ledger* const other = LeaderOf(ledger.shard.value());
  if (lead_terms_[ledger.shard.value()] > lead_term) return;
  lead_terms_[ledger.shard.value()] = lead_term;
  if (other != nullptr && other != &ledger && other->lead_term == lead_term && lead_term > 0) {
    return Violate(
        absl::StrCat("shard ", ledger.shard.value(), ": two lead it in term ", lead_term));
  }
  ledger.lead_term = lead_term;
  ledger.is_blank = IsBlank(ledger, is_new);
  if (ledger.is_blank) return;
  const uint64_t shard = ledger.shard.value();
  const std::string where = absl::StrCat("shard ", shard, " led by copy ", copy.value());
  ledger.leads = true;
  leaders_[shard] = copy;
  for (const auto& [member, exchange] : told_[shard].acknowledged) {
    if (Has(ledger, member, exchange)) continue;
    return Violate(absl::StrCat(where, ": lacks exchange ", exchange.value(), " of member ",
                                member.value(), ", which was acknowledged"));
  }
  CheckKnows(ledger, told_[shard].knowledge, where);
  if (options_.core && ledger.selecting) {
    CoresOf(ledger.era)
        .OnSelection(ledger.shard, *ledger.selecting, ledger.selected_values,
                     ledger.selected_gradient);
  }
}

void Checker::OnAcknowledged(CopyId copy, MemberId member, Exchange exchange) {
  const uint64_t shard = ShardOf(copy);
  told_[shard].acknowledged.insert({member, exchange});
  if (leaders_[shard] == copy || Has(*LeaderOf(shard), member, exchange)) return;
  Violate(absl::StrCat("shard ", shard, ": a leader of old acknowledged exchange ",
                       exchange.value(), " of member ", member.value(),
                       ", which the new one lacks"));
}

Checker::Knowledge Checker::KnowledgeOf(CopyId copy) const {
  const Ledger& ledger = ledgers_[copy.value()];
  return {Version(ledger.version), ledger.history.back(), ledger.era};
}

void Checker::OnTold(ShardId shard, MemberId member, Knowledge knowledge) {
  CheckKnows(*LeaderOf(shard.value()), knowledge,
             absl::StrCat("shard ", shard.value(), " told member ", member.value()));
  Told& told = told_[shard.value()];
  const bool is_later =
      knowledge.era == told.knowledge.era && knowledge.version > told.knowledge.version;
  if (is_later) told.knowledge = knowledge;
}

}  // namespace tessera
