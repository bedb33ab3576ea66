// What must be true of standbys: who leads has all that anybody was told.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace tessera {

CopyId Checker::AddCopy(ShardId shard, const ShardSlices& slices, uint64_t term) {
  Ledger& ledger = ledgers_.emplace_back();
  ledger.shard = shard;
  ledger.term = term;
  ledger.slices = slices;
  ledger.parameters.assign(slices.size, 0);
  if (options_.subnets != nullptr) ledger.parameters = options_.subnets->InitialValues(slices);
  ledger.pending.assign(slices.size, 0);
  if (cores_) cores_->SetSlices(shard, slices);
  return CopyId(ledgers_.size() - 1);
}

const Checker::Ledger* Checker::LeaderOf(size_t shard) const {
  return leaders_[shard].has_value() ? &ledgers_[leaders_[shard]->value()] : nullptr;
}

void Checker::OnImageTaken(CopyId leader, uint64_t term) {
  const Ledger& ledger = ledgers_[leader.value()];
  images_[{ledger.shard, term}] = ledger;
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
  for (const ShardEvent& event : ledger.copy->StagedPushes()) {
    const auto& push = std::get<PushEvent>(event).push;
    if (push.member == member && push.exchange == exchange) return true;
  }
  return false;
}

void Checker::CheckKnows(const Ledger& ledger, Knowledge known, absl::string_view where) {
  const uint64_t version = known.version.value();
  if (version > ledger.version) {
    return Violate(
        absl::StrCat(where, ": version ", version, " was told, and it has ", ledger.version));
  }
  if (ledger.history[version] != known.history) {
    Violate(absl::StrCat(where, ": version ", version, " was told of other pushes"));
  }
}

void Checker::OnLeads(CopyId copy, uint64_t lead_term) {
  Ledger& ledger = ledgers_[copy.value()];
  const Ledger* const other = LeaderOf(ledger.shard.value());
  if (other != nullptr && other->lead_term > lead_term) return;
  if (other != nullptr && other != &ledger && other->lead_term == lead_term) {
    return Violate(
        absl::StrCat("shard ", ledger.shard.value(), ": two lead it in term ", lead_term));
  }
  ledger.lead_term = lead_term;
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
  if (cores_ && ledger.selecting) {
    cores_->OnSelection(ledger.shard, *ledger.selecting, ledger.selected_values,
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
  return {Version(ledger.version), ledger.history.back()};
}

void Checker::OnTold(ShardId shard, MemberId member, Knowledge knowledge) {
  CheckKnows(*LeaderOf(shard.value()), knowledge,
             absl::StrCat("shard ", shard.value(), " told member ", member.value()));
  Told& told = told_[shard.value()];
  if (knowledge.version > told.knowledge.version) told.knowledge = knowledge;
}

}  // namespace tessera
