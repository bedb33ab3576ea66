#include "server/control/members/server_losses.h"

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/lost_parameters.h"

namespace tessera {

void ServerLosses::OnLost(ShardId server, absl::string_view why) {
  const bool is_known = stage_.paused() && servers_.IsLost(server);
  // A known loss is said at every tick until the server is back. It is news only where whoever was to speak for it is
  // lost, too.
  if (is_known && !servers_.at(server).handed_over) return;
  servers_.SetGone(server);
  if (is_known) return;
  const std::string told = absl::StrCat("server ", server.value(), " is gone: ", why);
  if (!CanGoBack()) {
    const ParameterCopies copies{facts_.checkpoints, facts_.standbys, facts_.servers};
    return stage_.Fail(
        absl::StrCat(told, "; its parameters are lost; ", LostParametersAdvice(copies)));
  }
  stage_.Pause();
  std::string others;
  if (owners_ != nullptr) {
    const absl::Duration patience = ShardOwners::kPatienceLeases * facts_.lease_timeout;
    others = absl::StrCat(" within ", absl::FormatDuration(patience),
                          ", or another server leads its shard");
  }
  Log(LogLevel::kWarning,
      absl::StrCat("control: paused why=\"", told, "; start it again", others,
                   ", and the job goes on from step ", start_.saved()->manifest.step, "\""));
}

void ServerLosses::OnSilent(ShardId server, absl::Time now) {
  if (owners_ != nullptr) return owners_->OnShardSilent(server, now);
  const absl::Duration silence = now - servers_.at(server).last_heard;
  OnLost(server, absl::StrCat("last heard ",
                              absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1))),
                              " ago, lease ", absl::FormatDuration(facts_.lease_timeout)));
}

void ServerLosses::OnHeard(ShardId server) {
  if (!stage_.paused() || !servers_.IsLost(server)) return;
  servers_.SetBack(server);
  Log(LogLevel::kInfo, absl::StrCat("control: server back rank=", server.value()));
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsLost(ShardId(i))) return;
  }
  stage_.Resume();
}

std::vector<ShardId> ServerLosses::FollowOwners(absl::Time now) {
  std::vector<ShardId> taken_over;
  if (owners_ == nullptr) return taken_over;
  for (const ShardOwners::Loss& loss : owners_->TakeLosses()) {
    if (loss.led_anew) {
      servers_.GiveTime(loss.shard, now);
      continue;
    }
    if (!stage_.started() || stage_.closed()) {
      servers_.Forget(loss.shard);
      continue;
    }
    servers_.HandOver(loss.shard, now);
    if (loss.taken_over) {
      taken_over.push_back(loss.shard);
    } else {
      OnLost(loss.shard, loss.why);
    }
  }
  return taken_over;
}

void ServerLosses::EndPause() {
  if (!stage_.paused()) return;
  std::string lost;
  for (int i = 0; i < servers_.count(); ++i) {
    if (servers_.IsLost(ShardId(i))) {
      absl::StrAppend(&lost, lost.empty() ? "server " : ", server ", i);
    }
  }
  stage_.Fail(absl::StrCat(
      lost, " was gone when the job was to end, with parameters of it; start the job again, ",
      "with checkpoint.restore it goes on from step ", start_.saved()->manifest.step));
}

}  // namespace tessera
