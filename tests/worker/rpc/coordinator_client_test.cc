// A worker's side of the control plane, with a coordinator that answers as no coordinator of ours would.
// (tests/server/rpc/control_plane_test.cc has one that does.)
#include "worker/rpc/coordinator_client.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "common/rpc/grpc_server.h"
#include "proto/coordinator.grpc.pb.h"

namespace tessera {
namespace {

// Admits everybody to a job with this lease, and hears all farewells as it is told to.
class Scripted final : public v1::Coordinator::Service {
 public:
  explicit Scripted(absl::Duration lease) : lease_(lease) {
    auto started = GrpcServer::Start({"127.0.0.1:0", {this}});
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }
  ~Scripted() override { server_->Shutdown(absl::ZeroDuration()); }

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    reply->set_member(1);
    reply->set_admitted(true);
    reply->set_first_exchange(1);
    reply->set_layout_hash(request->layout_hash());
    reply->set_lease_timeout_ns(absl::ToInt64Nanoseconds(lease_));
    reply->mutable_word()->set_run(7);
    if (change_admission) change_admission(reply);
    return grpc::Status();
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request,
                     v1::LeaveReply*) override {
    run_of_last = request->run();
    if (++farewells < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not now");
    return grpc::Status();
  }
  CoordinatorClient::Options Options() const {
    CoordinatorClient::Options options;
    options.address = server_->address();
    options.layout_hash = 5;
    return options;
  }

  std::function<void(v1::JoinReply*)> change_admission;
  std::atomic<int> farewells{0};
  std::atomic<uint64_t> run_of_last{0};

 private:
  const absl::Duration lease_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_CASE("a job that says it has no lease is not joined", "[coordinator][client]") {
  for (const absl::Duration lease : {absl::ZeroDuration(), absl::Seconds(-1)}) {
    Scripted coordinator(lease);
    CoordinatorClient client(coordinator.Options());
    const absl::Status status = client.Join(nullptr).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find("join: lease is " + absl::FormatDuration(lease)) == 0);
  }
}

TEST_CASE("an admission whose numbers lead nowhere is refused", "[coordinator][client]") {
  const struct {
    std::function<void(v1::JoinReply*)> change;
    const char* why;
  } kCases[] = {
      {[](auto* reply) { reply->set_member(0); }, "join: member is 0"},
      {[](auto* reply) { reply->set_rank(65535); }, "join: rank is 65535, want less than 65535"},
      {[](auto* reply) { reply->set_first_exchange(0); }, "join: first exchange is 0"},
      {[](auto* reply) { reply->set_first_exchange(uint64_t{1} << 40); },
       "join: first exchange is 1099511627776"},
      {[](auto* reply) { reply->set_first_step(~uint64_t{0}); }, "join: first step is"},
      {[](auto* reply) { reply->set_epoch(uint64_t{1} << 32); }, "join: epoch is 4294967296"},
  };
  for (const auto& c : kCases) {
    Scripted coordinator(absl::Seconds(10));
    coordinator.change_admission = c.change;
    CoordinatorClient client(coordinator.Options());
    const absl::Status status = client.Join(nullptr).status();
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find(c.why) == 0);
  }
}

TEST_CASE("a farewell is said until it is heard", "[coordinator][client]") {
  Scripted coordinator(absl::Seconds(10));
  CoordinatorClient client(coordinator.Options());
  REQUIRE(client.Join(nullptr).ok());
  client.Cancel();  // Which ends all but this.
  CHECK(client.Leave(v1::WorkerReport(), "its disk is full").ok());
  CHECK(coordinator.farewells == 3);
  CHECK(coordinator.run_of_last == 7);
}

}  // namespace
}  // namespace tessera
