// The coordinator's part in standbys.
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/control/coordinator.h"

namespace tessera {

absl::Status Coordinator::AttachHost(const v1::HostHello& hello, absl::Time now) {
  if (membership_.owners() == nullptr) {
    return absl::FailedPreconditionError(
        "the job keeps no standbys (cluster.replicas: 0); start all with the same job file");
  }
  absl::Status attached = membership_.owners()->Attach(hello, now);
  FollowLosses(now);
  Settle(now);
  return attached;
}

void Coordinator::DetachHost(uint32_t host, uint64_t life, absl::Time now) {
  if (membership_.owners() != nullptr) membership_.owners()->Detach(host, life, now);
}

void Coordinator::OnHostMessage(uint32_t host, const v1::HostMessage& message, absl::Time now) {
  if (membership_.owners() == nullptr) return;
  membership_.owners()->OnMessage(host, message, now);
  if (message.leaves()) OnLeaves(host, now);
  membership_.OnProtected();
  Settle(now);
}

// What a lost leader had to write of a checkpoint its successor does not know of.
void Coordinator::FollowLosses(absl::Time now) {
  for (ShardId shard : membership_.FollowLosses(now)) {
    if (!checkpoints_.order()) continue;
    v1::CheckpointPart part;
    part.set_number(checkpoints_.number());
    part.set_error(absl::StrCat("the leader of shard ", shard.value(), " was lost"));
    checkpoints_.OnPart(shard, part, now);
  }
}

bool Coordinator::IsTakingOver() const {
  return membership_.owners() != nullptr && membership_.owners()->IsTakingOver();
}

std::vector<HostOutgoing> Coordinator::TakeHostOutbox() {
  if (membership_.owners() == nullptr) return {};
  return membership_.owners()->TakeOutbox();
}

}  // namespace tessera
