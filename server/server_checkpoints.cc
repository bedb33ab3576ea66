#include "server/server_checkpoints.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "common/checkpoint/durable_file.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/restore.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

// The lock lies beside the checkpoints. It is not called "lock", as cluster.coordinator.directory may be the same
// folder.
constexpr char kLockName[] = "checkpoints.lock";

}  // namespace

ServerCheckpoints::ServerCheckpoints(const v1::Job& job, const JobFacts& facts, int rank)
    : directory_path_(job.checkpoint().directory()),
      restore_path_(job.checkpoint().restore()),
      keep_(job.checkpoint().keep()),
      rank_(rank),
      model_(*facts.model_manifest),
      weights_of_mean_share_(facts.weights_of_mean_share) {}

ServerCheckpoints::~ServerCheckpoints() { Release(); }

absl::Status ServerCheckpoints::Prepare(bool goes_on) {
  // A coordinator that goes on from its own state restores nothing.
  if (!restore_path_.empty() && !goes_on) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = OpenForRestore(restore_path_);
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
    if (!keys.empty() && rank_ == 0) {
      Log(LogLevel::kWarning,
          absl::StrCat("checkpoint: keys of the job have changed since step ",
                       restored_->manifest.step, ": ", absl::StrJoin(keys, ", ")));
    }
  }
  if (directory_path_.empty()) return absl::OkStatus();
  saver_ = std::make_unique<ShardSaver>(directory_path_, model_, rank_);
  return absl::OkStatus();
}

// Two jobs would remove what the other is writing.
absl::Status ServerCheckpoints::TakeDirectory() {
  const absl::Status made = MakeFolder(directory_path_);
  if (!made.ok()) return OfDirectory(made);
  absl::StatusOr<std::unique_ptr<FolderLock>> lock = FolderLock::Take(directory_path_, kLockName);
  if (lock.ok()) {
    lock_ = *std::move(lock);
    return absl::OkStatus();
  }
  if (absl::IsUnimplemented(lock.status())) {
    Log(LogLevel::kInfo,
        absl::StrCat("checkpoint: another job in the same folder would not be noticed why=\"",
                     lock.status().message(), "\""));
    return absl::OkStatus();
  }
  if (!absl::IsFailedPrecondition(lock.status())) return OfDirectory(lock.status());
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint.directory: ", lock.status().message(),
      ", which is the coordinator of a job; name another folder, or wait until that has ended"));
}

absl::Status ServerCheckpoints::Keep(LiveCoordinator* coordinator, bool goes_on, bool is_elected) {
  if (directory_path_.empty()) return absl::OkStatus();
  // Elected coordinators share the folder: the election, not the lock, keeps them apart.
  if (!is_elected) TESSERA_RETURN_IF_ERROR(TakeDirectory());
  if (!goes_on) {
    TESSERA_RETURN_IF_ERROR(
        CheckFolder(directory_path_, restored_ == nullptr ? nullptr : &restored_->manifest));
  }
  absl::StatusOr<std::unique_ptr<CheckpointDirectory>> opened =
      CheckpointDirectory::Open(directory_path_, keep_, goes_on);
  if (!opened.ok()) return OfDirectory(opened.status());
  std::unique_ptr<CheckpointDirectory> directory = *std::move(opened);
  coordinator_ = coordinator;
  keeper_ = std::make_unique<CheckpointKeeper>(
      std::move(directory), [coordinator](const DiskTask& task, const absl::Status& status) {
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
  const std::string path =
      CheckpointPath(order.from_restore() ? restore_path_ : directory_path_, order.step());
  // The manifest is read again here: the folder may be another one than the coordinator sees.
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
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
  Log(LogLevel::kInfo, absl::StrCat("checkpoint: restored step=", order.step(),
                                    " ms=", absl::ToInt64Milliseconds(SteadyNow() - begin)));
  return fresh;
}

}  // namespace tessera
