#include "server/checkpoint/shard_saver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/shard/block_store.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {

TEST_CASE("a leader that was given up and still writes does not write into the file", "[shard_saver]") {
  const std::string directory = EmptyFolder();
  const std::string folder = directory + "/" + PartialFolderName(400);
  REQUIRE(mkdir(folder.c_str(), 0777) == 0);
  const std::string path = folder + "/" + ShardFileName(0, 1);
  const int late = open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  REQUIRE(late >= 0);
  Manifest model = ManifestOf(1);
  model.states = 0;
  model.parameters = {{"w", 7, 5, false, 1}};
  model.model_parameters = 1;
  ShardSlices slices;
  slices.slices.push_back({});
  slices.slices[0].row_end = 7;
  slices.slices[0].columns = 5;
  slices.size = 35;
  BlockStore store(slices, 0);
  ShardCopy copy;
  copy.order.mark = {1, 400};
  copy.values.snapshot = store.TakeSnapshot();
  absl::Notification done;
  absl::StatusOr<CheckpointFile> saved;
  {
    ShardSaver saver(directory, model, 0);
    saver.Save(std::move(copy), [&](const ShardCopy&, const absl::StatusOr<CheckpointFile>& file,
                                    absl::Duration) {
      saved = file;
      done.Notify();
    });
    done.WaitForNotification();
  }
  INFO(saved.status());
  REQUIRE(saved.ok());
  const std::string written = TextOf(path);
  CHECK(static_cast<int64_t>(written.size()) == saved->bytes);
  CHECK(pwrite(late, "late", 4, 0) == 4);
  close(late);
  CHECK(TextOf(path) == written);
}

}  // namespace tessera
