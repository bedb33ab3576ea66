#include "server/rpc/coordinator_stream.h"

#include <catch2/catch.hpp>

#include <future>
#include <string>

#include "absl/synchronization/notification.h"
#include "proto/replication.grpc.pb.h"
#include "tests/server/rpc/scripted_coordinator.h"

namespace tessera {
namespace {

using Stream = CoordinatorStream<v1::StandbyControl, v1::HostMessage, v1::HostOrder>;
using Scripted = ScriptedCoordinator<v1::StandbyControl, v1::HostMessage, v1::HostOrder>;

// Reads until the connection ends.
grpc::Status Listen(int, Scripted::Stream* stream) {
  v1::HostMessage message;
  while (stream->Read(&message)) {
  }
  return grpc::Status();
}

TEST_CASE("there is no stream before a coordinator is elected", "[link]") {
  Scripted coordinator(Listen);
  absl::StatusOr<std::string> elected = absl::UnavailableError("nobody has been elected");
  Stream stream("", [&] { return elected; });
  const absl::Status status = stream.Open();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "nobody has been elected");
  CHECK(stream.address().empty());
  elected = coordinator.address();
  REQUIRE(stream.Open().ok());
  CHECK(stream.address() == coordinator.address());
  stream.Cut();
  CHECK(absl::IsCancelled(stream.Finish()));
}

TEST_CASE("nobody writes where no stream is open, or before it may be written to", "[link]") {
  Scripted coordinator(Listen);
  Stream stream(coordinator.address(), nullptr);
  int writes = 0;
  const auto count = [&](Stream::Stream*) { ++writes; };
  stream.Write(count);
  REQUIRE(stream.Open().ok());
  stream.Write(count);
  CHECK(writes == 0);
  stream.MayWrite();
  stream.Write(count);
  CHECK(writes == 1);
  stream.Cut();
  stream.Finish().IgnoreError();
  stream.Write(count);
  CHECK(writes == 1);
}

TEST_CASE("a stream does not end under whoever writes to it", "[link]") {
  Scripted coordinator(Listen);
  Stream stream(coordinator.address(), nullptr);
  REQUIRE(stream.Open().ok());
  stream.MayWrite();
  absl::Notification writes, may_end;
  auto writer = std::async(std::launch::async, [&] {
    stream.Write([&](Stream::Stream* to) {
      writes.Notify();
      may_end.WaitForNotification();
      to->Write(v1::HostMessage());
    });
  });
  writes.WaitForNotification();
  stream.Cut();
  auto finish = std::async(std::launch::async, [&] { return stream.Finish(); });
  CHECK(finish.wait_for(std::chrono::milliseconds(0)) == std::future_status::timeout);
  may_end.Notify();
  CHECK(absl::IsCancelled(finish.get()));
}

TEST_CASE("what both sides say comes in order, and then how the coordinator ended it", "[link]") {
  Scripted coordinator([](int, Scripted::Stream* stream) {
    v1::HostMessage message;
    uint64_t sum = 0;
    while (stream->Read(&message)) {
      sum += message.hello().life();
      v1::HostOrder order;
      order.set_refuse(std::to_string(sum));
      stream->Write(order);
    }
    return grpc::Status(grpc::StatusCode::DATA_LOSS, "all was read");
  });
  Stream stream(coordinator.address(), nullptr);
  REQUIRE(stream.Open().ok());
  v1::HostMessage message;
  v1::HostOrder order;
  for (const uint64_t life : {3, 4}) {
    message.mutable_hello()->set_life(life);
    REQUIRE(stream.stream().Write(message));
    REQUIRE(stream.stream().Read(&order));
  }
  CHECK(order.refuse() == "7");
  CHECK(stream.stream().WritesDone());
  CHECK_FALSE(stream.stream().Read(&order));
  const absl::Status status = stream.Finish();
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message() == "all was read");
}

TEST_CASE("whoever stops ends the stream that is open, and there is no other one", "[link]") {
  Scripted coordinator(Listen);
  Stream stream(coordinator.address(), nullptr);
  REQUIRE(stream.Open().ok());
  auto reader = std::async(std::launch::async, [&] {
    v1::HostOrder order;
    return stream.stream().Read(&order);
  });
  stream.Stop();
  CHECK_FALSE(reader.get());
  CHECK(absl::IsCancelled(stream.Finish()));
  CHECK(absl::IsCancelled(stream.Open()));
}

TEST_CASE("a stream to where the coordinator was is cut, and the next one goes to where it is",
          "[link]") {
  Scripted old(Listen), elected(Listen);
  absl::StatusOr<std::string> at = old.address();
  Stream stream("", [&] { return at; });
  REQUIRE(stream.Open().ok());
  at = absl::UnavailableError("nobody knows");
  stream.LookElsewhere();
  at = old.address();
  stream.LookElsewhere();
  CHECK(stream.stream().Write(v1::HostMessage()));
  at = elected.address();
  stream.LookElsewhere();
  v1::HostOrder order;
  CHECK_FALSE(stream.stream().Read(&order));
  CHECK(absl::IsCancelled(stream.Finish()));
  REQUIRE(stream.Open().ok());
  CHECK(stream.address() == elected.address());
  stream.Stop();
  stream.Finish().IgnoreError();
}

}  // namespace
}  // namespace tessera
