#include "server/rpc/data_plane.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_protocol.h"

namespace tessera {

// Both ends must train the same job, or their layouts and numbers would mean different things.
absl::Status DataPlane::CheckJob(absl::string_view where, const v1::Caller& caller) const {
  if (caller.job_digest() == job_digest_) return absl::OkStatus();
  // Only the beginning of what came is quoted, as a caller may send anything.
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": job digest is \"", caller.job_digest().substr(0, kDigestQuoted),
                   "\", want \"", job_digest_, "\"; start both ends from the same job file"));
}

// These checks need no queue: a caller of another job, or of before a restore, costs the shard's thread nothing.
absl::Status DataPlane::CheckCaller(absl::string_view where, const v1::Caller& caller) const {
  TESSERA_RETURN_IF_ERROR(CheckJob(where, caller));
  // A worker treats Unavailable as a reason to try again, which is right until the coordinator is back.
  if (away_.load(std::memory_order_relaxed)) {
    return absl::UnavailableError(
        absl::StrCat(where, ": this server waits for the coordinator, which is away"));
  }
  if (caller.member() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": member is 0, want the number that JoinReply gave; join first"));
  }
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  // A worker of before the restore would push an update of values that are gone.
  if (caller.generation() < generation) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": generation is ", caller.generation(), ", want ", generation,
                     "; the job was restored, drop the update and pull"));
  }
  return absl::OkStatus();
}

void DataPlane::CountPull(int64_t payload_bytes, int64_t wire_bytes, bool outside_exchange) {
  // Evaluations and exports pull, too, but must not blur the traffic per exchange.
  if (outside_exchange) {
    other_payload_bytes_.fetch_add(payload_bytes, std::memory_order_relaxed);
    return;
  }
  pull_payload_bytes_.fetch_add(payload_bytes, std::memory_order_relaxed);
  pull_wire_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
}

void DataPlane::CountPush(int64_t payload_bytes, int64_t wire_bytes) {
  push_payload_bytes_.fetch_add(payload_bytes, std::memory_order_relaxed);
  push_wire_bytes_.fetch_add(wire_bytes, std::memory_order_relaxed);
}

// The counts are of nearly the same moment, which is enough for a report.
DataPlaneTraffic DataPlane::traffic() const {
  DataPlaneTraffic traffic;
  traffic.pull_payload_bytes = pull_payload_bytes_.load(std::memory_order_relaxed);
  traffic.pull_wire_bytes = pull_wire_bytes_.load(std::memory_order_relaxed);
  traffic.push_payload_bytes = push_payload_bytes_.load(std::memory_order_relaxed);
  traffic.push_wire_bytes = push_wire_bytes_.load(std::memory_order_relaxed);
  traffic.other_payload_bytes = other_payload_bytes_.load(std::memory_order_relaxed);
  traffic.copied_payload_bytes = copied_payload_bytes_.load(std::memory_order_relaxed);
  traffic.readers_cut_off = readers_cut_off_.load(std::memory_order_relaxed);
  return traffic;
}

void DataPlane::AddReader(ActiveReader* reader) {
  absl::MutexLock lock(&mutex_);
  readers_.push_back(reader);
}

void DataPlane::RemoveReader(ActiveReader* reader) {
  absl::MutexLock lock(&mutex_);
  readers_.erase(std::remove(readers_.begin(), readers_.end(), reader), readers_.end());
}

void DataPlane::CutOffRevoked() {
  // The lock keeps readers from ending meanwhile, since each takes itself off the list.
  absl::MutexLock lock(&mutex_);
  for (ActiveReader* reader : readers_) reader->CutOffIfRevoked();
}

void DataPlanes::SetGeneration(Generation generation) {
  absl::MutexLock lock(&mutex_);
  generation_ = generation;
  // Planes that are added later get the generation from here.
  for (const auto& [shard, plane] : planes_) plane->SetGeneration(generation);
}

