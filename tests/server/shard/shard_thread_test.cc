// The shard behind its thread: calls from many threads, answers through callbacks.
#include "common/codec/bf16.h"
#include "server/shard/shard_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "server/shard/forms/form_table.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/server/shard/thread_calls.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 4;

Shard::Options OptionsOf(std::unique_ptr<ConsistencyPolicy> policy) {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, 1);
  options.policy = std::move(policy);
  options.rule = MakeAdd();
  return options;
}

std::unique_ptr<Shard> ShardOf(std::unique_ptr<ConsistencyPolicy> policy) {
  return std::make_unique<Shard>(OptionsOf(std::move(policy)));
}

std::unique_ptr<ShardThread> Start(std::unique_ptr<ConsistencyPolicy> policy) {
  return std::make_unique<ShardThread>(ShardOf(std::move(policy)));
}

// One answer, waited for.
template <typename T>
class Answer {
 public:
  std::function<void(T)> Callback() {
    return [this](T value) {
      value_ = std::make_unique<T>(std::move(value));
      ready_.Notify();
    };
  }
  T& Wait() {
    ready_.WaitForNotification();
    return *value_;
  }
  bool ready() const { return ready_.HasBeenNotified(); }

 private:
  std::unique_ptr<T> value_;
  absl::Notification ready_;
};

using PushAnswer = Answer<absl::StatusOr<PushAccepted>>;
using ReadAnswer = Answer<absl::StatusOr<ReadResult>>;

ReceivedPush PushOf(const ShardThread& shard, uint64_t member, uint64_t exchange, float value) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.layout_hash = shard.traits().layout_hash;
  push.payload = PayloadOf(std::vector<float>(kRows, value));
  return push;
}

// Returns once it counts.
void Apply(ShardThread& shard, const Plan& plan) {
  Answer<std::vector<Shard::Removed>> applied;
  SetPlan(shard, plan, applied.Callback());
  applied.Wait();
}

ShardThread::View Inspect(ShardThread& shard) {
  Answer<ShardThread::View> view;
  shard.Inspect(/*with_hash=*/true, view.Callback());
  return view.Wait();
}

