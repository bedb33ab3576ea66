#include "server/checkpoint/checkpoint_directory.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {
namespace {

constexpr char kProbeName[] = "partial-probe";

// The names in a folder, sorted.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return FileError(errno, path, "read");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::string(name));
  }
  closedir(folder);
  // Sorted names make log lines and removals the same on every file system.
  std::sort(names.begin(), names.end());
  return names;
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

// Refuses a file that a process said it wrote and that is not here in this size: the folder is then not the same
// for all processes.
absl::Status CheckFile(const std::string& path, int64_t bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint: \"", path,
                     "\" is not here, but was written; checkpoint.directory "
                     "must be the same folder for all processes of the job"));
  }
  if (info.st_size != bytes) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint: \"", path, "\" is ",
                                                      info.st_size, " bytes, want the ", bytes,
                                                      " that were written"));
  }
  return absl::OkStatus();
}

// Opens a folder of a checkpoint directory. Its step is the manifest's, by which processes look for the folder: one
// that was renamed, or has changed places with another, is none of the directory's.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenListed(const std::string& path, uint64_t step) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  const uint64_t saved = checkpoint->manifest().step;
  if (saved == step) return checkpoint;
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint: \"", path, "\" is of step ", saved, ", as its ", kManifestName,
                   " says, which decides; name the folder ", StepFolderName(saved),
                   ", or give it as checkpoint.restore by itself"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointDirectory>> CheckpointDirectory::Open(std::string path,
                                                                               int64_t keep,
                                                                               bool goes_on,
                                                                               Extent extent) {
  TESSERA_RETURN_IF_ERROR(MakeFolder(path));
  std::unique_ptr<CheckpointDirectory> directory(
      new CheckpointDirectory(std::move(path), keep, extent));
  // A job that goes on may have a checkpoint half written, which its coordinator commits or abandons itself.
  if (!goes_on) TESSERA_RETURN_IF_ERROR(directory->RemoveLeftovers(""));
  const std::string probe = directory->PathOf(kProbeName);
  // Making and removing a folder shows that checkpoints can be written, before training rather than after an hour of
  // it.
  TESSERA_RETURN_IF_ERROR(MakeFolder(probe));
  TESSERA_RETURN_IF_ERROR(RemoveFolder(probe));
  return directory;
}

absl::Status CheckpointDirectory::RemoveLeftovers(const std::string& except) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path_));
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kPartialPrefix) || name == except) continue;
    TESSERA_RETURN_IF_ERROR(RemoveFolder(PathOf(name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointDirectory::Begin(uint64_t step) {
  const std::string name = PartialFolderName(step);
  TESSERA_RETURN_IF_ERROR(RemoveLeftovers(name));
  TESSERA_RETURN_IF_ERROR(MakeFolder(PathOf(name)));
  return PathOf(name);
}

absl::Status CheckpointDirectory::MoveAway(const std::string& name) {
  const std::string away = PathOf(absl::StrCat(kPartialPrefix, "old-", name));
  // A folder that is removed file by file would look like a broken checkpoint: it is renamed first.
  TESSERA_RETURN_IF_ERROR(RemoveFolder(away));
  TESSERA_RETURN_IF_ERROR(RenameFolder(PathOf(name), away));
  return RemoveFolder(away);
}

absl::StatusOr<std::unique_ptr<Checkpoint>> CheckpointDirectory::OpenThere(
    const std::string& folder) const {
  if (extent_ == Extent::kHeld) return Checkpoint::OpenParts(folder, nullptr);
  return Checkpoint::Open(folder);
}

bool CheckpointDirectory::Has(const Manifest& manifest) const {
  const std::string folder = PathOf(StepFolderName(manifest.step));
  if (!Exists(folder)) return false;
  const absl::StatusOr<std::unique_ptr<Checkpoint>> there = OpenThere(folder);
  // A folder of this step may be of another run's past: only an equal manifest is this checkpoint.
  return there.ok() && SumOf((*there)->manifest()) == SumOf(manifest);
}

absl::Status CheckpointDirectory::NameFiles(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = absl::StrCat(folder, "/", file.name);
    // Files get the names that readers look for only now: until the commit an unfinished one has a name of its own.
    const absl::Status named = ReplaceFile(absl::StrCat(folder, "/", WrittenName(file)), path);
    // A file that is not found may have got its name by an earlier try.
    if (!named.ok() && !absl::IsNotFound(named)) return named;
    if (extent_ == Extent::kHeld && !Exists(path)) continue;
    TESSERA_RETURN_IF_ERROR(CheckFile(path, file.bytes));
    listed.insert(file.name);
  }
  // Files of earlier attempts that the manifest does not list are removed.
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (listed.count(name) > 0) continue;
    const absl::Status removed = RemoveFile(absl::StrCat(folder, "/", name));
    if (removed.ok()) continue;
    // A part that stays is read by nobody, and goes with the checkpoint.
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint: a leftover stays why=\"", removed.message(), "\""));
  }
  return absl::OkStatus();
}

