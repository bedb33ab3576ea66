// Shards that are made while their thread speaks, with threads.
#include "server/shard_loader.h"

#include <memory>
#include <utility>

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/shard/forms/form_table.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

Shard::Options OptionsOf() {
  Shard::Options options;
  options.shape = ZeroMatrix(4, 1);
  options.policy = MakeNone(1.0f);
  options.rule = MakeAdd();
  return options;
}

absl::StatusOr<std::unique_ptr<Shard>> Made() { return std::make_unique<Shard>(OptionsOf()); }

const absl::Status& Why() {
  static const auto* const why =
      new absl::Status(absl::FailedPreconditionError("the job was restored"));
  return *why;
}

// Does the shard's thread speak, and what of?
uint64_t PushesOf(ShardThread* shard) {
  absl::Notification said;
  uint64_t pushes = 0;
  shard->Inspect(/*with_hash=*/true, [&](const ShardThread::View& view) {
    pushes = view.counters.pushes;
    said.Notify();
  });
  said.WaitForNotification();
  return pushes;
}

absl::StatusCode Push(ShardThread* shard) {
  absl::Notification said;
  absl::StatusCode code = absl::StatusCode::kOk;
  ReceivedPush push;
  push.member = MemberId(1);
  push.exchange = Exchange(1);
  push.layout_hash = shard->traits().layout_hash;
  push.payload = PayloadOf(std::vector<float>(4, 1));
  Accept(*shard, std::move(push), [&](const absl::StatusOr<PushAccepted>& accepted) {
    code = accepted.status().code();
    said.Notify();
  });
  said.WaitForNotification();
  return code;
}

TEST_CASE("a shard's thread speaks while its next shard is read", "[shard_loader]") {
  ShardThread shard(*Made());
  SetPlan(shard, PlanOfFirst(1));
  REQUIRE(Push(&shard) == absl::StatusCode::kOk);
  REQUIRE(PushesOf(&shard) == 1);
  ShardLoader loader(&shard);
  absl::Notification begun, read, done;
  loader.Load(
      1, Why(),
      [&](const std::function<bool()>& goes_on) {
        begun.Notify();
        read.WaitForNotification();
        CHECK(goes_on());
        return Made();
      },
      [&](const absl::Status& status) {
        CHECK(status.ok());
        done.Notify();
      });
  // At once, not when it is read.
  CHECK(Push(&shard) == absl::StatusCode::kFailedPrecondition);
  begun.WaitForNotification();
  CHECK(PushesOf(&shard) == 0);
  CHECK(Push(&shard) == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(done.HasBeenNotified());
  SetPlan(shard, PlanOfFirst(1));
  read.Notify();
  done.WaitForNotification();
  CHECK(Push(&shard) == absl::StatusCode::kOk);
  CHECK(PushesOf(&shard) == 1);
}

TEST_CASE("another order gives up what is being read for the one before", "[shard_loader]") {
  ShardThread shard(TraitsOf(OptionsOf()));
  ShardLoader loader(&shard);
  absl::Notification begun, done;
  int told = 0;
  const auto never = [&](const absl::Status&) { ++told; };
  loader.Load(
      0, absl::OkStatus(),
      [&](const std::function<bool()>& goes_on) {
        begun.Notify();
        while (goes_on()) {
        }
        return Made();
      },
      never);
  begun.WaitForNotification();
  // The second of them is not even begun, or gives up at once.
  loader.Load(
      1, Why(),
      [&](const std::function<bool()>& goes_on) {
        while (goes_on()) {
        }
        return absl::CancelledError("it is not wanted");
      },
      never);
  loader.Load(
      2, Why(), [&](const std::function<bool()>& goes_on) { return Made(); },
      [&](const absl::Status& status) {
        CHECK(status.ok());
        done.Notify();
      });
  done.WaitForNotification();
  SetPlan(shard, PlanOfFirst(1));
  CHECK(Push(&shard) == absl::StatusCode::kOk);
  CHECK(told == 0);
}

TEST_CASE("what cannot be read is said, and the thread goes on", "[shard_loader]") {
  ShardThread shard(*Made());
  ShardLoader loader(&shard);
  absl::Notification done;
  loader.Load(
      1, Why(), [](const std::function<bool()>&) { return absl::DataLossError("a wrong sum"); },
      [&](const absl::Status& status) {
        CHECK(status.code() == absl::StatusCode::kDataLoss);
        done.Notify();
      });
  done.WaitForNotification();
  CHECK(PushesOf(&shard) == 0);
}

TEST_CASE("an end in the middle of reading waits for no disk and tells nobody", "[shard_loader]") {
  ShardThread shard(*Made());
  int told = 0;
  {
    ShardLoader loader(&shard);
    absl::Notification begun;
    loader.Load(
        1, Why(),
        [&](const std::function<bool()>& goes_on) {
          begun.Notify();
          while (goes_on()) {
          }
          return Made();
        },
        [&](const absl::Status&) { ++told; });
    begun.WaitForNotification();
  }
  CHECK(PushesOf(&shard) == 0);
  CHECK(told == 0);
}

}  // namespace
}  // namespace tessera