TEST_CASE("workers on threads of their own train through a barrier", "[shard_thread]") {
  const int workers = 4;
  const int exchanges = 200;
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(workers));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int worker = 1; worker <= workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (int exchange = 1; exchange <= exchanges; ++exchange) {
        PushAnswer pushed;
        ReadAnswer read;
        // The read is asked for first: it must wait for the push that comes after it.
        Read(*shard, MemberId(worker), Exchange(exchange), IdleNotice(), read.Callback());
        Accept(*shard, PushOf(*shard, worker, exchange, static_cast<float>(4 * worker)),
               pushed.Callback());
        if (!pushed.Wait().ok() || !read.Wait().ok()) {
          ++wrong;
          return;
        }
        const std::vector<float> values = ValuesOf(*read.Wait()->snapshot);
        if (values != std::vector<float>(kRows, 10.0f * exchange)) ++wrong;
        if (read.Wait()->version != Version(exchange)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(Inspect(*shard).counters.version == Version(exchanges));
}

TEST_CASE("asynchronous pushes from many threads are all counted once", "[shard_thread]") {
  const int workers = 4;
  const int exchanges = 300;
  const std::unique_ptr<ShardThread> shard = Start(MakeNone(1.0f));
  Apply(*shard, PlanOfFirst(workers));
  std::vector<std::thread> threads;
  for (int worker = 1; worker <= workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (int exchange = 1; exchange <= exchanges; ++exchange) {
        for (int attempt = 0; attempt < 2; ++attempt) {
          PushAnswer pushed;
          Accept(*shard, PushOf(*shard, worker, exchange, 1), pushed.Callback());
          pushed.Wait();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ReadAnswer now;
  ReadOutside(*shard, MemberId(1), Exchange(0), IdleNotice(), now.Callback());
  // The last push may be staged still: a worker's own read waits for it.
  for (int worker = 1; worker <= workers; ++worker) {
    ReadAnswer read;
    Read(*shard, MemberId(worker), Exchange(exchanges), IdleNotice(), read.Callback());
    REQUIRE(read.Wait().ok());
  }
  const ShardThread::View view = Inspect(*shard);
  CHECK(view.counters.version == Version(workers * exchanges));
  CHECK(view.counters.duplicates == workers * exchanges);
  ReadAnswer last;
  ReadOutside(*shard, MemberId(1), Exchange(0), IdleNotice(), last.Callback());
  CHECK(ValuesOf(*last.Wait()->snapshot) == std::vector<float>(kRows, workers * exchanges));
}

TEST_CASE("a parked read wakes by the missing push, or by the missing member's removal",
          "[shard_thread]") {
  for (const bool by_removal : {false, true}) {
    const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
    Apply(*shard, PlanOfFirst(2));
    PushAnswer first, second;
    ReadAnswer read;
    Accept(*shard, PushOf(*shard, 1, 1, 2), first.Callback());
    Read(*shard, MemberId(1), Exchange(1), IdleNotice(), read.Callback());
    const ShardThread::View view = Inspect(*shard);
    CHECK(view.parked_reads == 1);
    CHECK(view.waits_for == std::vector<MemberId>{MemberId(2)});
    CHECK_FALSE(read.ready());
    if (by_removal) {
      Apply(*shard, PlanOf(2, {{1, 1}}));
    } else {
      Accept(*shard, PushOf(*shard, 2, 1, 4), second.Callback());
    }
    REQUIRE(read.Wait().ok());
    CHECK(ValuesOf(*read.Wait()->snapshot)[0] == (by_removal ? 2 : 3));
  }
}

TEST_CASE("a parked read of a member that is removed fails", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(2));
  ReadAnswer read;
  Read(*shard, MemberId(2), Exchange(1), IdleNotice(), read.Callback());
  Apply(*shard, PlanOf(2, {{1, 1}}));
  CHECK(read.Wait().status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a cancelled read is answered once and forgotten", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(1));
  ReadAnswer read;
  const uint64_t number = Read(*shard, MemberId(1), Exchange(1), IdleNotice(), read.Callback());
  shard->CancelRead(number);
  CHECK(read.Wait().status().code() == absl::StatusCode::kCancelled);
  CHECK(Inspect(*shard).parked_reads == 0);
  shard->CancelRead(number);
  shard->CancelRead(number + 1000);
  PushAnswer pushed;
  Accept(*shard, PushOf(*shard, 1, 1, 1), pushed.Callback());
  CHECK(pushed.Wait().ok());
}

TEST_CASE("a promised exchange is held until it is withdrawn", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(1));
  Answer<Exchange> promised;
  shard->PostOfPlan(
      [told = promised.Callback()](ServedShard& served) { told(served.Propose(1, Exchange(2))); });
  CHECK(promised.Wait() == Exchange(2));
  PushAnswer one, two;
  ReadAnswer before, held;
  Accept(*shard, PushOf(*shard, 1, 1, 1), one.Callback());
  Read(*shard, MemberId(1), Exchange(1), IdleNotice(), before.Callback());
  REQUIRE(before.Wait().ok());
  Accept(*shard, PushOf(*shard, 1, 2, 1), two.Callback());
  Read(*shard, MemberId(1), Exchange(2), IdleNotice(), held.Callback());
  REQUIRE(two.Wait().ok());
  CHECK(Inspect(*shard).parked_reads == 1);
  CHECK_FALSE(held.ready());
  shard->PostOfPlan([](ServedShard& served) { served.Withdraw(1); });
  CHECK(held.Wait().ok());
}

TEST_CASE("a reservation waits for room and is told when its member is removed", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(3));
  const int64_t bytes = int64_t{16} << 20;
  Answer<absl::Status> granted, waiting, removed;
  Reserve(*shard, MemberId(2), bytes, granted.Callback());
  REQUIRE(granted.Wait().ok());
  Reserve(*shard, MemberId(3), bytes, waiting.Callback());
  Inspect(*shard);
  CHECK_FALSE(waiting.ready());
  shard->Release(MemberId(2), bytes);
  CHECK(waiting.Wait().ok());
  Reserve(*shard, MemberId(2), bytes, removed.Callback());
  Inspect(*shard);
  CHECK_FALSE(removed.ready());
  Apply(*shard, PlanOf(2, {{1, 1}, {3, 1}}));
  CHECK(removed.Wait().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("the end of the shard answers everyone", "[shard_thread]") {
  std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(3));
  ReadAnswer read;
  Answer<absl::Status> full, reserve;
  std::atomic<int> answered{0};
  Read(*shard, MemberId(1), Exchange(1), IdleNotice(), read.Callback());
  Reserve(*shard, MemberId(2), int64_t{16} << 20, full.Callback());
  Reserve(*shard, MemberId(3), int64_t{16} << 20, reserve.Callback());
  for (int i = 0; i < 100; ++i) {
    Accept(*shard, PushOf(*shard, 9, 1, 1), [&](absl::StatusOr<PushAccepted>) { ++answered; });
  }
  shard.reset();
  CHECK(read.ready());
  CHECK(read.Wait().status().code() == absl::StatusCode::kCancelled);
  CHECK(full.Wait().ok());
  CHECK(reserve.Wait().code() == absl::StatusCode::kCancelled);
  CHECK(answered == 100);
}

TEST_CASE("snapshots are read and dropped on other threads while commits go on", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeNone(1.0f));
  Apply(*shard, PlanOfFirst(1));
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        ReadAnswer read;
        ReadOutside(*shard, MemberId(1), Exchange(0), IdleNotice(), read.Callback());
        const ReadResult result = *std::move(read.Wait());
        const std::vector<float> values = ValuesOf(*result.snapshot);
        // Every entry is the version: anything else is a torn read.
        if (values != std::vector<float>(kRows, static_cast<float>(result.version.value()))) ++torn;
      }
    });
  }
  for (int exchange = 1; exchange <= 500; ++exchange) {
    PushAnswer pushed;
    Accept(*shard, PushOf(*shard, 1, exchange, 1), pushed.Callback());
    REQUIRE(pushed.Wait().ok());
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(torn == 0);
}

