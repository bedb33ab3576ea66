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
#include "server/rpc/standby_control_service.h"
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

TEST_CASE("a message that is too long is refused", "[control][rpc]") {
  Served served;
  v1::JoinRequest request;
  request.set_job_text(std::string(5 << 20, 'x'));
  grpc::ClientContext context;
  v1::JoinReply reply;
  CHECK(served.stub->Join(&context, request, &reply).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
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

// The second term of a run, which went on from 5 changes.
struct SecondTerm {
  SecondTerm() : coordinator(&live), standbys(&live) {
    v1::CoordinatorWord word;
    word.set_run(9);
    word.set_term(2);
    word.set_changes(5);
    word.set_server_key(kServerKey);
    REQUIRE(live.Install(Coordinator::Create(Facts(), SteadyNow()).value(), word, nullptr).ok());
    grpc = GrpcServer::Start({"127.0.0.1:0", {&coordinator, &standbys}}).value();
  }
  ~SecondTerm() { grpc->Shutdown(absl::ZeroDuration()); }

  // What is answered first, and how the call ends: it is left open where it is not refused.
  std::string RefusalOf(const v1::ServerHello& hello) {
    grpc::ClientContext context;
    const auto call = v1::Coordinator::NewStub(OpenChannel(grpc->address()))->Attach(&context);
    v1::ShardMessage first;
    *first.mutable_hello() = hello;
    call->Write(first);
    v1::PlanMessage answer;
    call->Read(&answer);
    context.TryCancel();
    call->Finish();
    return answer.refuse();
  }

  static constexpr uint64_t kServerKey = 77;
  LiveCoordinator live{absl::Seconds(100)};
  CoordinatorService coordinator;
  StandbyControlService standbys;
  std::unique_ptr<GrpcServer> grpc;
};

TEST_CASE("whoever knows what a worker is told cannot say that the state was lost",
          "[control][rpc][strangers]") {
  SecondTerm served;
  const auto goes_on = [&] {
    return served.live.is_here() && served.live.outcome().ok() &&
           served.live.Status().state() == "waiting";
  };
  v1::ServerHello hello;
  hello.set_changes(1);
  CHECK(served.RefusalOf(hello).find("job digest is \"\", want \"d1\"") != std::string::npos);
  CHECK(goes_on());
  // A member is told the run and the term.
  v1::JoinReply joined;
  {
    v1::JoinRequest request;
    request.set_protocol(kControlProtocol);
    request.set_job_digest("d1");
    request.set_rows(100);
    grpc::ClientContext context;
    const auto stub = v1::Coordinator::NewStub(OpenChannel(served.grpc->address()));
    REQUIRE(stub->Join(&context, request, &joined).ok());
  }
  CHECK(joined.word().run() == 9);
  CHECK(joined.word().server_key() == 0);
  hello.set_job_digest("d1");
  hello.set_layout_hash(77);
  hello.set_life(4711);
  hello.set_run(joined.word().run());
  hello.set_term(joined.word().term() - 1);
  hello.set_changes(100);
  CHECK(served.RefusalOf(hello).find("without the server_key of the run") != std::string::npos);
  CHECK(goes_on());
  // Nothing was told of the job's servers, of which this one has become none.
  hello.set_changes(0);
  CHECK(served.RefusalOf(hello).empty());
}

TEST_CASE("a host's hello ends no job that keeps no standbys", "[control][rpc][strangers]") {
  SecondTerm served;
  grpc::ClientContext context;
  const auto call =
      v1::StandbyControl::NewStub(OpenChannel(served.grpc->address()))->Attach(&context);
  v1::HostMessage first;
  first.mutable_hello()->set_changes(1);
  call->Write(first);
  v1::HostOrder answer;
  REQUIRE(call->Read(&answer));
  CHECK(answer.refuse() ==
        "the job keeps no standbys (cluster.replicas: 0); start all with the same job file");
  call->Finish();
  CHECK(served.live.outcome().ok());
  CHECK(served.live.Status().state() == "waiting");
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
