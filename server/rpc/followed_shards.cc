#include "server/rpc/followed_shards.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/rpc/shard_log_message.h"

namespace tessera {
namespace {

// Bytes of entries between the first fold of an update and its sum: far more than a plan for each of all members.
constexpr size_t kHeldBytesMax = size_t{64} << 20;

}  // namespace

absl::StatusOr<uint64_t> FollowedShard::Take(const v1::LogChunk& chunk, Payload payload,
                                             absl::Time now) {
  absl::MutexLock lock(&mutex_);
  // The standby has become the leader, and whoever still sends is the former one.
  if (shard_ == nullptr) {
    return absl::FailedPreconditionError("log of a shard: the standby leads it by now");
  }
  absl::Status status;
  for (const v1::LogEntry& entry : chunk.entries()) {
    // Values of an entry may come in several chunks; the next entry begins once they are complete.
    if (partial_.has_value()) {
      status =
          absl::InvalidArgumentError("log of a shard: an entry begins before the last one ends");
      break;
    }
    if (entry.payload_bytes() > static_cast<uint64_t>(follower_.event_bytes_max())) {
      status = absl::InvalidArgumentError(
          absl::StrCat("log of a shard: entry ", entry.position(), " has ", entry.payload_bytes(),
                       " bytes of values, want at most ", follower_.event_bytes_max()));
      break;
    }
    if (entry.payload_bytes() > 0) {
      partial_ = entry;
      received_ = Payload();
      continue;
    }
    status = Apply(entry, Payload(), now);
    if (!status.ok()) break;
  }
  if (status.ok() && payload.size() > 0) {
    const uint64_t wanted = partial_.has_value() ? partial_->payload_bytes() : 0;
    // No more values are kept than the entry announced.
    if (static_cast<uint64_t>(received_.size() + payload.size()) > wanted) {
      status = absl::InvalidArgumentError("log of a shard: has more values than it says");
    } else {
      const auto owner = std::make_shared<const Payload>(std::move(payload));
      for (const Payload::Piece& piece : owner->pieces()) received_.Append(piece, owner);
      if (static_cast<uint64_t>(received_.size()) == wanted) {
        const v1::LogEntry entry = *std::exchange(partial_, std::nullopt);
        status = Apply(entry, std::exchange(received_, Payload()), now);
      }
    }
  }
  if (status.ok()) return position_;
  // A copy that has failed once would go on with another history: it is dropped, and the leader begins anew.
  shard_.reset();
  return status;
}

// Times of the log are the leader's clock; here they count from the moment at which the first one came.
void FollowedShard::MoveTime(absl::Time now, ShardEvent* event) {
  absl::Time* time = nullptr;
  if (auto* advance = std::get_if<AdvanceEvent>(event)) time = &advance->now;
  if (auto* fold = std::get_if<FoldEvent>(event)) time = &fold->time;
  if (auto* commit = std::get_if<CommitEvent>(event)) time = &commit->time;
  if (time == nullptr) return;
  if (!clock_offset_.has_value()) clock_offset_ = now - *time;
  *time += *clock_offset_;
}

// Folds are applied with their sum: a log that ends between them ends before them.
absl::Status FollowedShard::Apply(const v1::LogEntry& entry, Payload payload, absl::Time now) {
  // Every entry is there in its order, or the copy is none.
  if (entry.position() != position_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("log of a shard: entry is ", entry.position(), ", want ", position_ + 1));
  }
  position_ = entry.position();
  TESSERA_ASSIGN_OR_RETURN(ShardEvent event,
                           FromMessage(entry, std::move(payload), shard_->traits().codecs.push));
  MoveTime(now, &event);
  // Folds are held until their sum has come.
  const bool is_open = entry.has_fold() || !held_.empty();
  held_bytes_ += entry.ByteSizeLong();
  held_.emplace_back(entry, std::move(event));
  if (is_open && !entry.has_commit()) {
    if (held_bytes_ <= kHeldBytesMax) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("log of a shard: folds before entry ", entry.position(), " have no sum"));
  }
  held_bytes_ = 0;
  for (auto& [held, change] : std::exchange(held_, {})) {
    TESSERA_RETURN_IF_ERROR(follower_.Apply(std::move(change)));
    // Folds and what comes between say the version before their commit.
    const bool is_told = !held.has_fold();
    if (is_told && shard_->counters().version != Version(held.version())) {
      return absl::InvalidArgumentError(
          absl::StrCat("log of a shard: version is ", shard_->counters().version.value(),
                       " after entry ", held.position(), ", want ", held.version()));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<Shard> FollowedShard::TakeOver() {
  absl::MutexLock lock(&mutex_);
  held_.clear();
  return std::move(shard_);
}

absl::StatusOr<std::shared_ptr<FollowedShard>> FollowedShards::Begin(const v1::LogHeader& header) {
  const std::string where = absl::StrCat("log of shard ", header.shard());
  if (header.job_digest() != options_.job_digest || header.layout_hash() != options_.layout_hash) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": is of another job or layout"));
  }
  absl::MutexLock lock(&mutex_);
  if (header.server_key() != server_key_) {
    // A leader of another run, or a stranger, would replace this copy by another job's.
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": is not of a server of this run, whose server_key it would have"));
  }
  const auto found = shards_.find(ShardId(header.shard()));
  if (found == shards_.end() || found->second.term != header.term()) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": term is ", header.term(), ", want ",
                     found == shards_.end() ? 0 : found->second.term));
  }
  Followed& followed = found->second;
  // A second stream of the term would mix two histories.
  if (followed.copy != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": the term has a stream already"));
  }
  // The shard that will follow is made beforehand by PrepareOne, which takes long.
  if (followed.fresh == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": the standby is not made yet"));
  }
  followed.copy = std::make_shared<FollowedShard>(std::move(followed.fresh));
  return followed.copy;
}