TEST_CASE("what other threads see of a shard stays when another takes its place",
          "[shard_thread]") {
  const auto make = []() -> absl::StatusOr<std::unique_ptr<Shard>> {
    Shard::Options options;
    options.shape = ZeroMatrix(kRows, 1);
    options.policy = MakeNone(1);
    options.rule = MakeAdd();
    options.codecs.push = Bf16Codec();
    options.core = CoreShare{0.5, 0.25, 2, 0};
    return std::make_unique<Shard>(std::move(options));
  };
  ShardThread shard(*make());
  // A push or a pull that is under way holds these.
  const CodedKeys* const keys = shard.traits().dense_forms().Find(shard.traits().codecs.push);
  const CodecChoice* const codecs = &shard.traits().codecs;
  REQUIRE(keys != nullptr);
  Answer<absl::Status> replaced;
  shard.AwaitReplacement(1, absl::FailedPreconditionError("it is restored"));
  shard.Replace(1, make(), replaced.Callback());
  REQUIRE(replaced.Wait().ok());
  CHECK(shard.traits().dense_forms().Find(shard.traits().codecs.push) == keys);
  CHECK(&shard.traits().codecs == codecs);
  CHECK(keys->bytes() == 2 * kRows);
  CHECK(shard.WantsKeysOf(CoreName()));
  // The new one's selection is reported, as the old one's was.
  const ShardThread::View view = Inspect(shard);
  REQUIRE(view.core_report.has_value());
  CHECK(view.core_report->stage == CoreStage::kSums);
}

// Whoever asks on the data plane, and what it is told.
void CheckRefused(ShardThread& shard, absl::StatusCode code) {
  Answer<absl::Status> reserve;
  PushAnswer push;
  ReadAnswer read, outside;
  Reserve(shard, MemberId(1), 4, reserve.Callback());
  Accept(shard, PushOf(shard, 1, 1, 1), push.Callback());
  shard.CancelRead(Read(shard, MemberId(1), Exchange(0), IdleNotice(), read.Callback()));
  ReadOutside(shard, MemberId(1), Exchange(0), IdleNotice(), outside.Callback());
  shard.Release(MemberId(1), 4);
  CHECK(reserve.Wait().code() == code);
  CHECK(push.Wait().status().code() == code);
  CHECK(read.Wait().status().code() == code);
  CHECK(outside.Wait().status().code() == code);
}

using RemovedAnswer = Answer<std::vector<Shard::Removed>>;

