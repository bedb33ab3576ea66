#include "deploy/simulate/simulated_server.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "deploy/simulate/simulated_client.h"
#include "deploy/simulate/simulated_coordinator.h"
#include "deploy/simulate/simulated_cores.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

// The policy is watched, as the simulated server asks whose push was folded.
std::unique_ptr<Shard> Observed(Shard::Options options, PolicyNews* news) {
  options.policy = std::make_unique<ObservedPolicy>(std::move(options.policy), news);
  return std::make_unique<Shard>(std::move(options));
}

// The bytes of the core's keys that the push brings along.
int64_t KeyBytes(const ReceivedPush& push) {
  const auto* const core = std::get_if<NamedCore>(&push.keys);
  return core != nullptr && core->keys ? static_cast<int64_t>(core->keys->size()) : 0;
}

}  // namespace

SimulatedServer::SimulatedServer(Options options, SimulatedWorld* world,
                                 SimulatedCoordinator* coordinator)
    : rank_(options.rank),
      machine_(options.machine),
      rate_(options.rate),
      work_time_(TransferNanos(
          SlicesOf(options.shard.shape, options.shard.shard, options.shard.sharding).bytes(),
          options.rate)),
      counters_interval_(options.counters_interval),
      world_(*world),
      coordinator_(*coordinator),
      served_(Observed(std::move(options.shard), &news_)),
      takes_parts_(served_.shard().traits().keys->moves_parts()) {}

void SimulatedServer::Start() {
  v1::ServerHello hello;
  hello.set_rank(rank_.value());
  hello.set_job_digest(coordinator_.state().facts().digest);
  hello.set_layout_hash(shard().layout_hash());
  hello.set_parameter_bytes(shard().slices().bytes());
  hello.set_address(absl::StrCat("server ", rank_.value()));
  hello.set_life(1);
  coordinator_.Attach(this, std::move(hello));
  served_.SetCoreListener([this](const CoreReport& report) {
    v1::ShardMessage message;
    *message.mutable_core_report() = ToMessage(report);
    coordinator_.FromServer(this, std::move(message));
  });
  // Heartbeats show the coordinator that the server is there.
  world_.events.After(counters_interval_, [this] { Heartbeat(); });
  Work();
}

void SimulatedServer::TakeCoreRequest(const CoreRequest& request) {
  using Keys = std::shared_ptr<const Core>;
  served_.Read<Keys>(
      ++core_reads_, request.member, Exchange(0), IdleNotice(),
      [this, request] { return served_.shard().ReadCore(request.member, request.number); },
      [this, request](absl::StatusOr<Keys> core) {
        pull_payload_bytes_ += request.cores->Answer(rank_, request.call, std::move(core));
      });
  Work();
}

void SimulatedServer::Take(Request request) {
  inbox_.push_back(std::move(request));
  Work();
}

void SimulatedServer::Work() {
  // One piece of work at a time, as a shard has one thread.
  while (!busy_) {
    for (; !inbox_.empty(); inbox_.pop_front()) Handle(std::move(inbox_.front()));
    const bool worked = served_.Work(/*had_events=*/true, world_.time());
    // Work that takes no time is done at once.
    const SimNanos work = worked ? WorkTime() : 0;
    if (work > 0) {
      busy_ = true;
      world_.machines[machine_]->Run(work, [this] {
        busy_ = false;
        AnswerReads();
        Work();
      });
      return;
    }
    AnswerReads();
    if (!worked) break;
  }
  // A policy may wait for a moment, such as the end of a round.
  SetAlarm();
}

// Selecting a core and drawing explorers is done while nothing else is, and takes no time here.
SimNanos SimulatedServer::WorkTime() {
  if (!takes_parts_) return work_time_;
  const auto folded = part_bytes_.find(news_.folded);
  // A round that is committed without a push has only shared entries to write.
  if (folded == part_bytes_.end()) return 0;
  const SimNanos time = TransferNanos(folded->second, rate_);
  part_bytes_.erase(folded);
  return time;
}

