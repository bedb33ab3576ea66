#include "server/checkpoint/held_checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include <xxhash.h>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder_lock.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/store/store_client.h"

namespace tessera {
namespace {

constexpr char kTurnName[] = "held.lock";
constexpr absl::Duration kTurnPause = absl::Milliseconds(5);
// Whoever has a turn only gives names; what takes long is done before.
constexpr absl::Duration kTurnMax = absl::Seconds(30);

// Waits until no other process of this machine gives names in the folder. nullptr: the file system has no locks.
absl::StatusOr<std::unique_ptr<FolderLock>> TakeTurn(const std::string& directory) {
  const absl::Time give_up = SteadyNow() + kTurnMax;
  while (true) {
    absl::StatusOr<std::unique_ptr<FolderLock>> lock = FolderLock::Take(directory, kTurnName);
    if (absl::IsUnimplemented(lock.status())) return std::unique_ptr<FolderLock>();
    if (!absl::IsFailedPrecondition(lock.status()) || SteadyNow() >= give_up) return lock;
    absl::SleepFor(kTurnPause);
  }
}

bool IsThere(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// The steps of the folders in `directory`.
std::vector<uint64_t> StepsIn(const std::string& directory) {
  std::vector<uint64_t> steps;
  // A folder that is not there has none: the disk is a new one.
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    uint64_t step = 0;
    if (ParseStepFolderName(entry->path().filename().string(), &step)) steps.push_back(step);
  }
  return steps;
}

// What the folder of a checkpoint has, each file compared with its sum.
v1::HeldCheckpoint Describe(const Checkpoint& checkpoint) {
  v1::HeldCheckpoint held;
  held.set_step(checkpoint.manifest().step);
  held.set_manifest_sum(SumOf(checkpoint.manifest()));
  for (const CheckpointFile& file : checkpoint.manifest().files) {
    v1::HeldFile& entry = *held.add_files();
    entry.set_name(file.name);
    const std::string path = absl::StrCat(checkpoint.path(), "/", file.name);
    entry.set_is_here(IsThere(path));
    if (!entry.is_here()) continue;
    // Whoever looks for a checkpoint is told of copies that lie, rather than find out when it is too late for another.
    const absl::StatusOr<uint64_t> sum = SumOfFile(path, file.bytes);
    if (!sum.ok()) {
      entry.set_broken(std::string(sum.status().message()));
    } else if (*sum != file.sum) {
      entry.set_broken(
          absl::StrCat("\"", path, "\": its bytes are not the ones that were written"));
    }
  }
  return held;
}

}  // namespace

struct HeldCheckpoints::Writer {
  ~Writer() {
    XXH3_freeState(sum);
    // What was not finished is nobody's.
    if (!is_finished && file != nullptr) (void)RemoveFile(file->path());
  }

  uint64_t folder_step = 0;
  std::string folder;
  std::string name;
  std::unique_ptr<DurableFile> file;
  XXH3_state_t* sum = XXH3_createState();
  uint64_t bytes = 0;
  bool is_finished = false;
};

HeldCheckpoints::HeldCheckpoints(Options options) : options_(std::move(options)) {}

HeldCheckpoints::~HeldCheckpoints() = default;

absl::StatusOr<std::unique_ptr<HeldCheckpoints>> HeldCheckpoints::Open(Options options) {
  auto held = absl::WrapUnique(new HeldCheckpoints(std::move(options)));
  if (!held->options_.restore.empty()) {
    TESSERA_RETURN_IF_ERROR(MakeFolder(held->options_.restore));
  }
  if (held->options_.directory.empty()) return held;
  TESSERA_RETURN_IF_ERROR(MakeFolder(held->options_.directory));
  absl::MutexLock lock(&held->mutex_);
  // The probe that Open makes must not meet that of another process.
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(held->options_.directory));
  // What lies there may be of the other processes of the job on this machine: Begin removes the rest.
  TESSERA_ASSIGN_OR_RETURN(
      held->directory_,
      CheckpointDirectory::Open(held->options_.directory, held->options_.keep, /*goes_on=*/true,
                                CheckpointDirectory::Extent::kHeld));
  return held;
}

absl::Status HeldCheckpoints::CheckWrites() const {
  if (!options_.directory.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "checkpoint.directory: not set here, want a folder on this server's disk");
}