bool FollowedShards::PrepareOne() {
  std::optional<ShardId> wanted;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [shard, followed] : shards_) {
      if (!followed.is_prepared()) wanted = shard;
    }
  }
  if (!wanted.has_value()) return false;
  // Made without the lock: initial values of a large shard take seconds.
  std::unique_ptr<Shard> made = options_.make_shard(*wanted);
  absl::MutexLock lock(&mutex_);
  const auto found = shards_.find(*wanted);
  if (found != shards_.end() && !found->second.is_prepared()) found->second.fresh = std::move(made);
  return true;
}

void FollowedShards::Fill(v1::HostMessage* message) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [shard, followed] : shards_) {
    if (!followed.is_prepared()) continue;
    v1::ShardOrder& follows = *message->add_follows();
    follows.set_shard(static_cast<uint32_t>(shard.value()));
    follows.set_term(followed.term);
  }
}

void FollowedShards::Follow(ShardId shard, uint64_t term) {
  std::shared_ptr<FollowedShard> dropped;
  {
    absl::MutexLock lock(&mutex_);
    Followed& followed = shards_[shard];
    // A new term has a leader with another log, so the copy is made anew.
    if (followed.term == term) return;
    followed.term = term;
    dropped = std::exchange(followed.copy, nullptr);
  }
  if (dropped != nullptr) dropped->TakeOver();
}

void FollowedShards::Keep(const std::set<ShardId>& shards) {
  // Shards are destroyed without the lock, as they are large.
  std::vector<std::shared_ptr<FollowedShard>> dropped;
  std::vector<std::unique_ptr<Shard>> unused;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = shards_.begin(); it != shards_.end();) {
      if (shards.count(it->first) > 0) {
        ++it;
        continue;
      }
      dropped.push_back(std::move(it->second.copy));
      unused.push_back(std::move(it->second.fresh));
      it = shards_.erase(it);
    }
  }
  for (const auto& copy : dropped) {
    if (copy != nullptr) copy->TakeOver();
  }
}

std::unique_ptr<Shard> FollowedShards::TakeOver(ShardId shard) {
  std::shared_ptr<FollowedShard> copy;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = shards_.find(shard);
    if (found == shards_.end()) return nullptr;
    copy = found->second.copy;
    shards_.erase(found);
  }
  return copy == nullptr ? nullptr : copy->TakeOver();
}

absl::StatusOr<uint64_t> LogReader::Take(const v1::LogChunk& chunk, Payload payload,
                                         absl::Time now) {
  if (chunk.has_header() == (shard_ != nullptr)) {
    return absl::InvalidArgumentError("log of a shard: want one header, in the first chunk");
  }
  if (shard_ == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(shard_, shards_->Begin(chunk.header()));
  }
  return shard_->Take(chunk, std::move(payload), now);
}

}  // namespace tessera
