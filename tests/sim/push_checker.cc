// What is pushed, as far as servers can see it, and what they make of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/checker.h"

namespace tessera {

void Checker::OnBegins(MemberId member, Exchange exchange,
                       const std::optional<std::pair<MemberId, Exchange>>& from,
                       const std::vector<float>& held) {
  for (const float value : held) {
    if (value == 0) continue;
    ++reached_.taken_up;
    break;
  }
  if (const auto wrong = codecs_.OnBegins(member, exchange, from, held)) Violate(*wrong);
}

void Checker::OnPush(MemberId member, Exchange exchange, const std::vector<SentPart>& parts,
                     bool flushes) {
  std::vector<float> updates;
  for (int64_t number = 0; number < options_.shape.size; ++number) {
    updates.push_back(static_cast<float>(UpdateEntry(options_.seed, member, exchange, number)));
  }
  if (const auto wrong = codecs_.OnPush(member, exchange, updates, parts, flushes)) {
    Violate(*wrong);
  }
  const CodecChoice& codecs = options_.codecs;
  if (codecs.push == Codec() && !codecs.holds_back()) return;
  for (size_t shard = 0; shard < parts.size(); ++shard) {
    seen_[shard][{member, exchange}] = parts[shard].seen;
  }
  ++reached_.coded;
  reached_.by_qsgd += codecs.push->kind() == "qsgd" ? 1 : 0;
  reached_.held += codecs.holds_back() && !flushes ? 1 : 0;
  reached_.flushed += flushes ? 1 : 0;
}

void Checker::OnHeld(MemberId member, Exchange exchange, const std::vector<float>& held) {
  if (const auto wrong = codecs_.OnHeld(member, exchange, held)) Violate(*wrong);
}

void Checker::OnFlushed(MemberId member, Exchange exchange) {
  if (const auto wrong = codecs_.OnFlushed(member, exchange)) Violate(*wrong);
}

void Checker::OnSeen(CopyId copy, const CodedKeys& keys, const std::vector<float>& values,
                     const std::vector<float>& seen) {
  ++reached_.seen;
  if (const auto wrong = RoundingObjection(keys, values, seen)) {
    Violate(absl::StrCat("shard ", ShardOf(copy), " is read: ", *wrong));
  }
}

const std::vector<float>* Checker::SeenOf(ShardId shard, const PushFacts& push) const {
  const auto& seen = seen_[shard.value()];
  const auto found = seen.find({push.member, push.exchange});
  return found == seen.end() ? nullptr : &found->second;
}

void Checker::AddUpdate(Ledger* ledger, const PushFacts& push, float weight) {
  std::vector<bool> is_sent(ledger->pending.size(), true);
  const auto& all_keys = keys_[ledger->shard.value()];
  if (const auto keys = all_keys.find({push.member, push.exchange}); keys != all_keys.end()) {
    if (keys->second) {
      is_sent.assign(is_sent.size(), false);
      for (const int64_t place : *keys->second) is_sent[place] = true;
    }
    ledger->has_all = ledger->has_all || !keys->second;
  }
  const std::vector<float>* const seen = SeenOf(ledger->shard, push);
  const std::vector<int64_t>& numbers = shard_numbers_[ledger->shard.value()];
  size_t next = 0;
  for (size_t at = 0; at < numbers.size(); ++at) {
    float part = 0;
    if (is_sent[at] && seen != nullptr) {
      part = weight * (*seen)[next++];
    } else if (is_sent[at]) {
      part = weight * static_cast<float>(
                          UpdateEntry(options_.seed, push.member, push.exchange, numbers[at]));
    }
    ledger->pending[at] = ledger->folded.empty() ? part : ledger->pending[at] + part;
  }
}

// Those of the site that the servers have said the member is. Shared ones wait for the commit.
void Checker::ReplaceValues(Ledger* ledger, const PushFacts& push, absl::string_view where) {
  const std::map<MemberId, SubnetPlace>& cut = cuts_[{ledger->era, push.exchange.value()}];
  const auto place = cut.find(push.member);
  if (place == cut.end()) return Violate(absl::StrCat(where, ": folded, but never fetched"));
  const std::vector<float>* const seen = SeenOf(ledger->shard, push);
  size_t next = 0;
  for (const SubnetEntries::Entry& entry :
       options_.subnets->OnServer(place->second, ledger->slices)) {
    const float value = seen != nullptr
                            ? (*seen)[next++]
                            : static_cast<float>(UpdateEntry(options_.seed, push.member,
                                                             push.exchange, entry.number));
    if (entry.shared) {
      ledger->shared[entry.position] += static_cast<double>(value);
    } else {
      ledger->parameters[entry.position] = value;
    }
  }
}

}  // namespace tessera
