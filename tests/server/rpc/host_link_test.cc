// A host's connections to a coordinator that says what it is told to say.
#include "server/rpc/host_link.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/replication.grpc.pb.h"
#include "tests/server/rpc/scripted_coordinator.h"

namespace tessera {
namespace {

using Scripted = ScriptedCoordinator<v1::StandbyControl, v1::HostMessage, v1::HostOrder>;

v1::HostOrder OrderOf(uint64_t term) {
  v1::HostOrder order;
  order.mutable_word()->set_run(7);
  order.mutable_word()->set_term(term);
  order.mutable_word()->set_changes(5);
  return order;
}

// A host in this process, whose link may end.
struct Host {
  explicit Host(const std::string& coordinator, absl::Duration lease = absl::Seconds(60)) {
    HostLink::Options options;
    options.coordinator = coordinator;
    options.lease_timeout = lease;
    options.hello.set_job_digest("d1");
    options.on_order = [this](const v1::HostOrder&) { ++orders; };
    options.message = [] { return v1::HostMessage(); };
    options.on_end = [this](absl::Status status) { end.set_value(std::move(status)); };
    link = std::make_unique<HostLink>(std::move(options));
  }
  std::atomic<int> orders{0};
  std::promise<absl::Status> end;
  std::unique_ptr<HostLink> link;
};

TEST_CASE("a host that is refused ends, and says by whom and why", "[standby][link]") {
  Scripted coordinator([](int, Scripted::Stream* stream) {
    v1::HostOrder order;
    order.set_refuse("another job");
    stream->Write(order);
    return grpc::Status();
  });
  Host host(coordinator.address());
  const absl::Status end = host.end.get_future().get();
  CHECK(absl::IsFailedPrecondition(end));
  CHECK(end.message() == absl::StrCat("coordinator at ", coordinator.address(),
                                      " refused this server: another job"));
  CHECK(host.orders == 0);
}

TEST_CASE("a host whose connection breaks tells the next coordinator what it has heard",
          "[standby][link]") {
  std::promise<v1::HostHello> first, second;
  Scripted coordinator([&](int connection, Scripted::Stream* stream) {
    v1::HostMessage message;
    stream->Read(&message);
    if (connection > 2) return grpc::Status();
    (connection == 1 ? first : second).set_value(message.hello());
    stream->Write(OrderOf(3));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
  });
  Host host(coordinator.address());
  const v1::HostHello before = first.get_future().get(), after = second.get_future().get();
  CHECK(before.job_digest() == "d1");
  CHECK(before.term() == 0);
  CHECK(after.life() == before.life());
  CHECK(after.run() == 7);
  CHECK(after.term() == 3);
  CHECK(after.changes() == 5);
  CHECK(host.link->word().term() == 3);
  host.link.reset();
  CHECK(host.end.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("a host does nothing that a coordinator of an earlier term says", "[standby][link]") {
  std::promise<void> third;
  Scripted coordinator([&](int connection, Scripted::Stream* stream) {
    if (connection == 3) third.set_value();
    if (connection > 2) return grpc::Status();
    v1::HostMessage message;
    stream->Read(&message);
    stream->Write(OrderOf(connection == 1 ? 4 : 3));
    // It is cut where it is not believed.
    if (connection == 2) {
      while (stream->Read(&message)) {
      }
    }
    return grpc::Status();
  });
  Host host(coordinator.address());
  third.get_future().wait();
  CHECK(host.orders == 1);
  CHECK(host.link->word().term() == 4);
}

TEST_CASE("a host that does not hear the coordinator for a lease ends", "[standby][link]") {
  Scripted coordinator([](int connection, Scripted::Stream* stream) {
    if (connection == 1) stream->Write(OrderOf(1));
    v1::HostMessage message;
    while (stream->Read(&message)) {
    }
    return grpc::Status();
  });
  Host host(coordinator.address(), absl::Seconds(5));
  const absl::Status end = host.end.get_future().get();
  CHECK(absl::IsUnavailable(end));
  CHECK(end.message() == absl::StrCat("coordinator at ", coordinator.address(),
                                      " was not heard for the lease of 5s"));
  CHECK(host.orders == 1);
}

}  // namespace
}  // namespace tessera
