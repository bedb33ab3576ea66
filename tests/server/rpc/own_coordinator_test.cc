// A server and the coordinator in its own process, behind a port that strangers have taken.
#include <atomic>
#include <memory>
#include <set>
#include <string>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/consistency/barrier.h"
#include "common/layout/shard_map.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/grpc_server.h"
#include "common/rule/add.h"
#include "server/rpc/attach_link.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/host_link.h"
#include "server/rpc/standby_control_service.h"
#include "server/rpc/status_service.h"
#include "tests/server/rpc/tiny_shape.h"

namespace tessera {
namespace {

JobFacts Facts(bool standbys) {
  JobFacts facts;
  facts.name = "tiny";
  facts.digest = "d1";
  facts.layout_hash = LayoutHash(TinyShape(), 1);
  facts.servers = 1;
  facts.workers = 1;
  facts.standbys = standbys;
  facts.lease_timeout = kPatience;
  facts.steps = 10;
  facts.batch_size = 10;
  return facts;
}

// Server 0, whose only place for a connection of this host is a stranger's.
class TakenPort {
 public:
  explicit TakenPort(bool standbys = false)
      : live_(LiveCoordinator::Create(Facts(standbys)).value()),
        coordinator_(live_.get()),
        standby_control_(live_.get()),
        status_([this] { return live_->Status(); }) {
    SetLogLevel(LogLevel::kError);
    GrpcServer::Options options;
    options.address = "127.0.0.1:0";
    options.services = {&coordinator_, &standby_control_, &status_};
    options.connections_per_host_max = 1;
    grpc_ = GrpcServer::Start(options).value();
    stranger_ = OpenControlChannel(grpc_->address());
    REQUIRE(Calls(stranger_));
  }
  ~TakenPort() { grpc_->Shutdown(absl::ZeroDuration()); }

  std::string address() const { return grpc_->address(); }
  std::shared_ptr<grpc::Channel> OpenWithin() { return grpc_->OpenWithin(); }
  LiveCoordinator& live() { return *live_; }
  uint64_t refused() const { return grpc_->connections_refused(); }

  static bool Calls(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::JobStatus status;
    return v1::Status::NewStub(channel)->Get(&context, {}, &status).ok();
  }

 private:
  std::unique_ptr<LiveCoordinator> live_;
  CoordinatorService coordinator_;
  StandbyControlService standby_control_;
  StatusService status_;
  std::unique_ptr<GrpcServer> grpc_;
  std::shared_ptr<grpc::Channel> stranger_;
};

TEST_CASE("a server is attached to the coordinator beside it though no connection is left",
          "[control][rpc]") {
  TakenPort port;
  Shard::Options shape;
  shape.shape = TinyShape();
  shape.policy = MakeBarrier();
  shape.rule = MakeAdd();
  ShardThread shard(std::make_unique<Shard>(std::move(shape)));
  absl::Mutex mutex;
  std::set<std::string> opened;  // by the link's thread
  AttachLink::Options options;
  options.coordinator = port.address();
  options.open_channel = [&](const std::string& at) {
    absl::MutexLock lock(&mutex);
    opened.insert(at);
    return port.OpenWithin();
  };
  options.job_digest = "d1";
  options.address = port.address();
  options.lease_timeout = kPatience;
  options.shard = &shard;
  options.on_end = [](const absl::Status&) {};
  const AttachLink link(std::move(options));
  // Counters come after the hello, so both directions work.
  CHECK(
      Eventually([&] { return port.live().Status().servers(0).counters().parameter_bytes() > 0; }));
  CHECK(Eventually([&] { return link.word().run() == port.live().WordForWorkers().run(); }));
  CHECK(link.coordinator() == port.address());
  {
    absl::MutexLock lock(&mutex);
    CHECK(opened == std::set<std::string>{port.address()});
  }
  CHECK(port.refused() == 0);
  // By the port nobody else comes in.
  CHECK_FALSE(TakenPort::Calls(OpenControlChannel(port.address())));
  CHECK(port.refused() > 0);
}

TEST_CASE("a host is told what to lead by the coordinator beside it though no connection is left",
          "[control][rpc]") {
  TakenPort port(/*standbys=*/true);
  HostLink::Options options;
  options.coordinator = port.address();
  options.open_channel = [&](const std::string&) { return port.OpenWithin(); };
  options.hello.set_job_digest("d1");
  options.hello.set_layout_hash(Facts(true).layout_hash);
  options.hello.set_address(port.address());
  options.lease_timeout = kPatience;
  std::atomic<int> orders{0};
  options.on_order = [&](const v1::HostOrder&) { ++orders; };
  options.message = [] { return v1::HostMessage(); };
  options.on_end = [](const absl::Status&) {};
  const HostLink link(std::move(options));
  CHECK(Eventually([&] { return orders > 0; }));
  CHECK(port.refused() == 0);
}

}  // namespace
}  // namespace tessera
