// Activations over real connections: what goes there and comes back, and what becomes of those who wait when others go
// away.
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <future>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/grpc_server.h"
#include "tests/worker/rpc/activation_ends.h"

namespace tessera {
namespace {

TEST_CASE("activations of many chunks come as they are, and their gradient comes back",
          "[activations]") {
  const absl::Time begin = SteadyNow();
  Ends ends(2, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    const OwnBatch own[] = {OwnBatch(1, step), OwnBatch(5, step)};
    std::future<absl::StatusOr<ActivationAnswer>> fronts[2];
    for (int rank : {0, 1}) fronts[rank] = ends.Exchange(rank, own[rank]);
    CHECK(ServeStep(ends[2].receiver(), step) == std::vector<uint64_t>{0, 1});
    for (int rank : {0, 1}) {
      const absl::StatusOr<ActivationAnswer> answer = fronts[rank].get();
      REQUIRE(answer.ok());
      CHECK_FALSE(answer->too_late);
      CHECK(answer->loss == 1);
      CHECK(IsTwice(answer->gradient, own[rank].values));
    }
  }
  CHECK(ends[0].sender()->payload_bytes() == 3 * kRows * (2 * kFeatures + 1) * 4);
  // A wait that is no short one is told of, too.
  if (SteadyNow() - begin < absl::Milliseconds(300)) CHECK(ends.troubles() == 0);
}

TEST_CASE("one that comes when the step is over hears so at once", "[activations]") {
  Ends ends(2, 2);
  const OwnBatch own(0), other(1);
  auto front = ends.Exchange(0, own);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  CHECK(front.get().ok());
  ends.Lose(3);
  ends.Tell();
  const auto answer = ends[1].sender()->Exchange(other.batch);
  REQUIRE(answer.ok());
  CHECK(answer->too_late);
  CHECK(answer->gradient.empty());
}

TEST_CASE("a batch goes to another one when its linear worker is lost", "[activations]") {
  Ends ends(2, 2);
  const OwnBatch own(3), other(1);
  auto front = ends.Exchange(1, own);
  auto second = ends.Exchange(0, other);
  // The call to rank 3 waits there, and ends with it.
  ends.AwaitBatches(3, 1);
  CHECK(ends.troubles() == 0);
  ends.Lose(3);
  ends.AwaitTroubles(1);
  ends.Tell();
  ends.AwaitBatches(2, 2);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0, 1});
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  REQUIRE(answer.ok());
  CHECK_FALSE(answer->too_late);
  CHECK(IsTwice(answer->gradient, own.values));
  CHECK(second.get().ok());
}

TEST_CASE("a linear worker that cannot be reached is named, once the time is over",
          "[activations]") {
  Ends ends(1, 1, absl::Milliseconds(300));
  const OwnBatch own(0);
  ends.Lose(1);
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kUnavailable);
  const std::string message(answer.status().message());
  CHECK(message.find("activations: worker 1 at " + ends.address(1)) == 0);
  CHECK(message.find("has not taken them for 300ms") != std::string::npos);
}

