// Shard: the steps by which a replica joins, and a copy is made of one (replica.h).
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/shard/shard.h"

namespace tessera {
void Shard::AwaitCopy() {
  if (replica_) replica_->AwaitCopy();
}

bool Shard::IsUnheard(MemberId member) const {
  if (!awaits_copy()) return false;
  const auto found = members_.find(member);
  return found != members_.end() && !found->second.heard_from.has_value();
}

int64_t Shard::kept_bytes_max() const {
  return std::max(kKeptBytesLeast, limits_.staging_bytes + traits_.slices.bytes());
}

// Until the copy is here, pushes are kept within a limit; the first of a member in any case, as the copy
// waits for that.
absl::Status Shard::CheckKept(const ReceivedPush& push, const MemberState& member) const {
  if (!member.heard_from.has_value()) return absl::OkStatus();
  if (counters_.staged_bytes + push.payload.size() <= kept_bytes_max()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("push from member ", push.member.value(), " exchange ", push.exchange.value(),
                   ": the server is joining and keeps ", counters_.staged_bytes,
                   " bytes of pushes already, want at most ", kept_bytes_max(), "; push again"));
}

bool Shard::WantsCopy() const {
  return awaits_copy() && (HeardFromAll() || counters_.staged_bytes > kept_bytes_max() / 2);
}

bool Shard::HeardFromAll() const {
  return plan_.generation != Generation() &&
         std::all_of(members_.begin(), members_.end(),
                     [](const auto& entry) { return entry.second.heard_from.has_value(); });
}

// What one replica has folded all later copies must contain, of whichever replica: the others may have
// yet to get it.
void Shard::DropContained(const ReplicaTable& table) {
  const auto is_contained = [&](const StagedPush& push) {
    const auto folded = table.folded.find(push.member);
    return folded != table.folded.end() && push.exchange <= folded->second;
  };
  for (const StagedPush& push : staged_) {
    if (is_contained(push)) counters_.staged_bytes -= push.payload.size();
  }
  staged_.erase(std::remove_if(staged_.begin(), staged_.end(), is_contained), staged_.end());
  for (auto& [id, member] : members_) {
    const auto folded = table.folded.find(id);
    if (!member.heard_from.has_value() || folded == table.folded.end()) continue;
    member.heard_from = std::max(*member.heard_from, folded->second.Next());
  }
}

absl::Status Shard::TakeCopy(const ReplicaTable& table, absl::Span<const float> values) {
  if (!awaits_copy()) return absl::OkStatus();
  if (static_cast<int64_t>(values.size()) != traits_.slices.size) {
    return absl::InvalidArgumentError(absl::StrCat("copy of a replica: entries are ", values.size(),
                                                   ", want ", traits_.slices.size));
  }
  const auto lacks = [](const std::string& what) {
    return absl::UnavailableError(absl::StrCat("copy of a replica: lacks ", what));
  };
  DropContained(table);
  if (table.plan < plan_.generation) {
    return lacks(absl::StrCat("plan ", plan_.generation.value(), ", has ", table.plan.value()));
  }
  for (const auto& [id, member] : members_) {
    const auto folded = table.folded.find(id);
    if (member.heard_from.has_value() && folded != table.folded.end() &&
        folded->second.Next() >= *member.heard_from) {
      continue;
    }
    return lacks(absl::StrCat("pushes of member ", id.value()));
  }
  int64_t at = 0;
  for (int i = 0; i < store_.block_count(); ++i) {
    const BlockStore::Rewrite block = store_.BeginRewrite(i);
    std::copy_n(values.begin() + at, block.size, block.out);
    at += block.size;
  }
  counters_.version = table.version;
  counters_.examples = table.examples;
  for (const auto& [id, folded] : table.folded) {
    const auto found = members_.find(id);
    if (found == members_.end()) {
      replica_->Remember(id, folded);
      continue;
    }
    found->second.folded = folded;
    found->second.accepted = std::max(found->second.accepted, folded);
  }
  replica_->SetCopied();
  counters_.copied = true;
  return absl::OkStatus();
}

void Shard::FoldAccepted(absl::Time now) {
  while (replica_ && Advance(now)) {
  }
}

absl::StatusOr<ReplicaCopy> Shard::CopyReplica(absl::Time now) {
  if (!replica_) {
    return absl::InvalidArgumentError(
        "copy of a replica: this server holds a part of the model; the job's methods differ");
  }
  if (awaits_copy()) {
    return absl::UnavailableError("copy of a replica: this one is being copied itself");
  }
  FoldAccepted(now);
  ReplicaCopy copy;
  copy.read = ReadNow();
  copy.table.version = copy.read.version;
  copy.table.examples = copy.read.examples;
  copy.table.plan = plan_.generation;
  copy.table.folded = replica_->removed();
  for (const auto& [id, member] : members_) copy.table.folded[id] = member.folded;
  return copy;
}

}  // namespace tessera
