#include "common/checkpoint/safetensors_writer.h"

#include <utility>

#include <xxhash.h>

#include "common/base/check.h"
#include "common/checkpoint/durable_file.h"

namespace tessera {
namespace {

// Smaller pieces are collected until there are so many bytes.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// A file under the name that was asked for, which is no part of a checkpoint.
class PlainFile final : public PartFile {
 public:
  explicit PlainFile(std::unique_ptr<DurableFile> file) : file_(std::move(file)) {}

  absl::Status Write(const void* data, int64_t bytes) override { return file_->Write(data, bytes); }
  absl::Status Finish(const CheckpointFile&) override { return file_->Finish(); }

 private:
  const std::unique_ptr<DurableFile> file_;
};

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<PartFile> file, std::string name,
                                     int64_t data_bytes)
    : file_(std::move(file)),
      name_(std::move(name)),
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
  return Begin(std::make_unique<PlainFile>(std::move(file)), path.substr(path.rfind('/') + 1),
               header, tensors);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::CreatePart(
    const std::string& folder, const std::string& name, const std::vector<TensorSpec>& tensors,
    const TensorMetadata& metadata) {
  TESSERA_ASSIGN_OR_RETURN(const std::string header, FormatTensorHeader(tensors, metadata));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<PartFile> file, CreatePartIn(folder, name));
  return Begin(std::move(file), name, header, tensors);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::CreatePart(
    const OpenPart& open, uint64_t folder_step, const std::string& name,
    const std::vector<TensorSpec>& tensors, const TensorMetadata& metadata) {
  TESSERA_ASSIGN_OR_RETURN(const std::string header, FormatTensorHeader(tensors, metadata));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<PartFile> file, open(folder_step, name));
  return Begin(std::move(file), name, header, tensors);
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Begin(
    std::unique_ptr<PartFile> file, std::string name, const std::string& header,
    const std::vector<TensorSpec>& tensors) {
  int64_t data_bytes = 0;
  // The header promises so many bytes; Finish holds the writer to it.
  for (const TensorSpec& tensor : tensors) data_bytes += tensor.bytes();
  std::unique_ptr<SafetensorsWriter> writer(
      new SafetensorsWriter(std::move(file), std::move(name), data_bytes));
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
  CheckpointFile file;
  file.name = name_;
  file.bytes = written_bytes_;
  file.sum = XXH3_64bits_digest(sum_);
  TESSERA_RETURN_IF_ERROR(file_->Finish(file));
  return file;
}

}  // namespace tessera
