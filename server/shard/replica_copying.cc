#include "server/shard/replica_copying.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {

bool ReplicaCopying::IsUnheard(MemberId member) const {
  // A member is heard when a push of it came: from then on this server has all of its pushes.
  if (!awaits_copy_) return false;
  const ShardMember* const found = state_.members.Find(member);
  return found != nullptr && !found->heard_from.has_value();
}

// A small model's limit would be reached by a few pushes, and members would be sent away again and again.
int64_t ReplicaCopying::kept_bytes_max() const {
  return std::max(kKeptBytesLeast, state_.limits.staging_bytes + state_.traits.slices.bytes());
}

absl::Status ReplicaCopying::CheckKept(const ReceivedPush& push) const {
  if (!awaits_copy_ || IsUnheard(push.member)) return absl::OkStatus();
  const int64_t kept = state_.stage.bytes();
  if (kept + push.payload.size() <= kept_bytes_max()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(Where(push), ": the server is joining and keeps ",
                                             kept, " bytes of pushes already, want at most ",
                                             kept_bytes_max(), "; push again"));
}

bool ReplicaCopying::WantsCopy() const {
  // The copy is made when all members were heard, or when keeping more pushes would take too much.
  return awaits_copy_ && (HeardFromAll() || state_.stage.bytes() > kept_bytes_max() / 2);
}

bool ReplicaCopying::HeardFromAll() const {
  // Without a plan there are no members yet, and nobody was heard.
  const ShardMembers::States& members = state_.members.states();
  return state_.members.plan().generation != Generation() &&
         std::all_of(members.begin(), members.end(),
                     [](const auto& entry) { return entry.second.heard_from.has_value(); });
}

// What one replica has folded all later copies must contain, of whichever replica: the others may have
// yet to get it.
void ReplicaCopying::DropContained(const ReplicaTable& table) {
  state_.stage.DropIf([&](const StagedPush& push) {
    const auto folded = table.folded.find(push.member);
    return folded != table.folded.end() && push.exchange <= folded->second;
  });
  for (auto& [id, member] : state_.members.states()) {
    const auto folded = table.folded.find(id);
    if (!member.heard_from.has_value() || folded == table.folded.end()) continue;
    member.heard_from = std::max(*member.heard_from, folded->second.Next());
  }
}

absl::Status ReplicaCopying::TakeCopy(const ReplicaTable& table, absl::Span<const float> values) {
  if (!awaits_copy_) return absl::OkStatus();
  const int64_t size = state_.traits.slices.size;
  if (static_cast<int64_t>(values.size()) != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("copy of a replica: entries are ", values.size(), ", want ", size));
  }
  const auto lacks = [](const std::string& what) {
    return absl::UnavailableError(absl::StrCat("copy of a replica: lacks ", what));
  };
  // What this table shows to be done may go, whether or not the values will do.
  DropContained(table);
  const Generation plan = state_.members.plan().generation;
  // The copy must know the members that this server knows, or their pushes would be lost between the two.
  if (table.plan < plan) {
    return lacks(absl::StrCat("plan ", plan.value(), ", has ", table.plan.value()));
  }
  for (const auto& [id, member] : state_.members.states()) {
    const auto folded = table.folded.find(id);
    if (member.heard_from.has_value() && folded != table.folded.end() &&
        folded->second.Next() >= *member.heard_from) {
      continue;
    }
    return lacks(absl::StrCat("pushes of member ", id.value()));
  }
  int64_t at = 0;
  for (int i = 0; i < state_.store.block_count(); ++i) {
    const BlockStore::Rewrite block = state_.store.BeginRewrite(i);
    std::copy_n(values.begin() + at, block.size, block.out);
    at += block.size;
  }
  state_.counters.version = table.version;
  state_.counters.examples = table.examples;
  // Members that have left since keep the exchange they had reached, so that a late push of theirs is a duplicate.
  for (const auto& [id, folded] : table.folded) {
    ShardMember* const member = state_.members.Find(id);
    if (member == nullptr) {
      state_.members.SetDepartedFolded(id, folded);
      continue;
    }
    member->folded = folded;
    member->accepted = std::max(member->accepted, folded);
  }
  // From here on the server is a replica like the others.
  awaits_copy_ = false;
  copied_ = true;
  state_.counters.copied = true;
  return absl::OkStatus();
}

void ReplicaCopying::FoldAccepted(absl::Time now) {
  // All that was accepted is folded first, so that the table and the values say the same.
  while (state_.is_replica && advance_(now)) {
  }
}

absl::StatusOr<ReplicaCopy> ReplicaCopying::MakeCopy(absl::Time now) {
  if (!state_.is_replica) {
    return absl::InvalidArgumentError(
        "copy of a replica: this server holds a part of the model; the job's methods differ");
  }
  if (awaits_copy_) {
    return absl::UnavailableError("copy of a replica: this one is being copied itself");
  }
  FoldAccepted(now);
  ReplicaCopy copy;
  copy.read = state_.ReadNow();
  copy.table = {copy.read.version, copy.read.examples, copy.read.plan, state_.members.Folded()};
  return copy;
}

}  // namespace tessera
