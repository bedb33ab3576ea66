// A worker's saver while the disk takes its time. One test case: failpoints count in the whole process.
#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/common/base/captured_log.h"
#include "tests/common/checkpoint/saved_model.h"
#include "worker/checkpoint/worker_saver.h"

namespace tessera {
namespace {

// Before the first failpoint is passed. Whoever waits for the first file says so after 2 s, long before it goes on.
const int failpoints_set =
    setenv("TESSERA_FAILPOINTS", "file.create@1=sleep:8000;file.create@2=sleep:300", 1);

// What the coordinator is told; it has a last checkpoint, 8, for whoever asks.
class Coordinator {
 public:
  absl::StatusOr<v1::SavedReply> Tell(v1::SavedRequest request) {
    absl::MutexLock lock(&mutex_);
    v1::SavedReply reply;
    if (request.number() > 0) {
      told_.push_back(std::move(request));
    } else if (told_.back().number() < 8) {
      reply.mutable_mark()->set_number(8);
      reply.mutable_mark()->set_folder_step(63);
    }
    return reply;
  }
  std::vector<v1::SavedRequest> told() {
    absl::MutexLock lock(&mutex_);
    return told_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<v1::SavedRequest> told_ ABSL_GUARDED_BY(mutex_);
};

TEST_CASE("while a file is being written the next is refused at once, and the last waits for it",
          "[worker_saver]") {
  REQUIRE(failpoints_set == 0);
  const std::string folder = EmptyFolder();
  for (const uint64_t step : {60, 61, 62, 63}) {
    REQUIRE(mkdir((folder + "/" + PartialFolderName(step)).c_str(), 0777) == 0);
  }
  Coordinator coordinator;
  const auto make_saver = [&] {
    return std::make_unique<WorkerSaver>(WorkerSaver::Options{
        PartsIn(folder), "", Rank(1), 2,
        [&](v1::SavedRequest request) { return coordinator.Tell(std::move(request)); }});
  };
  std::unique_ptr<WorkerSaver> saver = make_saver();
  // Somebody else fails number 5 while the disk hangs here, and number 6 is begun.
  saver->Save(5, 60, {}, {});
  saver->Save(6, 61, {}, {});
  // The hanging write is not waited for.
  while (coordinator.told().empty()) absl::SleepFor(absl::Milliseconds(1));
  std::vector<v1::SavedRequest> told = coordinator.told();
  REQUIRE(told.size() == 1);
  CHECK(told[0].number() == 6);
  CHECK(told[0].error() == "the file of an earlier checkpoint is still being written");
  // Whoever has to wait says what for.
  const std::string log = CapturedLog([&] { saver.reset(); });
  CHECK(log.find("checkpoint: waiting until this worker's file is written") != std::string::npos);
  told = coordinator.told();
  REQUIRE(told.size() == 2);
  CHECK(told[1].number() == 5);
  CHECK(told[1].error().empty());

  saver = make_saver();
  saver->Save(7, 62, {}, {});
  saver->SaveLast({}, {});
  told = coordinator.told();
  REQUIRE(told.size() == 4);
  CHECK(told[2].number() == 7);
  CHECK(told[2].error().empty());
  CHECK(told[3].number() == 8);
  CHECK(told[3].error().empty());
}

}  // namespace
}  // namespace tessera
