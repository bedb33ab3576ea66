// A safetensors file, written as its values come.
#ifndef TESSERA_COMMON_CHECKPOINT_SAFETENSORS_WRITER_H_
#define TESSERA_COMMON_CHECKPOINT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/part_file.h"
#include "common/checkpoint/safetensors.h"

struct XXH3_state_s;

namespace tessera {

// Takes the tensors' bytes in any pieces, in the order of the header, and holds at most a megabyte of
// them. The file is whole only once Finish has said so. One thread.
class SafetensorsWriter {
 public:
  // Makes the file, or empties it, and writes the header. Codes as FormatTensorHeader and DurableFile.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<TensorSpec>& tensors,
      const TensorMetadata& metadata);
  // The file `name` of a checkpoint that is being written in `folder`: written under a name that is nobody
  // else's, and under WrittenName once it is finished.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CreatePart(
      const std::string& folder, const std::string& name, const std::vector<TensorSpec>& tensors,
      const TensorMetadata& metadata);
  // The file `name` of the checkpoint that is being written for `folder_step`, kept wherever `open` keeps it: in a
  // folder, or on servers' own disks.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> CreatePart(
      const OpenPart& open, uint64_t folder_step, const std::string& name,
      const std::vector<TensorSpec>& tensors, const TensorMetadata& metadata);
  ~SafetensorsWriter();

  // The next bytes; no more than the tensors have. Codes as DurableFile's, and after an error the file
  // is of no use.
  absl::Status Append(const void* data, int64_t bytes);
  // Bytes of values that are missing yet.
  int64_t missing_bytes() const { return missing_bytes_; }

  // None is missing: the file is durable. Its name, without the folder (of a part that of the checkpoint's
  // file), its size and its sum.
  absl::StatusOr<CheckpointFile> Finish();

 private:
  SafetensorsWriter(std::unique_ptr<PartFile> file, std::string name, int64_t data_bytes);
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Begin(
      std::unique_ptr<PartFile> file, std::string name, const std::string& header,
      const std::vector<TensorSpec>& tensors);
  absl::Status Write(const void* data, int64_t bytes);

  const std::unique_ptr<PartFile> file_;
  const std::string name_;  // without the folder
  int64_t missing_bytes_;
  int64_t written_bytes_ = 0;
  std::string small_;  // pieces that are collected
  XXH3_state_s* const sum_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_SAFETENSORS_WRITER_H_
