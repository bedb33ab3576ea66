#include "deploy/cli/open_checkpoint.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenNamedCheckpoint(const std::string& path) {
  std::vector<ListedCheckpoint> broken;
  absl::StatusOr<std::unique_ptr<Checkpoint>> newest = NamedCheckpoint(path, &broken);
  for (const ListedCheckpoint& entry : broken) {
    std::fprintf(stderr, "tessera: the checkpoint of step %llu is broken: %s\n",
                 static_cast<unsigned long long>(entry.step),
                 std::string(entry.status.message()).c_str());
  }
  if (absl::IsNotFound(newest.status()) && broken.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "\"", path,
        "\": is no checkpoint, and has none; want a folder step-..., or the one it is in"));
  }
  return newest;
}

}  // namespace tessera
