#include "server/checkpoint/own_disks_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"
#include "server/checkpoint/checkpoint_choice.h"
#include "server/checkpoint/restore.h"
#include "server/checkpoint/used_folder.h"

namespace tessera {
namespace {

// The times after which whoever waits for another server's list says so, and says it again.
constexpr absl::Duration kTellOfWait = absl::Seconds(2);
constexpr absl::Duration kTellOfWaitAgain = absl::Seconds(30);

// The most bytes of a file of the job. A server's has its rows of the parameters and of the rule's states; a worker's
// has what its optimizer keeps, a replica, what its codec holds back, and what the model is beside its parameters.
int64_t FileBytesMax(const Manifest& model) {
  constexpr int64_t kWorkerArrays = 8;
  constexpr int64_t kBeside = int64_t{1} << 30;
  int64_t entries = 0;
  for (const CheckpointParameter& parameter : model.parameters) {
    entries += parameter.rows * parameter.columns;
  }
  return kBeside +
         entries * static_cast<int64_t>(sizeof(float)) * (1 + model.states + kWorkerArrays);
}

// Splits a path that names one checkpoint into the folder that it is in and its step.
std::optional<uint64_t> TakeStep(std::string* path) {
  while (path->size() > 1 && path->back() == '/') path->pop_back();
  const size_t slash = path->rfind('/');
  uint64_t step = 0;
  if (!ParseStepFolderName(path->substr(slash + 1), &step)) return std::nullopt;
  *path = slash == std::string::npos ? "." : path->substr(0, std::max<size_t>(slash, 1));
  return step;
}

}  // namespace

OwnDisksStore::OwnDisksStore(const v1::Job& job, int rank, std::string job_digest,
                             const Manifest& model)
    : rank_(rank),
      job_digest_(std::move(job_digest)),
      copies_(job.checkpoint().copies()),
      has_standbys_(job.cluster().replicas() > 0) {
  held_options_.directory = job.checkpoint().directory();
  held_options_.restore = job.checkpoint().restore();
  held_options_.keep = job.checkpoint().keep();
  held_options_.file_bytes_max = FileBytesMax(model);
  // Where one checkpoint is named the folder above it is searched, for that step alone: others may have the rest of it.
  restore_step_ = TakeStep(&held_options_.restore);
  // Without addresses nobody is asked until the coordinator has said where the servers are.
  const auto& addresses = job.cluster().servers().addresses();
  addresses_.assign(addresses.begin(), addresses.end());
  disks_ = std::make_shared<OtherDisks>(addresses_, rank_, job_digest_, copies_);
}

absl::Status OwnDisksStore::Prepare() {
  absl::StatusOr<std::unique_ptr<HeldCheckpoints>> held = HeldCheckpoints::Open(held_options_);
  if (!held.ok()) return OfDirectory(held.status());
  held_ = *std::move(held);
  return absl::OkStatus();
}

// At a job's start the order to read comes before all others have: they are where the job says.
void OwnDisksStore::SetServers(std::vector<std::string> addresses) {
  absl::MutexLock lock(&mutex_);
  addresses_.resize(addresses.size());
  const std::set<uint64_t> away = has_standbys_ ? AwayIn(addresses) : std::set<uint64_t>();
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!addresses[i].empty()) addresses_[i] = std::move(addresses[i]);
  }
  // Whoever writes to the old ones goes on doing so; connections open when they are used.
  disks_ = std::make_shared<OtherDisks>(addresses_, rank_, job_digest_, copies_, away);
}

