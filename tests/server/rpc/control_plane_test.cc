// The control plane over real connections: one coordinator, servers and workers in this process.
#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/consistency/barrier.h"
#include "common/rpc/grpc_server.h"
#include "common/rule/add.h"
#include "server/rpc/attach_link.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/status_service.h"
#include "tests/server/rpc/tiny_shape.h"
#include "worker/rpc/coordinator_client.h"

namespace tessera {
namespace {

// Keeps the last state, whoever wrote it.
class MemoryStore final : public StateStore {
 public:
  absl::Status Write(const v1::CoordinatorState& state) override {
    kept = state;
    return absl::OkStatus();
  }
  bool IsHeld(absl::Time now) const override { return true; }
  std::string Describe() const override { return "memory"; }
  v1::CoordinatorState kept;
};

// Jobs that wait for a lease to end have this one. Whoever is to keep it may stand still for half of it, as threads
// do on a busy machine.
constexpr absl::Duration kShortLease = absl::Seconds(4);

struct ServerProcess {
  std::atomic<int> away{0};  // times that the coordinator was
  std::atomic<int> back{0};
  std::unique_ptr<ShardThread> shard;
  std::promise<absl::Status> end;
  std::unique_ptr<AttachLink> link;
};

class Job {
 public:
  explicit Job(int servers, int workers, absl::Duration lease = absl::Seconds(10),
               bool is_kept = false)
      : lease_(lease), servers_(servers) {
    SetLogLevel(LogLevel::kError);
    JobFacts& facts = facts_;
    facts.name = "tiny";
    facts.digest = "d1";
    facts.layout_hash = LayoutHash(TinyShape(), servers);
    facts.servers = servers;
    facts.workers = workers;
    facts.lease_timeout = lease;
    facts.epochs = 2;
    facts.batch_size = 10;
    if (is_kept) {
      live_ = std::make_unique<LiveCoordinator>(lease);
      Install(*Coordinator::Create(facts, SteadyNow()), 1);
    } else {
      live_ = std::move(LiveCoordinator::Create(facts)).value();
    }
    Serve();
  }
  ~Job() {
    for (ServerProcess& server : processes_) server.link.reset();
  }

  void Install(std::unique_ptr<Coordinator> coordinator, uint64_t term) {
    v1::CoordinatorWord word;
    word.set_run(7);
    word.set_term(term);
    word.set_changes(store_.kept.changes());
    word.set_away_timeout_ns(absl::ToInt64Nanoseconds(kPatience));
    REQUIRE(live_->Install(std::move(coordinator), word, &store_).ok());
  }

  // The coordinator's process dies.
  void Die() {
    grpc_->Shutdown(absl::ZeroDuration());
    grpc_.reset();
    status_.reset();
    admin_.reset();
    service_.reset();
    live_.reset();
  }
  // Another one goes on from what it has kept.
  void GoOn(uint64_t term) {
    live_ = std::make_unique<LiveCoordinator>(lease_);
    std::unique_ptr<Coordinator> coordinator = *Coordinator::Load(facts_, store_.kept);
    coordinator->Reconnect(SteadyNow());
    Install(std::move(coordinator), term);
    Serve();
  }

  void Serve() {
    service_ = std::make_unique<CoordinatorService>(live_.get());
    status_ = std::make_unique<StatusService>([this] { return live_->Status(); });
    admin_ = std::make_unique<AdminService>(live_.get());
    Serve(address_.empty() ? "127.0.0.1:0" : address_);
  }

  void Serve(const std::string& address) {
    auto started = GrpcServer::Start({address, {service_.get(), status_.get(), admin_.get()}});
    REQUIRE(started.ok());
    grpc_ = *std::move(started);
    address_ = grpc_->address();
  }

