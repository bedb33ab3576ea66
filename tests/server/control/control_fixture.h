// A small language for tests of the control plane: a coordinator, servers that answer when told, a
// clock.
#ifndef TESSERA_TESTS_SERVER_CONTROL_CONTROL_FIXTURE_H_
#define TESSERA_TESTS_SERVER_CONTROL_CONTROL_FIXTURE_H_

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/rpc/control_protocol.h"
#include "server/control/coordinator.h"
#include "server/shard/checkpoint_mark.h"

namespace tessera {

// A server as the coordinator sees it: it applies plans and promises exchanges.
struct FakeServer {
  v1::ServerHello hello;
  std::deque<v1::PlanMessage> inbox;
  v1::Plan plan;
  // The exchange being collected: an earlier proposal is answered with a later exchange.
  uint64_t collecting = 1;
  std::set<uint64_t> held;
  // What it counted of a member's pushes.
  std::map<uint64_t, uint64_t> counted;
  v1::PlanApplied applied;
  bool drained = false;
  // The last ones that it was given.
  v1::CheckpointOrder order;
  v1::RestoreOrder restore;
};

class ControlFixture {
 public:
  explicit ControlFixture(JobFacts facts) : now(absl::FromUnixSeconds(1000)) {
    facts.digest = "d1";
    facts.layout_hash = 77;
    facts_ = facts;
    coordinator = std::move(Coordinator::Create(facts, now)).value();
    kept_ = coordinator->Save();
    servers.resize(facts.servers);
    for (int i = 0; i < facts.servers; ++i) {
      v1::ServerHello& hello = servers[i].hello;
      hello.set_rank(i);
      hello.set_job_digest("d1");
      hello.set_layout_hash(77);
      hello.set_life(100 + i);
      hello.set_address("server:" + std::to_string(7000 + i));
    }
  }

  static JobFacts Facts(int servers, int workers) {
    JobFacts facts;
    facts.servers = servers;
    facts.workers = workers;
    facts.epochs = 2;
    facts.batch_size = 10;
    return facts;
  }

  absl::Status Attach(int server) {
    absl::Status status = coordinator->Attach(servers[server].hello, now);
    Collect();
    return status;
  }

  absl::StatusOr<v1::JoinReply> Join(uint64_t member = 0, int rank = -1, uint64_t continues = 0) {
    v1::JoinRequest request = Wish(rank);
    request.set_member(member);
    request.set_continues(continues);
    return Join(request);
  }

  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request) {
    auto reply = coordinator->Join(request, now);
    Collect();
    return reply;
  }

  // The first request of a worker.
  static v1::JoinRequest Wish(int rank) {
    v1::JoinRequest request;
    request.set_job_digest("d1");
    request.set_layout_hash(77);
    request.set_protocol(kControlProtocol);
    request.set_rows(100);
    if (rank >= 0) request.set_rank(rank);
    return request;
  }

  absl::StatusOr<v1::RenewReply> Renew(uint64_t member, uint64_t exchange = 0, uint64_t step = 0,
                                       uint64_t drain_seen = 0) {
    v1::RenewRequest request;
    request.set_member(member);
    request.mutable_progress()->set_exchange(exchange);
    request.mutable_progress()->set_step(step);
    request.set_drain_seen(drain_seen);
    return Renew(request);
  }

  absl::StatusOr<v1::RenewReply> Renew(const v1::RenewRequest& request) {
    auto reply = coordinator->Renew(request, now);
    Collect();
    return reply;
  }

  absl::Status Leave(uint64_t member, const std::string& error = "") {
    v1::LeaveRequest request;
    request.set_member(member);
    request.set_error(error);
    return Leave(request);
  }

  absl::Status Leave(const v1::LeaveRequest& request) {
    absl::Status status = coordinator->Leave(request, now);
    Collect();
    return status;
  }

