#include "server/server_checkpoints.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "server/checkpoint/restore.h"
#include "server/shard/shard_messages.h"

namespace tessera {
ServerCheckpoints::ServerCheckpoints(const v1::Job& job, const JobFacts& facts, int rank)
    : directory_path_(job.checkpoint().directory()),
      restore_path_(job.checkpoint().restore()),
      rank_(rank),
      model_(*facts.model_manifest),
      weights_of_mean_share_(facts.weights_of_mean_share),
      store_(MakeCheckpointStore(job, rank, facts.digest, model_)) {}

// The job has begun from what it begins from.
ServerCheckpoints::ServerCheckpoints(const ServerCheckpoints& own, int rank)
    : directory_path_(own.directory_path_),
      restore_path_(own.restore_path_),
      rank_(rank),
      model_(own.model_),
      weights_of_mean_share_(own.weights_of_mean_share_),
      store_(own.store_) {
  if (!directory_path_.empty()) {
    saver_ = std::make_unique<ShardSaver>(store_->Parts(), model_, rank_);
  }
}

ServerCheckpoints::~ServerCheckpoints() { Release(); }

std::unique_ptr<ServerCheckpoints> ServerCheckpoints::OfShard(int rank) const {
  return std::unique_ptr<ServerCheckpoints>(new ServerCheckpoints(*this, rank));
}

absl::Status ServerCheckpoints::Prepare(bool goes_on) {
  TESSERA_RETURN_IF_ERROR(store_->Prepare());
  // A coordinator that goes on from its own state restores nothing.
  if (!restore_path_.empty() && !goes_on && store_->each_finds()) {
    TESSERA_RETURN_IF_ERROR(FindRestored());
  }
  if (directory_path_.empty()) return absl::OkStatus();
  saver_ = std::make_unique<ShardSaver>(store_->Parts(), model_, rank_);
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::FindRestored() {
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = store_->FindRestored();
  absl::Status status = checkpoint.status();
  if (status.ok()) {
    // Whether it fits is found out before anybody waits for this job.
    status = CheckRestorable((*checkpoint)->manifest(), model_, weights_of_mean_share_);
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("checkpoint.restore: ", status.message()));
  }
  TESSERA_ASSIGN_OR_RETURN(restored_, SavedStateOf(**checkpoint, /*from_restore=*/true));
  const std::vector<std::string> keys = ChangedKeys(restored_->manifest, model_);
  // One process tells it for all.
  if (!keys.empty() && (rank_ == 0 || !store_->each_finds())) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: keys of the job have changed since step ",
                     restored_->manifest.step, ": ", absl::StrJoin(keys, ", ")));
  }
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::Keep(LiveCoordinator* coordinator, bool goes_on, bool is_elected) {
  if (!restore_path_.empty() && !goes_on && restored_ == nullptr) {
    TESSERA_RETURN_IF_ERROR(FindRestored());
  }
  if (directory_path_.empty()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(
      store_->Take(restored_ == nullptr ? nullptr : &restored_->manifest, goes_on, is_elected));
  coordinator_ = coordinator;
  keeper_ = std::make_unique<CheckpointKeeper>(
      store_.get(), [coordinator](const DiskTask& task, const absl::Status& status) {
        // The coordinator hears of the disk as an event, on its own thread's terms.
        (void)coordinator->Post([&](Coordinator& state, absl::Time now) {
          state.OnDisk(task, ToUtf8(status), now);
          return absl::OkStatus();
        });
      });
  coordinator->SetDisk([keeper = keeper_.get()](DiskTask task) { keeper->Do(std::move(task)); });
  return absl::OkStatus();
}

void ServerCheckpoints::Depose() {
  if (keeper_ != nullptr) keeper_->Depose();
  Release();
}

void ServerCheckpoints::Release() {
  if (coordinator_ == nullptr) return;
  // No task comes after this, and the keeper may go.
  coordinator_->SetDisk({});
  coordinator_ = nullptr;
  keeper_.reset();
  store_->Release();
}

void ServerCheckpoints::Save(const v1::CheckpointOrder& order, ShardThread* shard,
                             std::function<void(v1::CheckpointPart)> done) {
  CopyOrder wanted;
  wanted.mark = {order.mark().number(), order.mark().folder_step()};
  wanted.after = Exchange(order.after_exchange());
  const uint64_t number = order.mark().number();
  auto taken = [this, number, done = std::move(done)](absl::StatusOr<ShardCopy> copy) {
    if (!copy.ok()) {
      v1::CheckpointPart none;
      none.set_number(number);
      none.set_error(ToUtf8(copy.status().message()));
      return done(std::move(none));
    }
    saver_->Save(*std::move(copy), [done](const ShardCopy& written,
                                          const absl::StatusOr<CheckpointFile>& file,
                                          absl::Duration time) {
      v1::CheckpointPart part = ToPart(written);
      part.set_seconds(absl::ToDoubleSeconds(time));
      if (file.ok()) {
        part.mutable_file()->set_name(file->name);
        part.mutable_file()->set_bytes(static_cast<uint64_t>(file->bytes));
        part.mutable_file()->set_sum(file->sum);
      } else {
        part.set_error(ToUtf8(file.status().message()));
        Log(LogLevel::kWarning, absl::StrCat("checkpoint: part not written number=", part.number(),
                                             " why=\"", part.error(), "\""));
      }
      done(std::move(part));
    });
  };
  // The event ends with the plan: a copy that was ordered before a restore is no part of the job's history any more.
  shard->PostOfPlan([wanted, taken = std::move(taken)](ServedShard& served) mutable {
    served.Order(wanted, std::move(taken));
  });
}

absl::StatusOr<std::unique_ptr<Shard>> ServerCheckpoints::Read(
    const v1::RestoreOrder& order, const std::function<std::unique_ptr<Shard>()>& make,
    const std::function<bool()>& goes_on) const {
  const absl::Time begin = SteadyNow();
  if (order.from_restore() && restore_path_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint.restore: not set here, and the job goes on from step ",
                     order.step(), "; name the checkpoint that server 0 was given"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, store_->Open(order));
  const std::string& path = checkpoint->path();
  TESSERA_RETURN_IF_ERROR(CheckRestorable(checkpoint->manifest(), model_, weights_of_mean_share_));
  if (checkpoint->manifest().step != order.step()) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint: \"", path, "\" is of step ",
                                                      checkpoint->manifest().step, ", want ",
                                                      order.step()));
  }
  // A checkpoint of this step, but of another run, would pass all checks but this one.
  TESSERA_RETURN_IF_ERROR(CheckSum(checkpoint->manifest(), order.manifest_sum(), path));
  std::unique_ptr<Shard> fresh = make();
  TESSERA_RETURN_IF_ERROR(LoadShard(*checkpoint, goes_on, fresh.get()));
  store_->Complete(*checkpoint);
  Log(LogLevel::kInfo, absl::StrCat("checkpoint: restored step=", order.step(),
                                    " ms=", absl::ToInt64Milliseconds(SteadyNow() - begin)));
  return fresh;
}

}  // namespace tessera
