#include "common/checkpoint/safetensors_writer.h"

#include <utility>

#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Smaller pieces are collected until there are so many bytes.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<DurableFile> file, std::string part,
                                     int64_t data_bytes)
    : file_(std::move(file)),
      part_(std::move(part)),
      missing_bytes_(data_bytes),
      sum_(XXH3_createState()) {
  TESSERA_CHECK(sum_ != nullptr);
  XXH3_64bits_reset(sum_);
}

SafetensorsWriter::~SafetensorsWriter() { XXH3_freeState(sum_); }

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorSpec>& tensors,
    const TensorMetadata& metadata) {
  TESSERA_ASSIGN_OR_RETURN(const std::string header, FormatTensorHeader(tensors, metadata));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<DurableFile> file, DurableFile::Create(path));
  return Begin(std::move(file), "", header, tensors);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::CreatePart(
    const std::string& folder, const std::string& name, const std::vector<TensorSpec>& tensors,
    const TensorMetadata& metadata) {
  TESSERA_ASSIGN_OR_RETURN(const std::string header, FormatTensorHeader(tensors, metadata));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<DurableFile> file,
                           DurableFile::CreateUnique(absl::StrCat(folder, "/", name, ".part")));
  return Begin(std::move(file), name, header, tensors);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Begin(
    std::unique_ptr<DurableFile> file, std::string part, const std::string& header,
    const std::vector<TensorSpec>& tensors) {
  int64_t data_bytes = 0;
  // The header promises so many bytes; Finish holds the writer to it.
  for (const TensorSpec& tensor : tensors) data_bytes += tensor.bytes();
  std::unique_ptr<SafetensorsWriter> writer(
      new SafetensorsWriter(std::move(file), std::move(part), data_bytes));
  TESSERA_RETURN_IF_ERROR(writer->Write(header.data(), static_cast<int64_t>(header.size())));
  return writer;
}

absl::Status SafetensorsWriter::Write(const void* data, int64_t bytes) {
  // The sum covers the header too, so that a damaged shape is found as well as a damaged value.
  XXH3_64bits_update(sum_, data, bytes);
  written_bytes_ += bytes;
  return file_->Write(data, bytes);
}

absl::Status SafetensorsWriter::Append(const void* data, int64_t bytes) {
  TESSERA_CHECK(bytes <= missing_bytes_);
  missing_bytes_ -= bytes;
  // Small pieces are joined, as a checkpoint has many vectors, and each write is a system call.
  const int64_t collected = static_cast<int64_t>(small_.size());
  if (bytes < kPieceBytes && collected + bytes < kPieceBytes) {
    small_.append(static_cast<const char*>(data), bytes);
    return absl::OkStatus();
  }
  if (collected > 0) {
    TESSERA_RETURN_IF_ERROR(Write(small_.data(), collected));
    small_.clear();
  }
  return Write(data, bytes);
}

absl::StatusOr<CheckpointFile> SafetensorsWriter::Finish() {
  TESSERA_CHECK(missing_bytes_ == 0);
  if (!small_.empty()) {
    TESSERA_RETURN_IF_ERROR(Write(small_.data(), static_cast<int64_t>(small_.size())));
    small_.clear();
  }
  // A file is renamed only after it is durable: its name with the sum in it promises whole contents.
  TESSERA_RETURN_IF_ERROR(file_->Finish());
  // Both names are without the folder: the manifest lies in the same one, and the folder is renamed when it is whole.
  const size_t name_at = file_->path().rfind('/') + 1;
  CheckpointFile file;
  file.name = part_.empty() ? file_->path().substr(name_at) : part_;
  file.bytes = written_bytes_;
  file.sum = XXH3_64bits_digest(sum_);
  if (part_.empty()) return file;
  const std::string folder = file_->path().substr(0, name_at);
  TESSERA_RETURN_IF_ERROR(ReplaceFile(file_->path(), absl::StrCat(folder, WrittenName(file))));
  return file;
}

}  // namespace tessera