  ServerProcess& Attach(int rank, const std::string& digest = "d1") {
    processes_.emplace_back();
    ServerProcess& process = processes_.back();
    Shard::Options shard;
    shard.shape = TinyShape();
    shard.shard = ShardId(rank);
    shard.sharding = servers_;
    shard.policy = MakeBarrier();
    shard.rule = MakeAdd();
    process.shard = std::make_unique<ShardThread>(std::make_unique<Shard>(std::move(shard)));
    AttachLink::Options options;
    options.coordinator = address_;
    options.rank = rank;
    options.job_digest = digest;
    options.address = absl::StrCat("server:", rank);
    options.lease_timeout = lease_;
    options.shard = process.shard.get();
    options.on_away = [&process](bool is_away) { ++(is_away ? process.away : process.back); };
    options.on_end = [&process](absl::Status status) { process.end.set_value(status); };
    process.link = std::make_unique<AttachLink>(std::move(options));
    return process;
  }

  std::unique_ptr<CoordinatorClient> Worker(std::optional<Rank> rank = std::nullopt) {
    CoordinatorClient::Options options;
    options.address = address_;
    options.job_digest = "d1";
    options.layout_hash = LayoutHash(TinyShape(), servers_);
    options.rows = 100;
    options.rank = rank;
    options.description = "test";
    return std::make_unique<CoordinatorClient>(options);
  }