  absl::Status Evaluate(uint64_t member, v1::EvaluateStage stage, uint64_t step,
                        uint64_t attempt = 0, uint64_t evaluation = 0, uint64_t correct = 5) {
    v1::EvaluateRequest request;
    request.set_member(member);
    request.set_stage(stage);
    request.set_attempt(attempt);
    request.set_evaluation(evaluation);
    request.mutable_progress()->set_step(step);
    request.mutable_progress()->set_exchange(step);
    request.mutable_progress()->set_epoch(epoch);
    request.set_loss_sum(2 * member);
    request.set_loss_count(4);
    request.set_constants("from " + std::to_string(member));
    request.mutable_scores()->set_correct(correct);
    request.mutable_scores()->set_rows(10);
    request.mutable_scores()->set_loss_sum(member);
    return Evaluate(request);
  }

  absl::Status Evaluate(const v1::EvaluateRequest& request) {
    absl::Status status = coordinator->Evaluate(request, now);
    Collect();
    return status;
  }

  // The oldest answer for this member, and forgets it.
  std::optional<absl::StatusOr<v1::EvaluateReply>> Answer(uint64_t member) {
    for (auto it = answers.begin(); it != answers.end(); ++it) {
      if (it->member != MemberId(member)) continue;
      auto reply = std::move(it->reply);
      answers.erase(it);
      return reply;
    }
    return std::nullopt;
  }

  void Tick(absl::Duration later) {
    now += later;
    coordinator->Tick(now);
    Collect();
  }

  // All servers say that they live.
  void Heartbeat() {
    for (size_t i = 0; i < servers.size(); ++i) {
      v1::ShardMessage message;
      message.mutable_counters()->set_exchange_committed(servers[i].collecting - 1);
      coordinator->OnShardMessage(ShardId(i), message, now);
    }
    Collect();
  }

  // Server `i` handles its oldest message and answers; false: it had none.
  bool Step(int i) {
    FakeServer& server = servers[i];
    if (server.inbox.empty()) return false;
    const v1::PlanMessage message = server.inbox.front();
    server.inbox.pop_front();
    if (message.has_restore()) {
      server.restore = message.restore();
      server.plan.Clear();
      server.applied.Clear();
      v1::ShardMessage answer;
      answer.mutable_restored()->set_generation(message.restore().generation());
      Answer(i, answer);
    }
    if (message.has_checkpoint()) server.order = message.checkpoint();
    if (message.has_plan()) {
      for (const v1::Member& old : server.plan.members()) {
        bool stays = false;
        for (const v1::Member& m : message.plan().members()) stays |= m.member() == old.member();
        if (stays) continue;
        auto* removed = server.applied.add_removed();
        removed->set_member(old.member());
        removed->set_last_exchange(server.counted[old.member()]);
      }
      server.plan = message.plan();
      server.applied.set_generation(message.plan().generation());
      v1::ShardMessage answer;
      *answer.mutable_applied() = server.applied;
      Answer(i, answer);
    }
    if (message.has_propose()) {
      uint64_t first = message.propose().member().first_exchange();
      if (first <= server.collecting) {
        first = server.collecting + 2;
      } else {
        server.held.insert(message.propose().proposal());
      }
      v1::ShardMessage answer;
      answer.mutable_proposal_reply()->set_proposal(message.propose().proposal());
      answer.mutable_proposal_reply()->set_first_exchange(first);
      Answer(i, answer);
    }
    server.held.erase(server.held.begin(), server.held.upper_bound(message.withdraw()));
    if (message.drain()) {
      server.drained = true;
      v1::ShardMessage answer;
      answer.mutable_counters()->set_closing(true);
      answer.mutable_counters()->set_parameters_hash(i + 1);
      Answer(i, answer);
    }
    return true;
  }

  void StepAll() {
    bool any = true;
    while (any) {
      any = false;
      for (size_t i = 0; i < servers.size(); ++i) any |= Step(i);
    }
  }