TEST_CASE("a shard that awaits another lives, and lets nobody have its values", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeBarrier());
  Apply(*shard, PlanOfFirst(2));
  PushAnswer pushed;
  ReadAnswer parked;
  Accept(*shard, PushOf(*shard, 1, 1, 4), pushed.Callback());
  Read(*shard, MemberId(1), Exchange(1), IdleNotice(), parked.Callback());
  REQUIRE(pushed.Wait().ok());
  REQUIRE(Inspect(*shard).counters.pushes == 1);

  shard->AwaitReplacement(3, absl::FailedPreconditionError("the job was restored"));
  CHECK(parked.Wait().status().code() == absl::StatusCode::kFailedPrecondition);
  RemovedAnswer applied;
  SetPlan(*shard, PlanOfFirst(1), applied.Callback());
  CheckRefused(*shard, absl::StatusCode::kFailedPrecondition);
  const ShardThread::View awaiting = Inspect(*shard);
  CHECK(awaiting.counters.pushes == 0);
  CHECK(awaiting.parameters_hash == 0);
  CHECK(awaiting.waits_for.empty());
  CHECK_FALSE(applied.ready());

  Answer<absl::Status> replaced;
  shard->Replace(3, ShardOf(MakeBarrier()), replaced.Callback());
  CHECK(replaced.Wait().ok());
  applied.Wait();
  // It has the plan that waited, and nothing of the old one's.
  PushAnswer first;
  ReadAnswer read;
  Accept(*shard, PushOf(*shard, 1, 1, 7), first.Callback());
  Read(*shard, MemberId(1), Exchange(1), IdleNotice(), read.Callback());
  REQUIRE(read.Wait().ok());
  CHECK(ValuesOf(*read.Wait()->snapshot) == std::vector<float>(kRows, 7));
}

TEST_CASE("what a shard has refused and was sent again is counted on by the next one",
          "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeNone(1.0f));
  Apply(*shard, PlanOfFirst(1));
  for (const auto& [member, bad_entry] :
       std::vector<std::pair<uint64_t, int64_t>>{{1, 2}, {1, -1}, {1, -1}, {1, -1}, {7, -1}}) {
    ReceivedPush push = PushOf(*shard, member, 1, 1);
    push.bad_entry = bad_entry;
    PushAnswer pushed;
    Accept(*shard, std::move(push), pushed.Callback());
    (void)pushed.Wait();
  }
  for (const uint64_t number : {1, 2}) {
    shard->AwaitReplacement(number, absl::FailedPreconditionError("the job was restored"));
    const ShardThread::View awaiting = Inspect(*shard);
    Answer<absl::Status> replaced;
    shard->Replace(number, ShardOf(MakeNone(1.0f)), replaced.Callback());
    REQUIRE(replaced.Wait().ok());
    for (const ShardCounters& counters : {awaiting.counters, Inspect(*shard).counters}) {
      CHECK(std::tie(counters.refused, counters.refused_non_finite, counters.duplicates) ==
            std::make_tuple(2u, 1u, 2u));
    }
  }
}

TEST_CASE("a replacement that comes too late is void, with what was planned for it",
          "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeNone(1.0f));
  const absl::Status why = absl::FailedPreconditionError("the job was restored");
  shard->AwaitReplacement(1, why);
  RemovedAnswer of_first, of_second;
  SetPlan(*shard, PlanOfFirst(2), of_first.Callback());
  shard->AwaitReplacement(2, why);
  SetPlan(*shard, PlanOfFirst(1), of_second.Callback());
  Answer<absl::Status> first, second, again;
  shard->Replace(1, ShardOf(MakeNone(1.0f)), first.Callback());
  CheckRefused(*shard, absl::StatusCode::kFailedPrecondition);
  shard->Replace(2, ShardOf(MakeNone(1.0f)), second.Callback());
  CHECK(second.Wait().ok());
  of_second.Wait();
  shard->AwaitReplacement(2, why);
  shard->Replace(2, ShardOf(MakeNone(1.0f)), again.Callback());
  PushAnswer pushed;
  Accept(*shard, PushOf(*shard, 1, 1, 1), pushed.Callback());
  CHECK(pushed.Wait().ok());
  CHECK_FALSE(first.ready());
  CHECK_FALSE(of_first.ready());
  CHECK_FALSE(again.ready());
}

