#include "server/checkpoint/state_file.h"

#include <xxhash.h>

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {
namespace {

constexpr size_t kSumBytes = 8;

// The sum that stands in front of the state, lowest byte first.
std::string SumOf(const std::string& bytes) {
  uint64_t sum = XXH3_64bits(bytes.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < kSumBytes; ++i, sum >>= 8) text.push_back(static_cast<char>(sum & 0xff));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateFile>> StateFile::Open(std::string folder, int64_t bytes_max) {
  TESSERA_RETURN_IF_ERROR(MakeFolder(folder));
  absl::StatusOr<std::unique_ptr<FolderLock>> lock = FolderLock::Take(folder, "lock");
  // Two coordinators of one folder would overwrite each other's state.
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(lock.status().message(), ": a coordinator that runs keeps its state there"));
  }
  if (!lock.ok()) return lock.status();
  return absl::WrapUnique(new StateFile(std::move(folder), *std::move(lock), bytes_max));
}

absl::StatusOr<std::optional<v1::CoordinatorState>> StateFile::Read() const {
  const absl::StatusOr<std::string> text = ReadWholeFile(path(), bytes_max_);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  v1::CoordinatorState state;
  // A sum in front tells a file that was cut off, or changed by hand.
  const bool is_whole = text->size() >= kSumBytes &&
                        text->compare(0, kSumBytes, SumOf(text->substr(kSumBytes))) == 0 &&
                        state.ParseFromString(text->substr(kSumBytes));
  if (!is_whole) {
    return absl::DataLossError(
        absl::StrCat("\"", path(), "\" is not what was written; remove it to begin the job anew"));
  }
  return state;
}

absl::Status StateFile::WriteWhole(const v1::CoordinatorState& state) {
  // Protobuf makes nothing at all of more than 2 GiB. The message has no size in it, so that the log says it once.
  if (state.ByteSizeLong() + kSumBytes > static_cast<size_t>(bytes_max_)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("\"", path(), "\": state is too large, want at most ", bytes_max_, " bytes"));
  }
  const std::string bytes = state.SerializeAsString();
  const std::string part = absl::StrCat(path(), ".part");
  const std::string sum = SumOf(bytes);
  // What a process that was killed has left goes. A link of that name goes, too, and not what it leads to.
  TESSERA_RETURN_IF_ERROR(RemoveFile(part));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<DurableFile> file, DurableFile::CreateNew(part));
  TESSERA_RETURN_IF_ERROR(file->Write(sum.data(), static_cast<int64_t>(sum.size())));
  TESSERA_RETURN_IF_ERROR(file->Write(bytes.data(), static_cast<int64_t>(bytes.size())));
  TESSERA_RETURN_IF_ERROR(file->Finish());
  TESSERA_RETURN_IF_ERROR(ReplaceFile(part, path()));
  return SyncFolder(folder_);
}

absl::Status StateFile::Write(const v1::CoordinatorState& state) {
  // Failpoints within are told apart from those of checkpoints by this prefix.
  const FailpointScope scope("state.");
  const absl::Status written = WriteWhole(state);
  absl::Status before;
  {
    absl::MutexLock lock(&mutex_);
    before = std::exchange(broken_, written);
  }
  if (written.ok()) {
    if (!before.ok()) Log(LogLevel::kInfo, "control: state is kept again");
    return absl::OkStatus();
  }
  if (before == written) return absl::OkStatus();
  Log(LogLevel::kError,
      absl::StrCat("control: state cannot be kept why=\"", written.message(),
                   "\"; the job goes on, and will end if this server does before it can"));
  // An old state is worse than none: a successor would go on from it, as if nothing had happened since.
  if (const absl::Status removed = Remove(); !removed.ok()) {
    Log(LogLevel::kError,
        absl::StrCat("control: what was kept cannot be removed why=\"", removed.message(), "\""));
  }
  return absl::OkStatus();
}

absl::Status StateFile::Remove() {
  TESSERA_RETURN_IF_ERROR(RemoveFile(path()));
  return SyncFolder(folder_);
}

std::string StateFile::Describe() const {
  absl::MutexLock lock(&mutex_);
  if (!broken_.ok()) return absl::StrCat("nowhere: ", broken_.message());
  return folder_;
}

}  // namespace tessera
