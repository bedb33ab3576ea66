// The coordinator's services while its store takes long: whoever asks waits, and nobody else.
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/status_service.h"
#include "tests/server/rpc/live_coordinator_fixture.h"

namespace tessera {
namespace {

// More than gRPC has threads, fewer than a connection has calls.
constexpr int kCallers = 20;

struct ServedCoordinator : LiveCoordinatorFixture {
  ServedCoordinator() : LiveCoordinatorFixture(kCallers) {
    Install(Word(9, 1));
    auto started = GrpcServer::Start({"127.0.0.1:0", {&coordinator, &status}});
    REQUIRE(started.ok());
    server = *std::move(started);
    channel = OpenChannel(server->address());
  }

  CoordinatorService coordinator{&live};
  StatusService status{[this] { return live.Status(); }};
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
};

// A worker's call to Join, on gRPC's threads.
struct Joining {
  grpc::ClientContext context;
  v1::JoinRequest request;
  v1::JoinReply reply;
};

TEST_CASE("who waits for a slow store holds up nobody else", "[control][live]") {
  ServedCoordinator f;
  const auto workers = v1::Coordinator::NewStub(f.channel);
  std::deque<Joining> joining(kCallers);
  Heard<bool> joined;
  f.store.Hang(true);
  for (Joining& one : joining) {
    one.request.set_job_digest("d1");
    one.request.set_layout_hash(77);
    one.request.set_protocol(kControlProtocol);
    one.request.set_rows(100);
    workers->async()->Join(&one.context, &one.request, &one.reply,
                           [&](const grpc::Status& status) { joined.Add(status.ok()); });
  }
  const auto watcher = v1::Status::NewStub(f.channel);
  v1::JobStatus seen;
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  bool answers = true;
  while (answers && seen.members_size() < kCallers && SteadyNow() < deadline) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    answers = watcher->Get(&context, {}, &seen).ok();
  }
  CHECK(answers);
  CHECK(seen.members_size() == kCallers);
  CHECK(joined.size() == 0);
  f.store.Hang(false);
  for (const bool ok : joined.Await(kCallers)) CHECK(ok);
}

}  // namespace
}  // namespace tessera
