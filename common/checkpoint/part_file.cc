#include "common/checkpoint/part_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {
namespace {

// A part in a folder of this machine.
class LocalPart final : public PartFile {
 public:
  LocalPart(std::string folder, std::unique_ptr<DurableFile> file)
      : folder_(std::move(folder)), file_(std::move(file)) {}

  absl::Status Write(const void* data, int64_t bytes) override { return file_->Write(data, bytes); }

  // A file is renamed only after it is durable: its name with the sum in it promises whole contents.
  absl::Status Finish(const CheckpointFile& file) override {
    TESSERA_RETURN_IF_ERROR(file_->Finish());
    return ReplaceFile(file_->path(), absl::StrCat(folder_, "/", WrittenName(file)));
  }

 private:
  const std::string folder_;
  const std::unique_ptr<DurableFile> file_;
};

// One file in several places, which get the same bytes one after the other.
class SpreadPart final : public PartFile {
 public:
  explicit SpreadPart(std::vector<std::unique_ptr<PartFile>> parts) : parts_(std::move(parts)) {}

  absl::Status Write(const void* data, int64_t bytes) override {
    for (const auto& part : parts_) TESSERA_RETURN_IF_ERROR(part->Write(data, bytes));
    return absl::OkStatus();
  }

  absl::Status Finish(const CheckpointFile& file) override {
    for (const auto& part : parts_) TESSERA_RETURN_IF_ERROR(part->Finish(file));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<PartFile>> parts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartFile>> CreatePartIn(const std::string& folder,
                                                       const std::string& name) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<DurableFile> file,
                           DurableFile::CreateUnique(absl::StrCat(folder, "/", name, ".part")));
  return std::make_unique<LocalPart>(folder, std::move(file));
}

OpenPart PartsIn(std::string directory) {
  return [directory = std::move(directory)](uint64_t folder_step, const std::string& name) {
    return CreatePartIn(absl::StrCat(directory, "/", PartialFolderName(folder_step)), name);
  };
}

std::unique_ptr<PartFile> WriteToAll(std::vector<std::unique_ptr<PartFile>> parts) {
  return std::make_unique<SpreadPart>(std::move(parts));
}

}  // namespace tessera