TEST_CASE("whoever waits is let go when this worker is to end", "[activations]") {
  Ends ends(1, 1);
  const OwnBatch own(0, /*step=*/9);  // Which nobody collects.
  auto front = ends.Exchange(0, own);
  auto linear = Async([&] { return ends[1].receiver()->Next(7, Generation()).status(); });
  ends.AwaitBatches(1, 1);
  ends.AwaitTroubles(1);  // The linear worker's: its wait is no short one.
  ends[0].Cancel();
  ends[1].Cancel();
  CHECK(front.get().status().code() == absl::StatusCode::kCancelled);
  CHECK(linear.get().code() == absl::StatusCode::kCancelled);
  CHECK(ends[0].sender()->Exchange(own.batch).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("values that are not finite end their sender's call at once", "[activations]") {
  Ends ends(1, 1);
  OwnBatch own(0);
  own.values[7] = NAN;
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(answer.status().message());
  CHECK(message.find("worker 1 at ") != std::string::npos);
  CHECK(message.find("activation 7 of row 0 is nan") != std::string::npos);
}

TEST_CASE("another program that has the port of a lost linear worker is no answer",
          "[activations]") {
  const auto other = GrpcServer::Start({"127.0.0.1:0", {}});  // Which knows of no activations.
  REQUIRE(other.ok());
  // A linear worker of another job answers there, too, with what would be no use to ask again of one's own.
  auto stranger = LayerExchange::Open({"127.0.0.1:0", "another digest", SplitOf(1, 1), kRows,
                                       kFeatures, kOutputs, /*has_classes=*/true});
  REQUIRE(stranger.ok());
  for (const std::string& taken : {(*other)->address(), (*stranger)->address()}) {
    INFO(taken);
    Ends ends(1, 2);
    const std::string own_address = ends.address(2);
    const OwnBatch own(0);
    ends.Lose(1);
    ends.Lead(2, taken);
    auto front = ends.Exchange(0, own);
    ends.AwaitTroubles(2);
    ends.Lead(2, own_address);
    ends.AwaitBatches(2, 1);
    CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
    CHECK(front.get().ok());
  }
}

TEST_CASE("where another program listens for good, the error says so once the time is over",
          "[activations]") {
  const auto other = GrpcServer::Start({"127.0.0.1:0", {}});
  REQUIRE(other.ok());
  Ends ends(1, 1, absl::Milliseconds(300));
  ends.Lead(1, (*other)->address());
  const OwnBatch own(0);
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kUnavailable);
  const std::string message(answer.status().message());
  CHECK(message.find((*other)->address()) != std::string::npos);
  CHECK(message.find("another program listens there") != std::string::npos);
}

TEST_CASE("nobody is given up while the coordinator is away", "[activations]") {
  const absl::Duration retry_time = absl::Milliseconds(300);
  Ends ends(1, 2, retry_time);
  const OwnBatch own(3);
  ends[0].SetAway(true);
  ends.Lose(1);
  auto front = ends.Exchange(0, own);
  ends.AwaitTroubles(1);
  // It goes on to fail when the time is long over.
  const absl::Time first_failure = SteadyNow();
  while (SteadyNow() - first_failure < 2 * retry_time) ends.AwaitTroubles(ends.troubles() + 1);
  ends.Tell();
  ends.AwaitBatches(2, 1);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  INFO(answer.status().message());
  REQUIRE(answer.ok());
  CHECK(IsTwice(answer->gradient, own.values));
}

TEST_CASE("one that leaves waits for none of a half that has nobody left", "[activations]") {
  Ends ends(1, 1);
  ends.Lose(1);
  ends.Tell();
  const OwnBatch own(0);
  auto front = ends.Exchange(0, own);
  // It has found nobody, and has not given up at that.
  ends.AwaitTroubles(3);
  ends[0].Leave();
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  REQUIRE(answer.ok());
  CHECK(answer->too_late);

  Ends others(1, 1);
  others.Lose(0);
  others.Tell();
  auto linear = Async([&] { return others[1].receiver()->Next(0, Generation()); });
  others.AwaitTroubles(1);  // Its wait is no short one.
  others[1].Leave();
  const absl::StatusOr<const ActivationReceiver::Batch*> batch = linear.get();
  REQUIRE(batch.ok());
  CHECK(*batch == nullptr);
}

TEST_CASE("both sides wait until they know who takes part", "[activations]") {
  Ends ends(1, 1);
  OwnBatch own(0);
  own.batch.plan = Generation(2);
  std::atomic<int> over{0};
  auto front = Async([&] {
    absl::StatusOr<ActivationAnswer> answer = ends[0].sender()->Exchange(own.batch);
    ++over;
    return answer;
  });
  auto linear = Async([&] {
    std::vector<uint64_t> senders;
    const auto batch = ends[1].receiver()->Next(0, Generation(2));
    if (batch.ok() && *batch != nullptr) {
      senders.push_back((*batch)->sender.value());
      ends[1].receiver()->Answer(1, (*batch)->activations);
    }
    ++over;
    return senders;
  });
  // Both have asked for the list at once.
  ends.AwaitTroubles(2);
  CHECK(over == 0);
  ends.Tell();
  CHECK(front.get().ok());
  CHECK(linear.get() == std::vector<uint64_t>{0});
  CHECK(ends[0].sender()->payload_bytes() == kRows * (2 * kFeatures + 1) * 4);
}

TEST_CASE("a step in which nobody has the linear layers is passed over where somebody comes",
          "[activations]") {
  Ends ends(1, 1);
  ends.list().mutable_workers(1)->set_first_step(1);
  ends.Tell();
  OwnBatch own(0);
  const absl::StatusOr<ActivationAnswer> answer = ends[0].sender()->Exchange(own.batch);
  REQUIRE(answer.ok());
  CHECK(answer->too_late);
  own.batch.step = 1;
  auto front = ends.Exchange(0, own);
  CHECK(ServeStep(ends[1].receiver(), 1) == std::vector<uint64_t>{0});
  const absl::StatusOr<ActivationAnswer> next = front.get();
  REQUIRE(next.ok());
  CHECK_FALSE(next->too_late);
}

TEST_CASE("a list that comes before this worker begins counts", "[activations]") {
  Ends ends(2, 1);
  v1::WorkerList later = ends.list();
  later.set_generation(2);
  later.mutable_workers()->DeleteSubrange(0, 1);
  ends[2].End();
  ends[2].SetWorkers(later);
  ends[2].Begin({MemberAt(2), Rank(2), ends.list(), absl::Seconds(20), [] {}});
  const OwnBatch own(0);
  auto front = ends.Exchange(1, own);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{1});
  CHECK(front.get().ok());
}

}  // namespace
}  // namespace tessera
