#include "tests/sim/sim_folder.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// All are of one size, so that only sums tell them apart.
constexpr int64_t kFileBytes = 100;

}  // namespace

absl::StatusOr<CheckpointFile> SimFolder::Write(uint64_t step, File file) {
  const auto folder = partial_.find(step);
  if (folder == partial_.end()) {
    return absl::NotFoundError(
        absl::StrCat("checkpoint: \"", PartialFolderName(step), "\" cannot be made"));
  }
  file.listed.bytes = kFileBytes;
  file.listed.sum = ++writes_;
  const CheckpointFile listed = file.listed;
  folder->second[WrittenName(listed)] = std::move(file);
  return listed;
}

absl::Status SimFolder::Perform(const DiskTask& task) {
  switch (task.kind) {
    case DiskTask::Kind::kBegin: {
      Files files = std::move(partial_[task.folder_step]);
      partial_.clear();
      partial_[task.folder_step] = std::move(files);
      return absl::OkStatus();
    }
    case DiskTask::Kind::kCommit:
      return Commit(task.manifest, task.folder_step);
    case DiskTask::Kind::kAbandon:
      partial_.erase(task.folder_step);
      if (Has(task.manifest)) whole_.erase(task.manifest.step);
      return absl::OkStatus();
    case DiskTask::Kind::kPrune:
      Prune(task.manifest.step);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

bool SimFolder::Has(const Manifest& manifest) const {
  const auto there = whole_.find(manifest.step);
  return there != whole_.end() &&
         FormatManifest(there->second.manifest) == FormatManifest(manifest);
}

absl::Status SimFolder::Commit(const Manifest& manifest, uint64_t begun) {
  if (Has(manifest)) return absl::OkStatus();
  if (whole_.count(manifest.step) > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("checkpoint: \"", StepFolderName(manifest.step), "\" is there already"));
  }
  const auto folder = partial_.find(begun);
  Whole whole;
  whole.manifest = manifest;
  for (const CheckpointFile& file : manifest.files) {
    const std::string written = WrittenName(file);
    if (folder == partial_.end() || folder->second.count(written) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("checkpoint: \"", file.name, "\" is not here, but was written"));
    }
    whole.files[file.name] = folder->second[written];
  }
  partial_.erase(begun);
  whole_[manifest.step] = std::move(whole);
  if (on_whole_) on_whole_(whole_[manifest.step]);
  return absl::OkStatus();
}

void SimFolder::Prune(uint64_t newest) {
  const auto end = whole_.upper_bound(newest);
  while (std::distance(whole_.begin(), end) > keep_) whole_.erase(whole_.begin());
}

absl::StatusOr<const SimFolder::Whole*> SimFolder::Open(uint64_t step) const {
  const auto found = whole_.find(step);
  if (found == whole_.end()) {
    return absl::NotFoundError(
        absl::StrCat("checkpoint: \"", StepFolderName(step), "\" cannot be read"));
  }
  for (const CheckpointFile& listed : found->second.manifest.files) {
    if (found->second.files.at(listed.name).listed.sum == listed.sum) continue;
    return absl::InvalidArgumentError(absl::StrCat("checkpoint: \"", listed.name, "\" of step ",
                                                   step, " is not the file that was listed"));
  }
  return &found->second;
}

}  // namespace tessera