void HeldCheckpoints::DropWriters(uint64_t except) {
  for (auto writer = writers_.begin(); writer != writers_.end();) {
    const bool stays = writer->second->folder_step == except;
    writer = stays ? std::next(writer) : writers_.erase(writer);
  }
}

absl::Status HeldCheckpoints::Begin(uint64_t folder_step) {
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(options_.directory));
  // The folders of others go, and with them the files that somebody may still be writing there.
  DropWriters(folder_step);
  return directory_->Begin(folder_step).status();
}

absl::Status HeldCheckpoints::CommitHeld(const Manifest& manifest, uint64_t folder_step) {
  found_.clear();
  // All files are there: what is still being written is of somebody who was given up.
  writers_.clear();
  TESSERA_RETURN_IF_ERROR(directory_->Commit(manifest, folder_step));
  // Where it was whole already the manifest may lie there once more.
  return RemoveFolder(absl::StrCat(options_.directory, "/", PartialFolderName(folder_step)));
}

absl::Status HeldCheckpoints::Commit(const Manifest& manifest, uint64_t folder_step) {
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(options_.directory));
  return CommitHeld(manifest, folder_step);
}

absl::Status HeldCheckpoints::Commit(uint64_t folder_step, uint64_t step,
                                     uint64_t manifest_file_sum) {
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(options_.directory));
  CheckpointFile written;
  written.name = kManifestName;
  written.sum = manifest_file_sum;
  const std::string& directory = options_.directory;
  const std::string partial = absl::StrCat(directory, "/", PartialFolderName(folder_step));
  const std::string whole = absl::StrCat(directory, "/", StepFolderName(step));
  absl::StatusOr<std::string> text =
      ReadWholeFile(absl::StrCat(partial, "/", WrittenName(written)), kManifestBytesMax);
  if (absl::IsNotFound(text.status())) {
    // Another process of this machine has done it, or this one before.
    text = ReadWholeFile(absl::StrCat(whole, "/", kManifestName), kManifestBytesMax);
  }
  if (!text.ok()) return text.status();
  if (XXH3_64bits(text->data(), text->size()) != manifest_file_sum) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint: the manifest of step ", step,
                     " is not here, but another one; it is to be written again"));
  }
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(kManifestName, *text));
  if (manifest.step != step) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: the manifest is of step ", manifest.step, ", want ", step));
  }
  return CommitHeld(manifest, folder_step);
}

absl::Status HeldCheckpoints::Abandon(uint64_t folder_step, uint64_t step, uint64_t manifest_sum) {
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(options_.directory));
  found_.clear();
  writers_.clear();
  // The checkpoint may have become whole here without whoever asked for it having heard.
  Manifest committed;
  if (manifest_sum != 0) {
    const absl::StatusOr<Found> found = Find(options_.directory, step, manifest_sum);
    if (found.ok()) {
      TESSERA_ASSIGN_OR_RETURN(const auto checkpoint,
                               Checkpoint::OpenParts(found->folder, nullptr));
      committed = checkpoint->manifest();
    }
  }
  directory_->Abandon(folder_step, committed);
  return absl::OkStatus();
}

absl::Status HeldCheckpoints::Prune(uint64_t newest) {
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(options_.directory));
  found_.clear();
  directory_->Prune(newest);
  return absl::OkStatus();
}