TEST_CASE("where a replacement fails the old shard stays", "[shard_thread]") {
  const std::unique_ptr<ShardThread> shard = Start(MakeNone(1.0f));
  Apply(*shard, PlanOfFirst(1));
  shard->AwaitReplacement(1, absl::FailedPreconditionError("the job was restored"));
  Answer<absl::Status> replaced;
  shard->Replace(1, absl::DataLossError("a wrong sum"), replaced.Callback());
  CHECK(replaced.Wait().code() == absl::StatusCode::kDataLoss);
  PushAnswer pushed;
  Accept(*shard, PushOf(*shard, 1, 1, 1), pushed.Callback());
  CHECK(pushed.Wait().ok());
}

TEST_CASE("a shard's thread lives before its shard is made", "[shard_thread]") {
  auto shard = std::make_unique<ShardThread>(TraitsOf(OptionsOf(MakeNone(1.0f))));
  CHECK(shard->traits().layout_hash == Start(MakeNone(1.0f))->traits().layout_hash);
  CHECK(shard->traits().slices.size == kRows);
  CHECK(shard->WantsKeysOf(CoreName()));
  RemovedAnswer applied;
  SetPlan(*shard, PlanOfFirst(1), applied.Callback());
  CheckRefused(*shard, absl::StatusCode::kUnavailable);
  CHECK(Inspect(*shard).counters.pushes == 0);
  Answer<absl::StatusOr<ReplicaCopy>> copy;
  shard->Ask([](ServedShard& served,
                const auto& done) { done(served.shard().replica().MakeCopy(absl::UnixEpoch())); },
             copy.Callback());
  CHECK(absl::IsUnavailable(copy.Wait().status()));
  SECTION("and after") {
    Answer<absl::Status> made;
    shard->Replace(0, ShardOf(MakeNone(1.0f)), made.Callback());
    CHECK(made.Wait().ok());
    applied.Wait();
    PushAnswer pushed;
    Accept(*shard, PushOf(*shard, 1, 1, 1), pushed.Callback());
    CHECK(pushed.Wait().ok());
  }
  SECTION("or ends without") {
    shard.reset();
    CHECK_FALSE(applied.ready());
  }
}

TEST_CASE("what is known of a shard before it is made is so afterwards", "[shard_thread]") {
  for (const bool has_core : {false, true}) {
    Shard::Options options = OptionsOf(MakeNone(1.0f));
    options.codecs.push = Bf16Codec();
    options.seed = 5;
    if (has_core) options.core = CoreShare{0.5, 0.25, 2, 0};
    const ShardTraits before = TraitsOf(options);
    const Shard shard(std::move(options));
    const ShardTraits& after = shard.traits();
    CHECK(before.layout_hash == after.layout_hash);
    CHECK(before.slices.size == after.slices.size);
    CHECK(before.seed == after.seed);
    CHECK(before.codecs.push == after.codecs.push);
    CHECK(before.dense_forms().Find(before.codecs.push)->bytes() == 2 * kRows);
    for (const ShardTraits& traits : {before, after}) {
      CHECK(traits.keys->moves_parts() == has_core);
      CHECK(traits.keys->OfPush(NamedCore(), 1).ok() == has_core);
      CHECK(traits.keys->OfPush(AllEntries(), 1).ok());
      CHECK_FALSE(traits.keys->OfPush(SubnetPlace(), 1).ok());
    }
  }
}

TEST_CASE("a read at an evaluation has all that a replica has accepted",
          "[shard_thread][replica]") {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, 1);
  options.placement = Placement::kReplicated;
  options.policy = MakeNone(1);
  options.rule = MakeAdd();
  ShardThread shard(std::make_unique<Shard>(std::move(options)));
  SetPlan(shard, PlanOfFirst(2));
  // Held up, so that the rest is found at once.
  absl::Notification go_on;
  shard.Inspect(false, [&](const ShardThread::View&) { go_on.WaitForNotification(); });
  std::vector<PushAnswer> pushed(3);
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    ReceivedPush push = PushOf(shard, 1, exchange, 1);
    push.from_peer = true;
    Accept(shard, std::move(push), pushed[exchange - 1].Callback());
  }
  ReadAnswer read;
  ReadOutside(shard, MemberId(2), Exchange(0), IdleNotice(), read.Callback());
  go_on.Notify();
  CHECK(ValuesOf(*read.Wait()->snapshot) == std::vector<float>(kRows, 3));
}

}  // namespace
}  // namespace tessera