// `life` is drawn anew by each process, which tells two processes at one address apart.
void DataPlanes::SetLife(uint64_t life) {
  absl::MutexLock lock(&mutex_);
  life_ = life;
}

void DataPlanes::SetAway(ShardId shard, bool away) {
  absl::MutexLock lock(&mutex_);
  if (away) {
    away_.insert(shard);
  } else {
    away_.erase(shard);
  }
  const auto found = planes_.find(shard);
  if (found != planes_.end()) found->second->SetAway(away);
}

DataPlane* DataPlanes::Add(ShardThread* shard) {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<DataPlane>& plane = planes_[shard->traits().slices.shard];
  if (plane != nullptr) return plane.get();
  // It learns what the process was told before the shard was here.
  plane = std::make_unique<DataPlane>(shard, job_digest_, generation_);
  plane->SetAway(away_.count(shard->traits().slices.shard) > 0);
  return plane.get();
}

absl::StatusOr<DataPlane*> DataPlanes::Find(absl::string_view where,
                                            const v1::Caller& caller) const {
  // A caller need not name a shard where each server leads its own.
  const ShardId shard = caller.has_shard() ? ShardId(caller.shard()) : own_;
  absl::MutexLock lock(&mutex_);
  // A worker that was told of the process before this one, at the same address, must hear that it has gone.
  if (caller.life() != 0 && life_ != 0 && caller.life() != life_) {
    return absl::UnavailableError(
        absl::StrCat(where, ": another server process is here than the one that is meant"));
  }
  const auto found = planes_.find(shard);
  if (found != planes_.end()) return found->second.get();
  // Another server may be about to lead it, so the worker asks again.
  return absl::UnavailableError(
      absl::StrCat(where, ": shard ", shard.value(), " is not led by this server, or not yet"));
}

absl::Status DataPlanes::ShareMemory(LinkListener* listener) {
  TESSERA_RETURN_IF_ERROR(SharedArena::Enable());
  TESSERA_ASSIGN_OR_RETURN(door_, MemoryDoor::Open(SharedArena::OfProcess(), listener));
  return absl::OkStatus();
}

std::shared_ptr<MemoryLink> DataPlanes::FindLink(const v1::Caller& caller) const {
  if (door_ == nullptr || caller.link() == 0) return nullptr;
  return door_->Find(caller.link(), caller.member());
}

void DataPlanes::TellUnread(absl::string_view where) {
  // Readers may stall by the hundreds, of which a message now and then says enough.
  const std::optional<uint64_t> held_back = unread_told_.Pass(SteadyNow());
  if (!held_back.has_value()) return;
  Log(LogLevel::kWarning,
      absl::StrCat("server: an answer that is not read is cut off what=\"", where,
                   "\" unread_bytes=", unread_answers_.bytes(),
                   *held_back > 0 ? absl::StrCat(" not_logged=", *held_back) : ""));
}

DataPlaneTraffic DataPlanes::traffic(ShardId shard) const {
  absl::MutexLock lock(&mutex_);
  const auto found = planes_.find(shard);
  return found == planes_.end() ? DataPlaneTraffic() : found->second->traffic();
}

DataPlaneTraffic DataPlanes::traffic() const {
  DataPlaneTraffic sum;
  absl::MutexLock lock(&mutex_);
  for (const auto& [shard, plane] : planes_) {
    const DataPlaneTraffic traffic = plane->traffic();
    sum.pull_payload_bytes += traffic.pull_payload_bytes;
    sum.pull_wire_bytes += traffic.pull_wire_bytes;
    sum.push_payload_bytes += traffic.push_payload_bytes;
    sum.push_wire_bytes += traffic.push_wire_bytes;
    sum.other_payload_bytes += traffic.other_payload_bytes;
    sum.copied_payload_bytes += traffic.copied_payload_bytes;
    sum.readers_cut_off += traffic.readers_cut_off;
  }
  return sum;
}

}  // namespace tessera