  // Joins all at once, as processes would.
  std::vector<std::unique_ptr<CoordinatorClient>> Admit(int workers) {
    std::vector<std::unique_ptr<CoordinatorClient>> clients;
    std::vector<std::thread> threads;
    std::vector<absl::Status> joined(workers);
    for (int i = 0; i < workers; ++i) clients.push_back(Worker(Rank(i)));
    for (int i = 0; i < workers; ++i) {
      threads.emplace_back([&, i] { joined[i] = clients[i]->Join(nullptr).status(); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : joined) REQUIRE(status.ToString() == "OK");
    return clients;
  }

  const absl::Duration lease_;
  const int servers_;
  JobFacts facts_;
  MemoryStore store_;
  std::unique_ptr<LiveCoordinator> live_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<StatusService> status_;
  std::unique_ptr<AdminService> admin_;
  std::string address_;
  std::unique_ptr<GrpcServer> grpc_;
  std::deque<ServerProcess> processes_;
};

std::future<absl::Status> RenewInBackground(CoordinatorClient* client) {
  auto lost = std::make_shared<std::promise<absl::Status>>();
  client->StartRenewing([lost](absl::Status status) { lost->set_value(status); });
  return lost->get_future();
}

// Everything one worker says in an evaluation.
absl::StatusOr<v1::EvaluateReply> Evaluate(CoordinatorClient* client, uint64_t step, bool last) {
  v1::EvaluateRequest request;
  request.mutable_progress()->set_step(step);
  request.set_last(last);
  request.set_loss_sum(1);
  request.set_loss_count(1);
  request.set_constants("c");
  request.mutable_scores()->set_rows(4);
  request.mutable_scores()->set_correct(3);
  absl::StatusOr<v1::EvaluateReply> reply;
  for (v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    request.set_stage(stage);
    reply = client->Evaluate(request);
    if (!reply.ok()) return reply;
    request.set_attempt(reply->attempt());
  }
  return reply;
}

TEST_CASE("a worker hears for whom the job waits until all are here", "[control][rpc]") {
  Job job(2, 2);
  job.Attach(0);
  REQUIRE(Eventually([&] { return job.live_->Status().servers(0).address() != ""; }));
  auto one = job.Worker(Rank(1));
  std::vector<std::string> words;
  std::promise<void> first;
  auto joins = std::async(std::launch::async, [&] {
    return one->Join([&](absl::string_view waiting) {
      words.emplace_back(waiting);
      if (words.size() == 1) first.set_value();
    });
  });
  first.get_future().wait();
  job.Attach(1);
  auto zero = job.Worker();
  const auto reply = zero->Join(nullptr);
  const auto other = joins.get();
  CHECK(words[0] == "server 1, worker 0");
  REQUIRE(other.ok());
  CHECK(other->servers(1) == "server:1");
  REQUIRE(reply.ok());
  CHECK(reply->rank() == 0);
  CHECK(reply->generation() == 1);
}

// A worker's life after it was admitted. Returns the last evaluation's result. (Catch2's checks are
// for one thread, so errors come back as they are.)
absl::StatusOr<v1::EvaluateReply> Live(CoordinatorClient* client) {
  RenewInBackground(client);
  TESSERA_RETURN_IF_ERROR(client->BeginTraining());
  TESSERA_ASSIGN_OR_RETURN(const v1::EpochCut cut, client->BeginEpoch(0, Step(0)));
  if (cut.steps() != 5 || cut.part() != client->rank().value()) {
    return absl::InternalError(cut.DebugString());
  }
  TESSERA_ASSIGN_OR_RETURN(const v1::EvaluateReply half, Evaluate(client, 5, false));
  if (half.stop()) return absl::InternalError("it stops after the first evaluation");
  TESSERA_ASSIGN_OR_RETURN(v1::EvaluateReply end, Evaluate(client, 10, true));
  v1::WorkerReport report;
  report.set_steps(10);
  report.set_examples(100);
  TESSERA_RETURN_IF_ERROR(client->Leave(report, ""));
  return end;
}

TEST_CASE("a whole job: train, evaluate, leave, and every server ends well", "[control][rpc]") {
  Job job(2, 2);
  ServerProcess& zero = job.Attach(0);
  ServerProcess& one = job.Attach(1);
  auto clients = job.Admit(2);
  auto other = std::async(std::launch::async, [&] { return Live(clients[1].get()); });
  for (const auto& end : {Live(clients[0].get()), other.get()}) {
    REQUIRE(end.status().ToString() == "OK");
    CHECK(end->stop());
    CHECK(end->evaluation() == 2);
    CHECK(end->test_accuracy() == 0.75);
  }
  REQUIRE(job.live_->AwaitEnd(SteadyNow() + kPatience));
  CHECK(job.live_->outcome().ok());
  CHECK(zero.end.get_future().get().ok());
  CHECK(one.end.get_future().get().ok());
  const v1::JobStatus status = job.live_->Status();
  CHECK(status.history_size() == 2);
  CHECK(status.members_lost() == 0);
  CHECK(status.servers(0).counters().parameters_hash() != 0);
  CHECK(status.servers(1).counters().peak_rss_bytes() > 0);
  CHECK(status.report_json().find("\"examples\": 200") != std::string::npos);
}

TEST_CASE("a worker whose lease expires is removed from the plan and told so", "[control][rpc]") {
  Job job(1, 2, kShortLease);
  ServerProcess& server = job.Attach(0);
  auto clients = job.Admit(2);
  auto lost = RenewInBackground(clients[0].get());
  REQUIRE(Eventually([&] { return job.live_->Status().members_lost() == 1; }));
  REQUIRE(Eventually([&] { return server.link->OwnStatus().generation() == 2; }));
  const absl::Status told = clients[1]->BeginTraining();
  CHECK(absl::IsFailedPrecondition(told));
  CHECK(std::string(told.message()).find("before its lease of 4s was ended") != std::string::npos);
  // The other one goes on, and evaluates alone.
  CHECK(Evaluate(clients[0].get(), 5, false).ok());
}

TEST_CASE("a worker may join while others train", "[control][rpc]") {
  Job job(2, 1);
  job.Attach(0);
  job.Attach(1);
  auto clients = job.Admit(1);
  auto late = job.Worker();
  const auto reply = late->Join(nullptr);
  REQUIRE(reply.ok());
  CHECK(reply->rank() == 1);
  CHECK(reply->first_exchange() == 2);
  CHECK(reply->generation() == 2);
}

TEST_CASE("a server whose shard hangs is lost, although its connection lives", "[control][rpc]") {
  Job job(2, 1, kShortLease);
  job.Attach(0);
  ServerProcess& one = job.Attach(1);
  auto clients = job.Admit(1);
  auto lost = RenewInBackground(clients[0].get());
  std::promise<void> over;
  std::shared_future<void> hangs = over.get_future().share();
  one.shard->Inspect(/*with_hash=*/false, [hangs](const ShardThread::View&) { hangs.wait(); });
  const bool is_told = lost.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  over.set_value();
  REQUIRE(is_told);
  CHECK(std::string(lost.get().message()).find("server 1 is gone") != std::string::npos);
}

TEST_CASE("a lost server ends the job and the workers hear its name", "[control][rpc]") {
  Job job(2, 1, kShortLease);
  ServerProcess& zero = job.Attach(0);
  ServerProcess& one = job.Attach(1);
  auto clients = job.Admit(1);
  auto lost = RenewInBackground(clients[0].get());
  one.link.reset();
  REQUIRE(lost.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(std::string(lost.get().message()).find("server 1 is gone") != std::string::npos);
  REQUIRE(job.live_->AwaitEnd(SteadyNow() + kPatience));
  CHECK(!job.live_->outcome().ok());
  // The server that is left is told why, so that its process ends with an error too.
  const absl::Status end = zero.end.get_future().get();
  CHECK(std::string(end.message()).find("server 1 is gone") != std::string::npos);
}

TEST_CASE("a coordinator that comes back within the lease changes nothing", "[control][rpc]") {
  Job job(1, 1);
  ServerProcess& server = job.Attach(0);
  auto clients = job.Admit(1);
  auto lost = RenewInBackground(clients[0].get());
  job.grpc_->Shutdown(absl::ZeroDuration());
  job.grpc_.reset();
  job.Serve(job.address_);
  CHECK(clients[0]->BeginTraining().ok());
  auto late = job.Worker();
  REQUIRE(late->Join(nullptr).ok());  // The server hears and answers again.
  CHECK(server.link->OwnStatus().generation() == 2);
  CHECK(lost.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("servers and workers end when the coordinator is lost for a lease", "[control][rpc]") {
  Job job(1, 1, kShortLease);
  ServerProcess& server = job.Attach(0);
  auto clients = job.Admit(1);
  auto lost = RenewInBackground(clients[0].get());
  REQUIRE(
      Eventually([&] { return server.link->OwnStatus().servers(0).counters().rss_bytes() > 0; }));
  job.grpc_->Shutdown(absl::ZeroDuration());
  const absl::Status ended = server.end.get_future().get();
  CHECK(absl::IsUnavailable(ended));
  CHECK(std::string(ended.message()).find("is lost: not heard for the lease of 4s") !=
        std::string::npos);
  CHECK(absl::IsUnavailable(lost.get()));
}

TEST_CASE("a coordinator that goes on from its state finds its servers and workers",
          "[control][rpc]") {
  Job job(1, 1, kShortLease, /*is_kept=*/true);
  ServerProcess& server = job.Attach(0);
  auto clients = job.Admit(1);
  std::atomic<int> away{0}, back{0};
  auto lost = std::make_shared<std::promise<absl::Status>>();
  clients[0]->StartRenewing([lost](absl::Status status) { lost->set_value(status); }, nullptr,
                            [&](bool is_away) { ++(is_away ? away : back); });
  REQUIRE(clients[0]->BeginTraining().ok());
  // Both notice, and neither ends.
  job.Die();
  CHECK(Eventually([&] { return server.away == 1 && away == 1; }));
  CHECK(server.link->OwnStatus().coordinator().is_away());
  CHECK(server.link->OwnStatus().state() == "waiting");
  job.GoOn(2);
  CHECK(Eventually([&] { return server.back == 1 && back == 1; }));
  CHECK(server.link->OwnStatus().coordinator().term() == 2);
  // A call that failed meanwhile is made again; nobody was lost.
  CHECK(Evaluate(clients[0].get(), 1, true).ok());
  CHECK(job.live_->Status().members_lost() == 0);
  CHECK(lost->get_future().wait_for(std::chrono::seconds(0)) == std::future_status::timeout);

  // One of an earlier term is not believed, however it came to speak.
  job.Die();
  job.GoOn(1);
  CHECK(Eventually([&] { return server.away == 2; }));
  CHECK(server.link->OwnStatus().coordinator().term() == 2);
  job.Die();
  job.GoOn(3);
  CHECK(Eventually([&] { return server.back == 2; }));
}

TEST_CASE("a server of another job is refused and told why", "[control][rpc]") {
  Job job(1, 1);
  const absl::Status ended = job.Attach(0, "d2").end.get_future().get();
  CHECK(absl::IsFailedPrecondition(ended));
  CHECK(std::string(ended.message()).find("job digest is \"d2\", want \"d1\"") !=
        std::string::npos);
}

TEST_CASE("a cancelled worker leaves whatever it waits for", "[control][rpc]") {
  Job job(1, 2);
  auto waiting = job.Worker();
  std::promise<void> waits;
  auto joins = std::async(std::launch::async, [&] {
    return waiting->Join([&](absl::string_view) { waits.set_value(); }).status();
  });
  waits.get_future().wait();
  waiting->Cancel();
  CHECK(absl::IsCancelled(joins.get()));

  job.Attach(0);
  v1::LeaveRequest leave;
  leave.set_member(1);
  REQUIRE(job.live_->Run([&](Coordinator& c, absl::Time now) { return c.Leave(leave, now); }).ok());
  auto clients = job.Admit(2);
  auto evaluates =
      std::async(std::launch::async, [&] { return Evaluate(clients[0].get(), 5, false).status(); });
  REQUIRE(Eventually([&] { return job.live_->Status().step() == 5; }));  // It waits for the other.
  clients[0]->Cancel();
  CHECK(absl::IsCancelled(evaluates.get()));
  CHECK(clients[0]->Leave({}, "interrupted").ok());
  CHECK(job.live_->Status().members_lost() == 1);
}

TEST_CASE("status can be asked once, watched until the end, and the job stopped",
          "[control][rpc]") {
  Job job(1, 1);
  job.Attach(0);
  auto clients = job.Admit(1);
  auto lost = RenewInBackground(clients[0].get());
  auto channel = grpc::CreateChannel(job.address_, grpc::InsecureChannelCredentials());
  auto stub = v1::Status::NewStub(channel);
  grpc::ClientContext get;
  v1::JobStatus status;
  REQUIRE(stub->Get(&get, {}, &status).ok());
  CHECK(status.job() == "tiny");
  CHECK(status.state() == "training");
  CHECK(status.members(0).description() == "test");

  grpc::ClientContext watch;
  v1::StatusRequest request;
  request.set_interval_ns(1);  // Bounded to 100 ms.
  const absl::Time begin = SteadyNow();
  auto reader = stub->Watch(&watch, request);
  // The first is here at once.
  for (int i = 0; i < 6; ++i) REQUIRE(reader->Read(&status));
  CHECK(SteadyNow() - begin > absl::Milliseconds(400));
  grpc::ClientContext stop;
  v1::AdminRequest why;
  why.set_reason("enough");
  v1::AdminReply reply;
  REQUIRE(v1::Admin::NewStub(channel)->Stop(&stop, why, &reply).ok());
  while (reader->Read(&status)) continue;
  CHECK(reader->Finish().ok());
  CHECK(status.state() == "done");
  CHECK(status.failure() == "stopped: enough");
  CHECK(std::string(lost.get().message()).find("stopped: enough") != std::string::npos);
}

}  // namespace
}  // namespace tessera
