// The control plane of any job under any sequence of messages and delays, between servers that answer
// as they should, or not at all, or anything.
//
//   input = job(1) (event(1) choices)*
// A message is made of the input's bytes, and some of its fields are then put right by choice.
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/stubs/logging.h>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/rpc/control_protocol.h"
#include "server/control/coordinator.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_job.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  // Nothing at all: errors of one input are no news.
  tessera::SetLogLevel(static_cast<tessera::LogLevel>(4));
  return 0;
}

namespace tessera {
namespace {

class Events {
 public:
  Events(const FuzzJob& job, FuzzInput* input)
      : job_(job), in_(*input), coordinator_(Coordinator::Create(job.facts, now_).value()) {}

  void Run() {
    if (in_.Bit()) Begin();
    for (int events = 0; !in_.ended() && events < 300; ++events) {
      One();
      Collect();
    }
    // Whatever it was, the job can still be asked about and be ended.
    CheckStatus();
    coordinator_->Stop("the input is over", now_);
    Collect();
    for (int leases = 0; leases < 4 && !coordinator_->ended(); ++leases) {
      now_ += absl::Seconds(11);
      coordinator_->Tick(now_);
      Collect();
    }
    TESSERA_CHECK(coordinator_->ended());
    CheckStatus();
  }

 private:
  struct Server {
    v1::ServerHello hello;
    bool attached = false;
    std::deque<v1::PlanMessage> inbox;
  };

  template <typename Message>
  Message Raw() {
    Message message;
    const absl::string_view piece = in_.Piece();
    // What does not parse never reaches a handler.
    if (!message.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) message.Clear();
    return message;
  }
  uint64_t Member() { return in_.Below(6); }
  void PutRight(v1::Progress* progress) {
    const uint8_t how = in_.Byte();
    if ((how & 1) != 0) progress->set_step(steps_ += how >> 5);
    if ((how & 2) != 0) progress->set_exchange(steps_);
  }

  // All servers attached, both workers admitted.
  void Begin() {
    for (int rank = 0; rank < job_.facts.servers; ++rank) Attach(rank, true);
    Join(true);
    Join(true);
    for (int i = 0; i < 8; ++i) {
      for (auto& [rank, server] : servers_) StepServer(rank, &server);
    }
  }

  void Attach(uint64_t rank, bool right) {
    v1::ServerHello hello;
    if (!right) hello = Raw<v1::ServerHello>();
    if (right || in_.Bit()) {
      hello.set_rank(static_cast<uint32_t>(rank));
      hello.set_job_digest(job_.facts.digest);
      hello.set_layout_hash(job_.facts.layout_hash);
      hello.set_address("127.0.0.1:1");
      hello.set_life(100 + rank);
    }
    if (!coordinator_->Attach(hello, now_).ok()) return;
    Server& server = servers_[hello.rank()];
    server.hello = hello;
    server.attached = true;
  }

  void Join(bool right) {
    v1::JoinRequest request;
    if (!right) request = Raw<v1::JoinRequest>();
    if (right || in_.Bit()) {
      request.set_job_digest(job_.facts.digest);
      request.set_layout_hash(job_.facts.layout_hash);
      request.set_protocol(kControlProtocol);
      request.set_rows(100);
    }
    const auto reply = coordinator_->Join(request, now_);
    if (reply.ok()) TESSERA_CHECK(reply->member() != 0);
  }

  // As a server should answer the oldest message that it has.
  void StepServer(uint64_t rank, Server* server) {
    Collect();
    if (!server->attached || server->inbox.empty()) return;
    const v1::PlanMessage message = server->inbox.front();
    server->inbox.pop_front();
    v1::ShardMessage answer;
    if (message.has_restore()) {
      answer.mutable_restored()->set_generation(message.restore().generation());
    }
    if (message.has_plan()) answer.mutable_applied()->set_generation(message.plan().generation());
    if (message.has_propose()) {
      answer.mutable_proposal_reply()->set_proposal(message.propose().proposal());
      answer.mutable_proposal_reply()->set_first_exchange(
          message.propose().member().first_exchange());
    }
    if (message.has_checkpoint()) {
      v1::CheckpointPart& part = *answer.mutable_part();
      part.set_number(message.checkpoint().mark().number());
      part.mutable_file()->set_name(
          ShardFileName(static_cast<int64_t>(rank), job_.facts.servers));
    }
    if (message.drain()) answer.mutable_counters()->set_closing(true);
    coordinator_->OnShardMessage(ShardId(rank), answer, now_);
  }

  void CheckStatus() {
    const v1::JobStatus status = coordinator_->Status(now_);
    // Every `string` is text, or it could not be sent.
    v1::JobStatus again;
    TESSERA_CHECK(again.ParseFromString(status.SerializeAsString()));
  }