  // Server `i` has written its part of the checkpoint that it was told of last, or could not.
  void Part(int i, const std::string& error = "") {
    v1::ShardMessage message;
    v1::CheckpointPart& part = *message.mutable_part();
    part.set_number(servers[i].order.mark().number());
    part.set_error(error);
    part.mutable_file()->set_name("../elsewhere");
    // That of a copy at once is no number of exchanges.
    const uint64_t after = servers[i].order.after_exchange();
    part.set_version(Exchange(after) == kCopyAtOnce ? 0 : after);
    Answer(i, message);
  }
  // A worker has written its file.
  absl::Status Saved(uint64_t member, uint64_t number, uint64_t exchange, uint64_t step) {
    v1::SavedRequest request;
    request.set_member(member);
    request.set_number(number);
    request.mutable_file()->set_name("../elsewhere");
    request.mutable_progress()->set_exchange(exchange);
    request.mutable_progress()->set_step(step);
    return Saved(request);
  }

  absl::Status Saved(const v1::SavedRequest& request) {
    const absl::Status status = coordinator->Saved(request, now).status();
    Collect();
    return status;
  }
  // The disk does the oldest thing that is wanted of it, and forgets it.
  DiskTask Disk(const absl::Status& status = absl::OkStatus()) {
    DiskTask task = tasks.front();
    tasks.pop_front();
    if (task.is_awaited()) coordinator->OnDisk(task, status, now);
    Collect();
    return task;
  }

  // All attached, `workers` joined and admitted as members 1, 2, ...
  void Start(int workers) {
    for (size_t i = 0; i < servers.size(); ++i) (void)Attach(i);
    for (int i = 0; i < workers; ++i) (void)Join();
    StepAll();
  }

  // The coordinator's process is killed, and another one goes on from what was kept. All connections and
  // calls have broken.
  void Restart() {
    coordinator = std::move(Coordinator::Load(facts_, kept_)).value();
    for (FakeServer& server : servers) server.inbox.clear();
    answers.clear();
    tasks.clear();
    coordinator->Reconnect(now);
    kept_changes_ = 0;
    Collect();
  }

  MemberState StateOf(uint64_t member) const {
    return coordinator->membership().members().Find(MemberId(member))->state;
  }

  absl::Time now;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<FakeServer> servers;
  std::vector<Coordinator::EvaluateAnswer> answers;
  uint64_t epoch = 0;  // which members say that they have come to, when they evaluate
  std::deque<DiskTask> tasks;
  std::vector<uint64_t> pruned;  // steps of kPrune, which are in no other list
  // After every event the coordinator is saved, and the one that is loaded goes on. By the environment, so that the
  // same program is run both ways (reloaded_tests.bzl).
  bool reload = std::getenv("TESSERA_RELOAD") != nullptr;

 private:
  void Answer(int server, const v1::ShardMessage& message) {
    coordinator->OnShardMessage(ShardId(server), message, now);
    Collect();
  }

  void Collect() {
    // What waits for a state to be kept waits for so many changes.
    if (!reload) TESSERA_CHECK(coordinator->changes() >= kept_changes_);
    if (coordinator->changes() != kept_changes_) {
      kept_changes_ = coordinator->changes();
      kept_ = coordinator->Save();
    }
    Send();
    if (!reload) return;
    const v1::CoordinatorState state = coordinator->Save();
    // A case may look at its records while it makes the next events.
    replaced_.push_back(std::move(coordinator));
    if (replaced_.size() > 16) replaced_.pop_front();
    coordinator = std::move(Coordinator::Load(facts_, state)).value();
  }

  void Send() {
    for (Outgoing& out : coordinator->TakeOutbox()) {
      if (coordinator->membership().servers().at(out.server).attached) {
        servers[out.server.value()].inbox.push_back(out.message);
      }
    }
    for (DiskTask& task : coordinator->TakeDiskTasks()) {
      if (task.kind == DiskTask::Kind::kPrune) {
        pruned.push_back(task.manifest.step);
      } else {
        tasks.push_back(std::move(task));
      }
    }
    for (auto& answer : coordinator->TakeReplies()) answers.push_back(std::move(answer));
  }

  JobFacts facts_;
  v1::CoordinatorState kept_;
  std::deque<std::unique_ptr<Coordinator>> replaced_;
  uint64_t kept_changes_ = 0;
};

inline std::string Words(const google::protobuf::RepeatedPtrField<std::string>& words) {
  return absl::StrJoin(words, ", ");
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_CONTROL_CONTROL_FIXTURE_H_
