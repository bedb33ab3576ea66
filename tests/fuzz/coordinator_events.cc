#include "tests/fuzz/coordinator_events.h"

#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/control_protocol.h"

namespace tessera {

void CoordinatorEvents::PutRight(v1::Progress* progress) {
  const uint8_t how = in_.Byte();
  if ((how & 1) != 0) progress->set_step(steps_ += how >> 5);
  if ((how & 2) != 0) progress->set_exchange(steps_);
}

void CoordinatorEvents::Begin() {
  for (int rank = 0; rank < job_.facts.servers; ++rank) {
    if (has_standbys()) AttachHost(static_cast<uint32_t>(rank), true);
    Attach(rank, true);
  }
  Join(true);
  Join(true);
  for (int i = 0; i < 8; ++i) {
    for (auto& [rank, host] : hosts_) StepHost(rank);
    for (auto& [rank, server] : servers_) StepServer(rank, &server);
  }
}

void CoordinatorEvents::Some(int most) {
  for (int events = 0; !in_.ended() && events < most; ++events) {
    One();
    Collect();
  }
}

void CoordinatorEvents::Run() {
  Some(300);
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

void CoordinatorEvents::Attach(uint64_t rank, bool right) {
  v1::ServerHello hello;
  if (!right) hello = Raw<v1::ServerHello>();
  if (right || in_.Bit()) {
    hello.set_rank(static_cast<uint32_t>(rank));
    hello.set_job_digest(job_.facts.digest);
    hello.set_layout_hash(job_.facts.layout_hash);
    hello.set_address("127.0.0.1:1");
    hello.set_life(100 + rank);
    const auto host = hosts_.find(static_cast<uint32_t>(rank));
    if (host != hosts_.end()) {
      for (const v1::ShardOrder& role : host->second.order.shards()) {
        if (role.role() == v1::LEAD && role.shard() == rank) hello.set_lead_term(role.lead_term());
      }
    }
  }
  if (!coordinator_->Attach(hello, now_).ok()) return;
  Server& server = servers_[hello.rank()];
  server.hello = hello;
  server.attached = true;
}

void CoordinatorEvents::Join(bool right) {
  v1::JoinRequest request;
  if (!right) request = Raw<v1::JoinRequest>();
  if (right || in_.Bit()) {
    request.set_job_digest(job_.facts.digest);
    request.set_layout_hash(job_.facts.layout_hash);
    request.set_protocol(kControlProtocol);
    request.set_rows(100);
    request.set_address("127.0.0.1:1");
  }
  const auto reply = coordinator_->Join(request, now_);
  if (reply.ok()) TESSERA_CHECK(reply->member() != 0);
}

// As a server should answer the oldest message that it has.
void CoordinatorEvents::StepServer(uint64_t rank, Server* server) {
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
    part.mutable_file()->set_name(ShardFileName(static_cast<int64_t>(rank), job_.facts.servers));
  }
  if (message.drain()) answer.mutable_counters()->set_closing(true);
  coordinator_->OnShardMessage(ShardId(rank), answer, now_);
}

void CoordinatorEvents::CheckStatus() {
  const v1::JobStatus status = coordinator_->Status(now_);
  // Every `string` is text, or it could not be sent.
  v1::JobStatus again;
  TESSERA_CHECK(again.ParseFromString(status.SerializeAsString()));
}

void CoordinatorEvents::Collect() {
  for (Outgoing& out : coordinator_->TakeOutbox()) {
    const auto server = servers_.find(out.server.value());
    if (server != servers_.end() && server->second.attached) {
      server->second.inbox.push_back(std::move(out.message));
    }
  }
  for (HostOutgoing& out : coordinator_->TakeHostOutbox()) {
    const auto host = hosts_.find(out.host);
    if (host == hosts_.end() || !host->second.attached) continue;
    if (!out.order.refuse().empty()) host->second.attached = false;
    host->second.order = std::move(out.order);
  }
  for (DiskTask& task : coordinator_->TakeDiskTasks()) tasks_.push_back(std::move(task));
  for (Coordinator::EvaluateAnswer& answer : coordinator_->TakeReplies()) {
    if (answer.reply.ok()) last_reply_ = *std::move(answer.reply);
  }
}

void CoordinatorEvents::Evaluate() {
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

void CoordinatorEvents::One() {
  const uint64_t event = in_.Below(has_standbys() ? 26 : 18);
  if (event >= 18) return OneOfHosts(event);
  switch (event) {
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
    case 3:
    case 4:
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
    case 9:
    case 10:
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
      if (!task.is_awaited()) return;
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

void CoordinatorEvents::AttachHost(uint32_t rank, bool right) {
  v1::HostHello hello;
  if (!right) hello = Raw<v1::HostHello>();
  if (right || in_.Bit()) {
    hello.set_rank(rank);
    hello.set_job_digest(job_.facts.digest);
    hello.set_layout_hash(job_.facts.layout_hash);
    hello.set_address("127.0.0.1:1");
    if (right) hello.set_life(++lives_);
  }
  const std::string before = coordinator_->Save().SerializeAsString();
  const absl::Status attached = coordinator_->AttachHost(hello, now_);
  if (!attached.ok()) {
    TESSERA_CHECK(!attached.message().empty());
    TESSERA_CHECK(coordinator_->Save().SerializeAsString() == before);
    return;
  }
  hosts_[hello.rank()] = {hello, true, {}};
}

void CoordinatorEvents::DetachHost(uint32_t rank) {
  const auto host = hosts_.find(rank);
  if (host == hosts_.end() || !host->second.attached) return;
  host->second.attached = false;
  coordinator_->DetachHost(rank, host->second.hello.life(), now_);
}

// Does what it was ordered, and says so.
void CoordinatorEvents::StepHost(uint32_t rank) {
  Collect();
  const Host& host = hosts_[rank];
  if (!host.attached) return;
  v1::HostMessage message;
  for (const v1::ShardOrder& role : host.order.shards()) {
    if (role.role() == v1::FOLLOW) {
      v1::ShardOrder& follows = *message.add_follows();
      follows.set_shard(role.shard());
      follows.set_term(role.term());
    } else if (!role.standby().empty()) {
      v1::LeaderReport& leads = *message.add_leads();
      leads.set_shard(role.shard());
      leads.set_term(role.term());
      leads.set_in_sync(true);
    }
  }
  coordinator_->OnHostMessage(rank, message, now_);
}

void CoordinatorEvents::SayOfHost(uint32_t rank) {
  v1::HostMessage message = Raw<v1::HostMessage>();
  const auto host = hosts_.find(rank);
  // LiveCoordinator passes on those of attached hosts alone.
  if (host == hosts_.end() || !host->second.attached) return;
  const bool right = in_.Bit();
  for (v1::LeaderReport& leads : *message.mutable_leads()) {
    if (!right) break;
    leads.set_shard(leads.shard() % static_cast<uint32_t>(job_.facts.servers));
    for (const v1::ShardOrder& role : host->second.order.shards()) {
      if (role.shard() == leads.shard()) leads.set_term(role.term());
    }
  }
  coordinator_->OnHostMessage(rank, message, now_);
}

void CoordinatorEvents::CheckOwners() {
  const ShardOwners* const owners = coordinator_->membership().owners();
  if (owners == nullptr) return;
  terms_.resize(owners->shards().size());
  for (size_t s = 0; s < terms_.size(); ++s) {
    const ShardOwnership& shard = owners->shards()[s];
    TESSERA_CHECK(!shard.standby || (shard.leader && *shard.leader != *shard.standby));
    TESSERA_CHECK(shard.standby || !shard.in_sync);
    TESSERA_CHECK(shard.lead_term <= shard.term && shard.term >= terms_[s]);
    terms_[s] = shard.term;
  }
}

void CoordinatorEvents::Restart() {
  v1::CoordinatorState state = coordinator_->Save();
  Stamp({now_, kSteadyClock, now_}, &state);
  const absl::StatusOr<std::unique_ptr<Coordinator>> same = Coordinator::Load(job_.facts, state);
  TESSERA_CHECK(same.ok());
  v1::CoordinatorState again = (*same)->Save();
  Stamp({now_, kSteadyClock, now_}, &again);
  TESSERA_CHECK(again.SerializeAsString() == state.SerializeAsString());
  now_ += absl::Seconds(1);
  ShiftTimes({now_, kSteadyClock, now_}, absl::Minutes(1), &state);
  absl::StatusOr<std::unique_ptr<Coordinator>> loaded = Coordinator::Load(job_.facts, state);
  TESSERA_CHECK(loaded.ok());
  coordinator_ = *std::move(loaded);
  coordinator_->Reconnect(now_);
  for (auto& [rank, server] : servers_) server.attached = false;
  for (auto& [rank, host] : hosts_) host.attached = false;
  tasks_.clear();
}

void CoordinatorEvents::OneOfHosts(uint64_t event) {
  const auto rank = static_cast<uint32_t>(in_.Below(3));
  switch (event) {
    case 18:
      AttachHost(rank, in_.Bit());
      break;
    case 19:
      DetachHost(rank);
      break;
    case 20:
    case 21:
      SayOfHost(rank);
      break;
    case 22:
    case 23:
    case 24:
      for (auto& [host, record] : hosts_) StepHost(host);
      break;
    case 25:
      if (in_.Bit()) Restart();
      break;
  }
  CheckOwners();
}

}  // namespace tessera