  void Collect() {
    for (Outgoing& out : coordinator_->TakeOutbox()) {
      const auto server = servers_.find(out.server.value());
      if (server != servers_.end() && server->second.attached) {
        server->second.inbox.push_back(std::move(out.message));
      }
    }
    for (DiskTask& task : coordinator_->TakeDiskTasks()) tasks_.push_back(std::move(task));
    for (Coordinator::EvaluateAnswer& answer : coordinator_->TakeReplies()) {
      if (answer.reply.ok()) last_reply_ = *std::move(answer.reply);
    }
  }

  void Evaluate() {
    v1::EvaluateRequest request = Raw<v1::EvaluateRequest>();
    if (in_.Bit()) {
      request.set_member(Member());
      request.set_evaluation(last_reply_.evaluation());
      request.set_attempt(last_reply_.attempt());
      request.set_stage(static_cast<v1::EvaluateStage>(in_.Below(3)));
      PutRight(request.mutable_progress());
    }
    (void)coordinator_->Evaluate(request, now_);
  }

  void One() {
    switch (in_.Below(18)) {
      case 0:
        return Attach(in_.Below(3), in_.Bit());
      case 1: {
        const uint64_t rank = in_.Below(3);
        const auto server = servers_.find(rank);
        if (server == servers_.end() || !server->second.attached) return;
        server->second.attached = false;
        server->second.inbox.clear();
        return coordinator_->Detach(ShardId(rank), server->second.hello.life(), now_);
      }
      case 2: {
        const uint64_t rank = in_.Below(3);
        const v1::ShardMessage message = Raw<v1::ShardMessage>();
        const auto server = servers_.find(rank);
        // LiveCoordinator passes on those of attached servers alone.
        if (server == servers_.end() || !server->second.attached) return;
        return coordinator_->OnShardMessage(ShardId(rank), message, now_);
      }
      case 3: case 4:
        for (auto& [rank, server] : servers_) StepServer(rank, &server);
        return;
      case 5:
        return Join(in_.Bit());
      case 6: {
        v1::RenewRequest request = Raw<v1::RenewRequest>();
        if (in_.Bit()) {
          request.set_member(Member());
          PutRight(request.mutable_progress());
        }
        (void)coordinator_->Renew(request, now_);
        return;
      }
      case 7:
        (void)coordinator_->BeginTraining(MemberId(Member()), now_);
        return;
      case 8: {
        v1::BeginEpochRequest request = Raw<v1::BeginEpochRequest>();
        if (in_.Bit()) request.set_member(Member());
        const auto cut = coordinator_->BeginEpoch(request, now_);
        // One that has none reads an order of its own.
        if (cut.ok()) TESSERA_CHECK(cut->part() <= cut->parts());
        return;
      }
      case 9: case 10:
        return Evaluate();
      case 11: {
        v1::LeaveRequest request = Raw<v1::LeaveRequest>();
        if (in_.Bit()) request.set_member(Member());
        (void)coordinator_->Leave(request, now_);
        return;
      }
      case 12: {
        v1::SavedRequest request = Raw<v1::SavedRequest>();
        if (in_.Bit()) {
          request.set_member(Member());
          request.set_number(in_.Below(4));
          request.mutable_file()->set_name(WorkerFileName(request.member() - 1));
        }
        (void)coordinator_->Saved(request, now_);
        return;
      }
      case 13:
        (void)coordinator_->Checkpoint(in_.Piece(), now_);
        return;
      case 14: {
        if (tasks_.empty()) return;
        const DiskTask task = std::move(tasks_.front());
        tasks_.pop_front();
        // Of what is committed a manifest is written, and read when the job goes on.
        if (task.kind == DiskTask::Kind::kCommit) {
          const auto read = ParseManifest("m", FormatManifest(task.manifest));
          TESSERA_CHECK(read.ok());
        }
        if (task.kind == DiskTask::Kind::kAbandon) return;
        return coordinator_->OnDisk(
            task, in_.Bit() ? absl::OkStatus() : absl::ResourceExhaustedError("full"), now_);
      }
      case 15:
        now_ += absl::Milliseconds(in_.Byte() * 50);
        return coordinator_->Tick(now_);
      case 16:
        return CheckStatus();
      case 17:
        if (in_.Byte() < 250) return;
        if (in_.Bit()) return coordinator_->Drain(in_.Piece(), now_);
        return coordinator_->Stop("so the input wants", now_);
    }
  }

  const FuzzJob& job_;
  FuzzInput& in_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<Coordinator> coordinator_;
  std::map<uint64_t, Server> servers_;
  std::deque<DiskTask> tasks_;
  v1::EvaluateReply last_reply_;
  uint64_t steps_ = 0;
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const std::vector<FuzzJob>& jobs = FuzzJobs();
  Events(jobs[input.Below(jobs.size())], &input).Run();
  return 0;
}