absl::Status HeldCheckpoints::Write(const v1::WritePieceRequest& piece) {
  // Failpoints within are told apart from those of this server's own files by this prefix.
  const FailpointScope scope("copy.");
  TESSERA_RETURN_IF_ERROR(CheckWrites());
  FileOwner owner;
  // A name is one of a checkpoint's, so that it leads nowhere but into the folder.
  if (piece.name() != kManifestName && !ParseFileName(piece.name(), &owner)) {
    return absl::InvalidArgumentError("checkpoint: name is none of a checkpoint's files");
  }
  // Sizes are bounded before anything is written: what a peer says may be anything.
  const uint64_t size = piece.data().size();
  const auto most = static_cast<uint64_t>(piece.name() == kManifestName ? kManifestBytesMax
                                                                        : options_.file_bytes_max);
  if (size > static_cast<uint64_t>(kStorePieceBytesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: the piece has ", size,
                                                   " bytes, want at most ", kStorePieceBytesMax));
  }
  if (piece.offset() > most || size > most - piece.offset()) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: the piece ends at byte ",
                                                   piece.offset(), " + ", size, ", want at most ",
                                                   most, ", as no file of the job is longer"));
  }
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<Writer>& writer = writers_[piece.writer()];
  // After an error it is of no use: whoever writes begins anew, under another number.
  auto drop = absl::MakeCleanup([this, number = piece.writer()]()
                                    ABSL_NO_THREAD_SAFETY_ANALYSIS { writers_.erase(number); });
  if (writer == nullptr) {
    if (piece.offset() != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "checkpoint: ", piece.name(), " goes on at byte ", piece.offset(),
          ", and its begin is not here; the checkpoint was given up, or this server has been "
          "started again"));
    }
    if (writers_.size() > kHeldWritersMax) {
      return absl::UnavailableError(absl::StrCat(
          "checkpoint: ", kHeldWritersMax, " files are being written here, want this one later"));
    }
    writer = std::make_unique<Writer>();
    TESSERA_CHECK(writer->sum != nullptr);
    XXH3_64bits_reset(writer->sum);
    writer->folder_step = piece.folder_step();
    writer->folder = absl::StrCat(options_.directory, "/", PartialFolderName(piece.folder_step()));
    writer->name = piece.name();
    TESSERA_ASSIGN_OR_RETURN(writer->file, DurableFile::CreateUnique(absl::StrCat(
                                               writer->folder, "/", piece.name(), ".part")));
  }
  if (writer->name != piece.name() || writer->folder_step != piece.folder_step()) {
    return absl::InvalidArgumentError("checkpoint: the piece is of another file");
  }
  // Whoever did not hear of a piece sends it again.
  const bool was_here = piece.offset() + size == writer->bytes && (size > 0 || writer->is_finished);
  if (piece.offset() != writer->bytes && !was_here) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: the piece begins at byte ",
                                                   piece.offset(), ", want ", writer->bytes));
  }
  if (!was_here) {
    TESSERA_RETURN_IF_ERROR(writer->file->Write(piece.data().data(), static_cast<int64_t>(size)));
    XXH3_64bits_update(writer->sum, piece.data().data(), size);
    writer->bytes += size;
  }
  if (piece.is_last() && !writer->is_finished) {
    CheckpointFile file;
    file.name = piece.name();
    file.sum = XXH3_64bits_digest(writer->sum);
    if (file.sum != piece.sum()) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint: ", piece.name(), " did not arrive as it was sent: its sum is ",
                       absl::Hex(file.sum, absl::kZeroPad16), ", want ",
                       absl::Hex(piece.sum(), absl::kZeroPad16)));
    }
    TESSERA_RETURN_IF_ERROR(writer->file->Finish());
    TESSERA_RETURN_IF_ERROR(
        ReplaceFile(writer->file->path(), absl::StrCat(writer->folder, "/", WrittenName(file))));
    writer->is_finished = true;
  }
  std::move(drop).Cancel();
  return absl::OkStatus();
}

absl::StatusOr<v1::ListCheckpointsReply> HeldCheckpoints::List() const {
  std::vector<v1::HeldCheckpoint> all;
  std::set<std::string> directories = {options_.directory, options_.restore};
  directories.erase("");
  // Without the lock: nothing is written yet where this is asked for, and reading takes long.
  for (const std::string& directory : directories) {
    for (const uint64_t step : StepsIn(directory)) {
      const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
          Checkpoint::OpenParts(absl::StrCat(directory, "/", StepFolderName(step)), nullptr);
      // A folder that was renamed is none of this step, as one without a manifest is none at all.
      if (!checkpoint.ok() || (*checkpoint)->manifest().step != step) continue;
      all.push_back(Describe(**checkpoint));
    }
  }
  std::sort(all.begin(), all.end(), [](const v1::HeldCheckpoint& a, const v1::HeldCheckpoint& b) {
    return a.step() > b.step();
  });
  v1::ListCheckpointsReply reply;
  for (v1::HeldCheckpoint& held : all) *reply.add_checkpoints() = std::move(held);
  return reply;
}

absl::StatusOr<HeldCheckpoints::Found> HeldCheckpoints::Find(const std::string& directory,
                                                             uint64_t step,
                                                             uint64_t manifest_sum) const {
  Found found;
  found.folder = absl::StrCat(directory, "/", StepFolderName(step));
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      directory.empty() ? absl::NotFoundError("") : Checkpoint::OpenParts(found.folder, nullptr);
  if (!checkpoint.ok() || SumOf((*checkpoint)->manifest()) != manifest_sum) {
    return absl::NotFoundError(absl::StrCat("checkpoint of step ", step, " is not here"));
  }
  for (const CheckpointFile& file : (*checkpoint)->manifest().files) found.files.insert(file.name);
  return found;
}

