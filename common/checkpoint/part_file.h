// A file of a checkpoint that comes into being, wherever it is kept.
#ifndef TESSERA_COMMON_CHECKPOINT_PART_FILE_H_
#define TESSERA_COMMON_CHECKPOINT_PART_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/manifest.h"

namespace tessera {

// Takes bytes from the begin to the end. After an error it is of no use, and destroying it is all that is left. One
// thread.
class PartFile {
 public:
  virtual ~PartFile() = default;
  virtual absl::Status Write(const void* data, int64_t bytes) = 0;
  // All was written, which is `file`. Returns once it is durable, under WrittenName(file) wherever it is kept.
  virtual absl::Status Finish(const CheckpointFile& file) = 0;
};

// Opens the file `name` of the checkpoint that is being written for `folder_step`.
using OpenPart = std::function<absl::StatusOr<std::unique_ptr<PartFile>>(uint64_t folder_step,
                                                                         const std::string& name)>;

// In `folder`, which is there, under a name that is nobody else's until it is finished. DurableFile's codes.
absl::StatusOr<std::unique_ptr<PartFile>> CreatePartIn(const std::string& folder,
                                                       const std::string& name);
// Opens parts in the folders that a shared `directory` has for steps.
OpenPart PartsIn(std::string directory);
// A file that is kept in all of these places: it fails where one does.
std::unique_ptr<PartFile> WriteToAll(std::vector<std::unique_ptr<PartFile>> parts);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_PART_FILE_H_
