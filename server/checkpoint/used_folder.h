// Whether a job may write its checkpoints into a folder.
#ifndef TESSERA_SERVER_CHECKPOINT_USED_FOLDER_H_
#define TESSERA_SERVER_CHECKPOINT_USED_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/folder_lock.h"

namespace tessera {

// Two jobs would remove what the other is writing. nullptr: the file system has no locks, which is logged.
absl::StatusOr<std::unique_ptr<FolderLock>> UseFolder(const std::string& directory);

}  // namespace tessera

#endif  // TESSERA_SERVER_CHECKPOINT_USED_FOLDER_H_
