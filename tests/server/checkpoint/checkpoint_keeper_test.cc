// What is done with the disk once the coordinator is elsewhere.
#include "server/checkpoint/checkpoint_keeper.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/checkpoint/shared_folder_store.h"

namespace tessera {
namespace {

TEST_CASE("a keeper finishes what it was given, unless another one begins and commits",
          "[checkpoint]") {
  const bool is_deposed = GENERATE(false, true);
  CAPTURE(is_deposed);
  std::string path = std::string(getenv("TEST_TMPDIR")) + "/keeper-XXXXXX";
  REQUIRE(mkdtemp(&path[0]) != nullptr);
  v1::Checkpoint keys;
  keys.set_directory(path);
  keys.set_keep(1);
  SharedFolderStore store(keys);
  REQUIRE(store.Take(nullptr, /*goes_on=*/false, /*is_elected=*/false).ok());
  absl::Notification begun, goes_on;
  std::vector<uint64_t> done;
  auto keeper = std::make_unique<CheckpointKeeper>(
      &store, [&](const DiskTask& task, const absl::Status& status) {
        CHECK(status.ok());
        done.push_back(task.number);
        if (task.number != 1) return;
        begun.Notify();
        goes_on.WaitForNotification();
      });
  for (const uint64_t number : {1, 2, 3}) {
    keeper->Do({DiskTask::Kind::kBegin, number, 10 * number, {}});
  }
  begun.WaitForNotification();
  if (is_deposed) keeper->Depose();
  goes_on.Notify();
  keeper.reset();
  CHECK(done == (is_deposed ? std::vector<uint64_t>{1} : std::vector<uint64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace tessera