OpenPart OwnDisksStore::Parts() {
  return [this](uint64_t folder_step,
                const std::string& name) -> absl::StatusOr<std::unique_ptr<PartFile>> {
    // The own disk comes first: where it is full nothing is sent.
    std::vector<std::unique_ptr<PartFile>> parts(2);
    TESSERA_ASSIGN_OR_RETURN(parts[0], held_->Parts()(folder_step, name));
    TESSERA_ASSIGN_OR_RETURN(parts[1], disks()->OpenPart(folder_step, name));
    // With one copy there is no other disk.
    if (parts[1] == nullptr) return std::move(parts[0]);
    return WriteToAll(std::move(parts));
  };
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OwnDisksStore::Open(const v1::RestoreOrder& order) {
  const std::shared_ptr<const OtherDisks> others = disks();
  absl::StatusOr<std::string> folder =
      held_->FolderOf(order.from_restore(), order.step(), order.manifest_sum());
  if (absl::IsNotFound(folder.status())) {
    // The disk is another one than before, or was not there when the checkpoint was made.
    TESSERA_ASSIGN_OR_RETURN(const Manifest manifest,
                             others->FetchManifest(order.step(), order.manifest_sum()));
    folder = held_->Adopt(order.from_restore(), manifest);
  }
  if (!folder.ok()) return folder.status();
  return Checkpoint::OpenParts(*folder,
                               BringFrom(others, order.step(), order.manifest_sum(), *folder));
}

// A disk that was lost has again what it should have, so that the other copy is not the only one any more. The job
// goes on where that fails.
void OwnDisksStore::Complete(const Checkpoint& checkpoint) {
  const std::shared_ptr<const OtherDisks> others = disks();
  const Manifest& manifest = checkpoint.manifest();
  // With another number of servers the next checkpoint lies elsewhere.
  if (manifest.shards.size() != others->count()) return;
  const BringFile bring = BringFrom(others, manifest.step, SumOf(manifest), checkpoint.path());
  for (const CheckpointFile& file : manifest.files) {
    FileOwner owner;
    if (!ParseFileName(file.name, &owner)) continue;
    const std::vector<uint64_t> holders = HoldersOf(owner, manifest.shards.size(), copies_);
    const bool is_here = std::count(holders.begin(), holders.end(), rank_) > 0;
    struct stat info;
    if (!is_here || (stat(absl::StrCat(checkpoint.path(), "/", file.name).c_str(), &info) == 0 &&
                     info.st_size == file.bytes)) {
      continue;
    }
    // What has the right size was verified when it was read, or will be when it is.
    const absl::Status brought = bring(file, nullptr);
    if (brought.ok()) continue;
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: a copy is not made again, and the next checkpoint has it step=",
                     manifest.step, " file=", file.name, " why=\"", brought.message(), "\""));
  }
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OwnDisksStore::FindRestored() {
  const std::shared_ptr<const OtherDisks> others = disks();
  // All are asked, one after the other, as only all together know what is whole.
  std::vector<ServerHolding> holdings(1);
  holdings[0].server = static_cast<uint64_t>(rank_);
  TESSERA_ASSIGN_OR_RETURN(holdings[0].list, held_->List());
  for (uint64_t server = 0; server < others->count(); ++server) {
    if (static_cast<int64_t>(server) == rank_) continue;
    LongWait wait(SteadyNow(), kTellOfWait, kTellOfWaitAgain);
    const auto on_wait = [&](const absl::Status& why) {
      if (!wait.IsDue(SteadyNow())) return;
      Log(LogLevel::kInfo,
          absl::StrCat("checkpoint: waiting for what is on the disk of server ", server,
                       ", for=", wait.SoFar(SteadyNow()), " why=\"", why.message(), "\""));
    };
    ServerHolding holding;
    holding.server = server;
    TESSERA_ASSIGN_OR_RETURN(holding.list, others->at(server)->List([] { return true; }, on_wait));
    holdings.push_back(std::move(holding));
  }
  TESSERA_ASSIGN_OR_RETURN(const CheckpointChoice choice,
                           ChooseCheckpoint(holdings, restore_step_, copies_));
  for (const std::string& passed : choice.passed_over) {
    Log(LogLevel::kWarning, absl::StrCat("checkpoint: passed over why=\"", passed, "\""));
  }
  // From here on this server does what all others do when they are told of the step.
  v1::RestoreOrder order;
  order.set_from_restore(true);
  order.set_step(choice.step);
  order.set_manifest_sum(choice.manifest_sum);
  return Open(order);
}

absl::Status OwnDisksStore::Take(const Manifest* restored, bool goes_on, bool is_elected) {
  if (!is_elected) {
    TESSERA_ASSIGN_OR_RETURN(lock_, UseFolder(held_options_.directory));
  }
  return goes_on ? absl::OkStatus() : CheckFolder(held_options_.directory, restored);
}

// The own disk is not called by the port, so that a handshake or a flood costs it nothing.
absl::Status OwnDisksStore::OnOwn(const DiskTask& task) {
  switch (task.kind) {
    case DiskTask::Kind::kBegin:
      return held_->Begin(task.folder_step);
    case DiskTask::Kind::kCommit:
      return held_->Commit(task.manifest, task.folder_step);
    case DiskTask::Kind::kAbandon:
      return held_->Abandon(task.folder_step, task.manifest.step,
                            task.manifest.files.empty() ? 0 : SumOf(task.manifest));
    case DiskTask::Kind::kPrune:
      return held_->Prune(task.manifest.step);
  }
  return absl::OkStatus();
}

absl::Status OwnDisksStore::OnOther(const DiskTask& task, StoreClient* other) {
  switch (task.kind) {
    case DiskTask::Kind::kBegin:
      return other->Begin(task.folder_step);
    case DiskTask::Kind::kCommit:
      return other->Commit(task.folder_step, task.manifest);
    case DiskTask::Kind::kAbandon:
      return other->Abandon(task.folder_step, task.manifest);
    case DiskTask::Kind::kPrune:
      return other->Prune(task.manifest.step);
  }
  return absl::OkStatus();
}

absl::Status OwnDisksStore::Perform(const DiskTask& task) {
  const OtherDisks others(task.servers, rank_, job_digest_, copies_,
                          has_standbys_ ? AwayIn(task.servers) : std::set<uint64_t>());
  // The manifest is on all disks before the first of them has a whole checkpoint.
  if (task.kind == DiskTask::Kind::kCommit) {
    const std::string text = FormatManifest(task.manifest);
    for (uint64_t server = 0; server < others.count(); ++server) {
      if (static_cast<int64_t>(server) == rank_ || !others.IsThere(server)) continue;
      absl::Status written = others.at(server)->WriteManifest(task.folder_step, text);
      if (absl::IsNotFound(written)) {
        // The commit was done there before, unheard: it takes the folder away again.
        TESSERA_RETURN_IF_ERROR(others.at(server)->Begin(task.folder_step));
        written = others.at(server)->WriteManifest(task.folder_step, text);
      }
      TESSERA_RETURN_IF_ERROR(written);
    }
  }
  const auto own = static_cast<uint64_t>(rank_);
  // This server comes last: what is whole here is whole everywhere.
  for (uint64_t i = 1; i <= others.count(); ++i) {
    const uint64_t server = (own + i) % others.count();
    if (!others.IsThere(server)) continue;
    const absl::Status done = server == own ? OnOwn(task) : OnOther(task, others.at(server).get());
    if (done.ok()) continue;
    if (task.is_awaited()) return done;
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: what is not wanted any more stays on server ", server, " why=\"",
                     done.message(), "\"; the next one removes it"));
  }
  return absl::OkStatus();
}

}  // namespace tessera
