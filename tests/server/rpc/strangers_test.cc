// What somebody who is none of the job's can make the coordinator hold and log.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/message_limits.h"
#include "server/rpc/status_service.h"
#include "tests/common/base/captured_log.h"
#include "tests/common/rpc/compressed_call.h"

namespace tessera {
namespace {

JobFacts Facts() {
  JobFacts facts;
  facts.name = "tiny";
  facts.digest = "d1";
  facts.layout_hash = 77;
  facts.servers = 1;
  facts.workers = 2;
  facts.lease_timeout = absl::Seconds(100);
  facts.epochs = 2;
  facts.batch_size = 10;
  return facts;
}

// A coordinator that waits for its job.
struct Served {
  Served()
      : live(LiveCoordinator::Create(Facts()).value()),
        coordinator(live.get()),
        status([this] { return live->Status(); }),
        grpc(GrpcServer::Start({"127.0.0.1:0", {&coordinator, &status}}).value()),
        stub(v1::Coordinator::NewStub(OpenChannel(grpc->address()))) {}
  ~Served() { grpc->Shutdown(absl::ZeroDuration()); }

  grpc::Status Join(v1::JoinReply* reply) {
    v1::JoinRequest request;
    request.set_protocol(kControlProtocol);
    request.set_job_digest("d1");
    request.set_layout_hash(77);
    request.set_rows(100);
    grpc::ClientContext context;
    return stub->Join(&context, request, reply);
  }

  std::unique_ptr<LiveCoordinator> live;
  CoordinatorService coordinator;
  StatusService status;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<v1::Coordinator::Stub> stub;
};

TEST_CASE("a compressed call is refused and never unpacked, and workers join",
          "[control][rpc][compression]") {
  Served served;
  for (const char* call : {"Status/Get", "Coordinator/Join", "Coordinator/Attach"}) {
    CheckThatNothingIsUnpacked(served.grpc->port(), absl::StrCat("/tessera.v1.", call));
  }
  v1::JoinReply joined;
  CHECK(served.Join(&joined).ok());
  CHECK(joined.member() > 0);
}

TEST_CASE("refused servers are logged so often, and what they say is quoted so far",
          "[control][rpc]") {
  Served served;
  constexpr int kCalls = 200;
  v1::ShardMessage first;
  first.mutable_hello()->set_job_digest(std::string(16000, 'x'));
  int refused = 0;
  const absl::Time begin = SteadyNow();
  const std::string log = CapturedLog([&] {
    for (int i = 0; i < kCalls; ++i) {
      grpc::ClientContext context;
      const auto call = served.stub->Attach(&context);
      call->Write(first);
      v1::PlanMessage refusal;
      const bool is_told = call->Read(&refusal);
      const std::string words =
          "job digest is \"" + std::string(kDigestQuoted, 'x') + "\", want \"d1\"";
      refused += is_told && refusal.refuse().find(words) != std::string::npos;
      call->Finish();
    }
  });
  CHECK(refused == kCalls);
  const int64_t intervals = 1 + (SteadyNow() - begin) / kRefusalsInterval;
  int64_t lines = 0;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    if (line.find("server refused") == absl::string_view::npos) continue;
    ++lines;
    CHECK(line.size() < 400);
  }
  CHECK(lines > 0);
  CHECK(lines <= std::min<int64_t>(kCalls - 1, intervals * kRefusalsLogged));
}

TEST_CASE("of what a worker says of its end the beginning is kept", "[control][rpc]") {
  Served served;
  v1::JoinReply joined;
  REQUIRE(served.Join(&joined).ok());
  v1::LeaveRequest request;
  request.set_member(joined.member());
  request.set_error(std::string(16000, 'x'));
  grpc::Status left;
  const std::string log = CapturedLog([&] {
    grpc::ClientContext context;
    v1::LeaveReply reply;
    left = served.stub->Leave(&context, request, &reply);
  });
  CHECK(left.ok());
  CHECK(log.find("why=\"" + std::string(kEndWhyBytesMax, 'x') + "...\"") != std::string::npos);
}

}  // namespace
}  // namespace tessera
