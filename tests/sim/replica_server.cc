#include "tests/sim/replica_server.h"

#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/consistency/forwarding_policy.h"
#include "server/shard/shard_messages.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/checker.h"

namespace tessera {

// Tells what is folded.
class ReplicaServer::Recorder final : public ForwardingPolicy {
 public:
  Recorder(std::unique_ptr<ConsistencyPolicy> policy, ReplicaServer* server)
      : ForwardingPolicy(std::move(policy)), server_(*server) {}

  Verdict OnPush(const PushFacts& push) override {
    if (!server_.folded_.emplace(push.member, push.exchange).second) {
      server_.world_.Violate(absl::StrCat("server ", server_.rank_, " folds member ",
                                          push.member.value(), " exchange ", push.exchange.value(),
                                          " twice"));
    }
    return ForwardingPolicy::OnPush(push);
  }

 private:
  ReplicaServer& server_;
};

std::vector<float> SumOf(const ReplicaWorld& world, const ReplicaServer::Pushes& pushes,
                         int64_t size) {
  std::vector<float> sum(size);
  for (const auto& [member, exchange] : pushes) {
    for (int64_t i = 0; i < size; ++i) {
      sum[i] += static_cast<float>(UpdateEntry(world.seed, member, exchange, i));
    }
  }
  return sum;
}

ReplicaServer::ReplicaServer(ReplicaWorld* world, uint32_t rank, uint64_t life,
                             Shard::Options options)
    : world_(*world), rank_(rank), life_(life), node_(world->network->AddNode()), shard_([&] {
        options.policy = std::make_unique<Recorder>(std::move(options.policy), this);
        return std::move(options);
      }()) {
  world_.servers[life_] = this;
  world_.network->After(node_, absl::ZeroDuration(), [this] {
    Attach();
    Heartbeat();
  });
}

void ReplicaServer::Attach() {
  v1::ServerHello hello;
  hello.set_rank(rank_);
  hello.set_layout_hash(world_.coordinator->state().facts().layout_hash);
  hello.set_life(life_);
  hello.set_address(absl::StrCat(life_));
  world_.coordinator->Attach(node_, hello,
                             [this](const v1::PlanMessage& message) { OnPlanMessage(message); });
}

void ReplicaServer::Send(const v1::ShardMessage& message) {
  world_.coordinator->FromServer(node_, ShardId(rank_), message);
}

void ReplicaServer::Leave() {
  v1::ShardMessage message;
  message.set_leaves(true);
  Send(message);
}

void ReplicaServer::OnPlanMessage(const v1::PlanMessage& message) {
  if (!message.refuse().empty()) return world_.network->Kill(node_);
  if (!message.copy_from().empty()) {
    shard_.replica().AwaitCopy();
    donor_ = message.copy_from();
    if (!copying_) {
      copying_ = true;
      TryCopy();
    }
  }
  if (message.has_plan()) {
    const Plan plan = ToPlan(message.plan());
    for (const Shard::Removed& removed : shard_.SetPlan(plan)) removed_.push_back(removed);
    v1::ShardMessage answer;
    answer.mutable_applied()->set_generation(plan.generation.value());
    for (const Shard::Removed& removed : removed_) {
      v1::PlanApplied::Removed& entry = *answer.mutable_applied()->add_removed();
      entry.set_member(removed.member.value());
      entry.set_last_exchange(removed.last_exchange.value());
    }
    Send(answer);
  }
  if (message.has_propose()) {
    const v1::Proposal& proposal = message.propose();
    v1::ShardMessage answer;
    answer.mutable_proposal_reply()->set_proposal(proposal.proposal());
    answer.mutable_proposal_reply()->set_first_exchange(
        shard_.Propose(proposal.proposal(), Exchange(proposal.member().first_exchange())).value());
    Send(answer);
  }
  if (message.drain()) {
    closed_ = true;
    SendCounters(/*closing=*/true);
  }
  Work();
}

void ReplicaServer::SendCounters(bool closing) {
  v1::ShardMessage message;
  *message.mutable_counters() = ToMessage(shard_.counters());
  message.mutable_counters()->set_closing(closing);
  Send(message);
}

void ReplicaServer::Heartbeat() {
  if (closed_) return;
  SendCounters(/*closing=*/false);
  world_.network->After(node_, absl::Milliseconds(100), [this] { Heartbeat(); });
}

void ReplicaServer::TryCopy() {
  const auto again = [this] {
    world_.network->After(node_, absl::Milliseconds(20), [this] { TryCopy(); });
  };
  uint64_t life = 0;
  if (closed_ || (!shard_.replica().WantsCopy() && !world_.network->dice().Chance(0.3)) ||
      !absl::SimpleAtoi(donor_, &life)) {
    return again();
  }
  ReplicaServer* const donor = world_.servers[life];
  world_.network->Call<absl::StatusOr<Copy>>(
      node_, donor->node(),
      [donor](auto answer) {
        absl::StatusOr<ReplicaCopy> copy =
            donor->shard_.replica().MakeCopy(donor->world_.network->now());
        if (!copy.ok()) return answer(copy.status());
        answer(Copy{*std::move(copy), donor->folded_});
        donor->AnswerReads();
      },
      [this, again](const std::optional<absl::StatusOr<Copy>>& copy) {
        if (!copy.has_value() || !copy->ok()) return again();
        TakeCopy(**copy);
        if (!shard_.counters().copied) return again();
        Work();
      });
}

void ReplicaServer::TakeCopy(const Copy& copy) {
  ReplicaTable table = copy.copy.table;
  if (world_.mutation == ReplicaMutation::kForgetsTable) {
    for (auto& [member, folded] : table.folded) folded = Exchange(folded.value() - 1);
  }
  if (!shard_.replica().TakeCopy(table, ValuesOf(*copy.copy.read.snapshot)).ok()) return;
  if (!folded_.empty()) world_.Violate("a joiner folded pushes before it had a copy");
  folded_ = copy.pushes;
  CheckValues("after its copy");
}

void ReplicaServer::Push(ReceivedPush push,
                         std::function<void(absl::StatusOr<PushAccepted>)> answer) {
  const bool drops = world_.mutation == ReplicaMutation::kKeepsNothing && copying_ && !copied();
  if (drops && push.exchange.value() % 2 == 0) push.payload = PayloadOf(std::vector<float>(size()));
  answer(shard_.Accept(std::move(push)));
  Work();
}

void ReplicaServer::Pull(MemberId member, Exchange after,
                         std::function<void(absl::StatusOr<bool>)> answer) {
  reads_.push_back({member, after, std::move(answer)});
  Work();
}

void ReplicaServer::AnswerReads() {
  std::vector<ParkedRead> still;
  for (ParkedRead& read : reads_) {
    const auto result = shard_.Read(read.member, read.after);
    if (!result.ok()) {
      read.answer(result.status());
    } else if (!result->has_value()) {
      still.push_back(std::move(read));
    } else {
      if (folded_.count({read.member, read.after}) == 0 && read.after != Exchange(0) &&
          shard_.plan().Find(read.member)->first_exchange <= read.after) {
        world_.Violate(absl::StrCat("member ", read.member.value(), " reads without its exchange ",
                                    read.after.value()));
      }
      read.answer(true);
    }
  }
  reads_ = std::move(still);
}

void ReplicaServer::Work() {
  AnswerReads();
  if (working_) return;
  working_ = true;
  world_.network->After(
      node_, world_.network->dice().Between(absl::ZeroDuration(), absl::Milliseconds(3)), [this] {
        working_ = false;
        if (shard_.Advance(world_.network->now())) Work();
      });
}

const ReplicaServer::Pushes& ReplicaServer::Settled() {
  shard_.replica().FoldAccepted(world_.network->now());
  CheckValues("at the end");
  return folded_;
}

std::vector<float> ReplicaServer::Values() { return ValuesOf(*shard_.ReadNow().snapshot); }

void ReplicaServer::CheckValues(const std::string& when) {
  if (Values() == SumOf(world_, folded_, shard_.slices().size)) return;
  world_.Violate(
      absl::StrCat("server ", rank_, " ", when, ": values are not those of the pushes in them"));
}

}  // namespace tessera