absl::StatusOr<v1::ReadPieceReply> HeldCheckpoints::Read(const v1::ReadPieceRequest& request) {
  // The folder is found once, and its file opened anew for each piece, so that nothing is left open behind a reader
  // that does not come again.
  const auto key = std::make_pair(request.step(), request.manifest_sum());
  Found found;
  {
    absl::MutexLock lock(&mutex_);
    auto known = found_.find(key);
    if (known == found_.end()) {
      absl::StatusOr<Found> there = Find(options_.directory, key.first, key.second);
      if (!there.ok()) there = Find(options_.restore, key.first, key.second);
      if (!there.ok()) return there.status();
      known = found_.emplace(key, *std::move(there)).first;
    }
    found = known->second;
  }
  // A name that the manifest has leads nowhere but into the folder.
  const std::string& name = request.name();
  if (name != kManifestName && found.files.count(name) == 0) {
    return absl::InvalidArgumentError("checkpoint: name is none of the checkpoint's files");
  }
  const std::string path = absl::StrCat(found.folder, "/", name);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return FileError(errno, path, "read");
  const auto close_it = absl::MakeCleanup([fd] { close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat("\"", path, "\" is no plain file"));
  }
  v1::ReadPieceReply reply;
  const auto bytes = static_cast<uint64_t>(info.st_size);
  reply.set_file_bytes(bytes);
  if (request.offset() >= bytes) return reply;
  std::string& data = *reply.mutable_data();
  data.resize(std::min<uint64_t>(kStorePieceBytesMax, bytes - request.offset()));
  size_t filled = 0;
  while (filled < data.size()) {
    const ssize_t got = pread(fd, data.data() + filled, data.size() - filled,
                              static_cast<off_t>(request.offset() + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, path, "read");
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  data.resize(filled);
  return reply;
}

absl::StatusOr<std::string> HeldCheckpoints::FolderOf(bool from_restore, uint64_t step,
                                                      uint64_t manifest_sum) {
  TESSERA_ASSIGN_OR_RETURN(const Found found, Find(DirectoryOf(from_restore), step, manifest_sum));
  return found.folder;
}

absl::StatusOr<std::string> HeldCheckpoints::Adopt(bool from_restore, const Manifest& manifest) {
  const std::string& directory = DirectoryOf(from_restore);
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(const auto turn, TakeTurn(directory));
  const absl::StatusOr<Found> there = Find(directory, manifest.step, SumOf(manifest));
  if (there.ok()) return there->folder;
  found_.clear();
  const std::string fresh =
      absl::StrCat(directory, "/", kPartialPrefix, "adopted-", StepFolderName(manifest.step));
  const std::string folder = absl::StrCat(directory, "/", StepFolderName(manifest.step));
  // The folder has its name only with the manifest in it, as one that was committed.
  TESSERA_RETURN_IF_ERROR(RemoveFolder(fresh));
  TESSERA_RETURN_IF_ERROR(MakeFolder(fresh));
  const std::string text = FormatManifest(manifest);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file,
                           DurableFile::CreateNew(absl::StrCat(fresh, "/", kManifestName)));
  TESSERA_RETURN_IF_ERROR(file->Write(text.data(), static_cast<int64_t>(text.size())));
  TESSERA_RETURN_IF_ERROR(file->Finish());
  TESSERA_RETURN_IF_ERROR(SyncFolder(fresh));
  // Another one of this step is of a past that the job does not go on from.
  if (IsThere(folder)) {
    const std::string away =
        absl::StrCat(directory, "/", kPartialPrefix, "old-", StepFolderName(manifest.step));
    TESSERA_RETURN_IF_ERROR(RemoveFolder(away));
    TESSERA_RETURN_IF_ERROR(RenameFolder(folder, away));
    TESSERA_RETURN_IF_ERROR(RemoveFolder(away));
  }
  TESSERA_RETURN_IF_ERROR(RenameFolder(fresh, folder));
  TESSERA_RETURN_IF_ERROR(SyncFolder(directory));
  return folder;
}

}  // namespace tessera