absl::Status CheckpointDirectory::Commit(const Manifest& manifest, uint64_t begun) {
  const std::string folder = PathOf(PartialFolderName(begun));
  const std::string name = StepFolderName(manifest.step);
  // A commit that was done may be asked for again, where whoever asked did not hear of it.
  if (Has(manifest)) return absl::OkStatus();
  if (Exists(PathOf(name))) {
    // A whole checkpoint is never overwritten; a broken one gives way.
    if (OpenThere(PathOf(name)).ok()) {
      return absl::AlreadyExistsError(
          absl::StrCat("checkpoint: \"", PathOf(name), "\" is there already"));
    }
    TESSERA_RETURN_IF_ERROR(MoveAway(name));
  }
  TESSERA_RETURN_IF_ERROR(NameFiles(folder, manifest));
  const std::string text = FormatManifest(manifest);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<DurableFile> file,
                           DurableFile::CreateNew(absl::StrCat(folder, "/", kManifestName)));
  TESSERA_RETURN_IF_ERROR(file->Write(text.data(), static_cast<int64_t>(text.size())));
  TESSERA_RETURN_IF_ERROR(file->Finish());
  // Contents, then names within the folder, then the folder's own name: a crash in between leaves no checkpoint or all.
  TESSERA_RETURN_IF_ERROR(SyncFolder(folder));
  TESSERA_RETURN_IF_ERROR(RenameFolder(folder, PathOf(name)));
  return SyncFolder(path_);
}

void CheckpointDirectory::Prune(uint64_t newest) {
  const absl::Status removed = RemoveOld(newest);
  if (removed.ok()) return;
  Log(LogLevel::kWarning,
      absl::StrCat("checkpoint: old ones stay why=\"", removed.message(), "\""));
}

void CheckpointDirectory::Abandon(uint64_t step, const Manifest& committed) {
  absl::Status removed = RemoveFolder(PathOf(PartialFolderName(step)));
  // Where the commit may have been done unheard, what it made is withdrawn.
  if (removed.ok() && !committed.files.empty() && Has(committed)) {
    removed = MoveAway(StepFolderName(committed.step));
  }
  if (removed.ok()) return;
  Log(LogLevel::kWarning, absl::StrCat("checkpoint: a part stays why=\"", removed.message(), "\""));
}

// Broken checkpoints count: they are somebody's to look at, for as long as they would have stayed. Later ones are
// of a past of the job behind which it was restored: they are broken, or it would go on from them.
absl::Status CheckpointDirectory::RemoveOld(uint64_t newest) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path_));
  std::vector<std::string> steps;
  for (const std::string& name : names) {
    uint64_t step = 0;
    // Names are sorted by step, so that the first ones are the oldest.
    if (ParseStepFolderName(name, &step) && step <= newest) steps.push_back(name);
  }
  for (int64_t i = 0; i + keep_ < static_cast<int64_t>(steps.size()); ++i) {
    TESSERA_RETURN_IF_ERROR(MoveAway(steps[static_cast<size_t>(i)]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::string& path,
                                                              bool verify) {
  std::vector<ListedCheckpoint> listed;
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(path);
  if (absl::IsNotFound(names.status())) return listed;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    ListedCheckpoint entry;
    if (!ParseStepFolderName(name, &entry.step)) continue;
    entry.path = absl::StrCat(path, "/", name);
    const auto checkpoint = OpenListed(entry.path, entry.step);
    entry.status = checkpoint.status();
    if (verify && entry.status.ok()) entry.status = (*checkpoint)->VerifySums();
    listed.push_back(std::move(entry));
  }
  std::sort(listed.begin(), listed.end(),
            [](const ListedCheckpoint& a, const ListedCheckpoint& b) { return a.step > b.step; });
  return listed;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> NewestCheckpoint(
    const std::string& path, std::vector<ListedCheckpoint>* broken) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> listed,
                           ListCheckpoints(path, /*verify=*/false));
  for (ListedCheckpoint& entry : listed) {
    absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = OpenListed(entry.path, entry.step);
    // Reading all bytes takes as long as the restore itself, and is done for one checkpoint after the other.
    entry.status = checkpoint.ok() ? (*checkpoint)->VerifySums() : checkpoint.status();
    if (entry.status.ok()) return checkpoint;
    broken->push_back(std::move(entry));
  }
  return absl::NotFoundError(absl::StrCat("checkpoint: \"", path, "\" has no whole checkpoint"));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> NamedCheckpoint(const std::string& path,
                                                            std::vector<ListedCheckpoint>* broken) {
  struct stat info;
  if (stat(absl::StrCat(path, "/", kManifestName).c_str(), &info) != 0) {
    return NewestCheckpoint(path, broken);
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(path));
  TESSERA_RETURN_IF_ERROR(checkpoint->VerifySums());
  return checkpoint;
}

}  // namespace tessera
