#include "server/checkpoint/shard_saver.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/checkpoint/safetensors_reader.h"
#include "server/shard/block_store.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {

namespace {

// What a leader of the only shard writes, whose values are all `value`.
CheckpointFile Saved(const std::string& directory, float value) {
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
  std::fill_n(store.BeginEdit(0), 35, value);
  ShardCopy copy;
  copy.order.mark = {1, 400};
  copy.values.snapshot = store.TakeSnapshot();
  absl::Notification done;
  absl::StatusOr<CheckpointFile> saved;
  ShardSaver saver(PartsIn(directory), model, 0);
  saver.Save(std::move(copy),
             [&](const ShardCopy&, const absl::StatusOr<CheckpointFile>& file, absl::Duration) {
               saved = file;
               done.Notify();
             });
  done.WaitForNotification();
  INFO(saved.status());
  REQUIRE(saved.ok());
  return *saved;
}

TEST_CASE("a leader that was given up writes beside its successor, before it or after",
          "[shard_saver]") {
  const std::string directory = EmptyFolder();
  const std::string folder = directory + "/" + PartialFolderName(400);
  REQUIRE(mkdir(folder.c_str(), 0777) == 0);
  const CheckpointFile first = Saved(directory, 1), second = Saved(directory, 2);
  CHECK(WrittenName(first) != WrittenName(second));
  for (const CheckpointFile& file : {first, second}) {
    CHECK(file.name == ShardFileName(0, 1));
    CHECK(*SumOfFile(folder + "/" + WrittenName(file), file.bytes) == file.sum);
  }
}

}  // namespace
}  // namespace tessera