// Nothing waits for a standby here: whoever asks is answered at once.
void SimulatedServer::Handle(Request request) {
  SimulatedClient& client = *request.read.client;
  const ParkedRead& read = request.read;
  if (request.kind == Request::Kind::kReadOutside) {
    const auto answer = [this, &client, call = read.call](absl::StatusOr<ReadResult> now) {
      if (now.ok()) now->entries = shard().traits().keys->dense();
      client.Served(rank_, call, std::move(now));
    };
    return served_.ReadOutside(read.member, read.after, request.rest, world_.time(), answer);
  }
  bool behind_push = false;
  if (request.kind != Request::Kind::kPull) {
    const int64_t bytes = request.push.payload.size();
    push_payload_bytes_ += bytes + KeyBytes(request.push);
    std::optional<absl::StatusOr<PushAccepted>> accepted;
    served_.Accept(std::move(request.push),
                   [&accepted](absl::StatusOr<PushAccepted> said) { accepted = std::move(said); });
    TESSERA_CHECK(accepted.has_value());
    if (accepted->ok() && (*accepted)->need_keys) return client.NeedKeys(rank_, read.call);
    client.Acknowledged(rank_, read.call, accepted->status());
    if (!accepted->ok() || request.kind == Request::Kind::kPush) return;
    behind_push = !(*accepted)->duplicate;
    // The time of a part's fold follows from its bytes.
    if (behind_push && takes_parts_) part_bytes_[read.member] = bytes;
  }
  served_.shard().Rest(read.member, read.after, request.rest);
  // Before its push is folded a member may not read; then it is asked for by name.
  if (behind_push) return reads_.ParkBehindPush(read);
  absl::StatusOr<std::optional<ReadResult>> result =
      served_.shard().Read(read.member, read.after, read.keys);
  if (result.ok() && !result->has_value()) return reads_.Park(read);
  Answer(read, result.ok() ? absl::StatusOr<ReadResult>(**std::move(result))
                           : absl::StatusOr<ReadResult>(result.status()));
}

void SimulatedServer::AnswerReads() {
  reads_.Serve(&served_.shard(), news_,
               [this](const ParkedRead& read, absl::StatusOr<ReadResult> result) {
                 Answer(read, std::move(result));
               });
  news_ = PolicyNews();
}

void SimulatedServer::Answer(const ParkedRead& read, absl::StatusOr<ReadResult> result) {
  pull_payload_bytes_ += read.client->Served(rank_, read.call, std::move(result));
}

void SimulatedServer::SetAlarm() {
  const absl::Time deadline = shard().Deadline().value_or(absl::InfiniteFuture());
  // An alarm that is set already comes earlier.
  if (deadline >= alarm_) return;
  alarm_ = deadline;
  const SimNanos at = std::max(world_.events.now(), absl::ToUnixNanos(deadline));
  world_.events.At(at, [this, number = ++alarm_number_] {
    if (number != alarm_number_) return;
    alarm_ = absl::InfiniteFuture();
    Work();
  });
}

void SimulatedServer::OnPlanMessage(const v1::PlanMessage& message) {
  // The message is handled in the order of its fields.
  if (message.has_plan()) ApplyPlan(message.plan());
  if (message.has_propose()) AnswerProposal(message.propose());
  if (message.withdraw() > 0) served_.Withdraw(message.withdraw());
  if (message.has_core_question()) served_.AskCore(FromMessage(message.core_question()));
  if (message.drain()) {
    closed_ = true;
    // The last counters have the hash of the parameters.
    SendCounters(/*closing=*/true);
  }
  Work();
}

void SimulatedServer::AnswerProposal(const v1::Proposal& proposal) {
  v1::ShardMessage message;
  v1::ProposalReply& reply = *message.mutable_proposal_reply();
  reply.set_proposal(proposal.proposal());
  reply.set_first_exchange(
      served_.Propose(proposal.proposal(), Exchange(proposal.member().first_exchange())).value());
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::ApplyPlan(const v1::Plan& text) {
  v1::ShardMessage message;
  v1::PlanApplied& applied = *message.mutable_applied();
  applied.set_generation(text.generation());
  // No connection breaks here: those who are removed now are told once, however many they are.
  for (const Shard::Removed& removed : served_.shard().SetPlan(ToPlan(text))) {
    part_bytes_.erase(removed.member);
    v1::PlanApplied::Removed& entry = *applied.add_removed();
    entry.set_member(removed.member.value());
    entry.set_last_exchange(removed.last_exchange.value());
  }
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::SendCounters(bool closing) {
  v1::ShardMessage message;
  v1::ServerCounters& counters = *message.mutable_counters();
  counters = ToMessage(shard().counters());
  counters.set_rank(rank_.value());
  counters.set_parked_pulls(reads_.size());
  counters.set_parameter_bytes(shard().slices().bytes());
  counters.set_push_payload_bytes(push_payload_bytes_);
  counters.set_pull_payload_bytes(pull_payload_bytes_);
  counters.set_closing(closing);
  if (closing) counters.set_parameters_hash(shard().ParametersHash());
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::Heartbeat() {
  if (closed_) return;
  SendCounters(/*closing=*/false);
  world_.events.After(counters_interval_, [this] { Heartbeat(); });
}

}  // namespace tessera
