#include "deploy/simulate/simulated_server.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "deploy/simulate/simulated_client.h"
#include "deploy/simulate/simulated_coordinator.h"
#include "deploy/simulate/simulated_cores.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

Shard::Options Observed(Shard::Options options, PolicyNews* news) {
  options.policy = std::make_unique<ObservedPolicy>(std::move(options.policy), news);
  return options;
}

// The bytes of the core's keys that the push brings along.
int64_t KeyBytes(const ReceivedPush& push) {
  const auto* const core = std::get_if<NamedCore>(&push.keys);
  return core != nullptr && core->keys ? static_cast<int64_t>(core->keys->size()) : 0;
}

}  // namespace

SimulatedServer::SimulatedServer(Options options, SimulatedWorld* world,
                                 SimulatedCoordinator* coordinator)
    : rank_(options.shard.shard),
      machine_(options.machine),
      rate_(options.rate),
      work_time_(TransferNanos(
          SlicesOf(options.shard.shape, options.shard.shard, options.shard.shard_count).bytes(),
          options.rate)),
      counters_interval_(options.counters_interval),
      world_(*world),
      coordinator_(*coordinator),
      shard_(Observed(std::move(options.shard), &news_)),
      takes_parts_(shard_.traits().keys->moves_parts()) {}

void SimulatedServer::Start() {
  v1::ServerHello hello;
  hello.set_rank(rank_.value());
  hello.set_job_digest(coordinator_.state().facts().digest);
  hello.set_layout_hash(shard_.layout_hash());
  hello.set_parameter_bytes(shard_.slices().bytes());
  hello.set_address(absl::StrCat("server ", rank_.value()));
  hello.set_life(1);
  coordinator_.Attach(this, std::move(hello));
  world_.events.After(counters_interval_, [this] { Heartbeat(); });
  Work();
}

void SimulatedServer::TakeCoreRequest(const CoreRequest& request) {
  core_requests_.push_back(request);
  AnswerCores();
}

void SimulatedServer::AnswerCores() {
  for (size_t i = 0; i < core_requests_.size();) {
    const CoreRequest& request = core_requests_[i];
    absl::StatusOr<std::optional<std::shared_ptr<const Core>>> core =
        shard_.ReadCore(request.member, request.number);
    if (core.ok() && !core->has_value()) {
      ++i;
      continue;
    }
    pull_payload_bytes_ += request.cores->Answer(
        rank_, request.call,
        core.ok() ? absl::StatusOr<std::shared_ptr<const Core>>(**core) : core.status());
    core_requests_.erase(core_requests_.begin() + static_cast<int64_t>(i));
  }
}

void SimulatedServer::TellCoreReport() {
  const CoreExchange* const cores = shard_.cores();
  if (cores == nullptr || cores->report_number() == core_reports_told_) return;
  core_reports_told_ = cores->report_number();
  if (!cores->report().has_value()) return;
  v1::ShardMessage message;
  *message.mutable_core_report() = ToMessage(*cores->report());
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::Take(Request request) {
  inbox_.push_back(std::move(request));
  Work();
}

void SimulatedServer::Work() {
  while (!busy_) {
    for (; !inbox_.empty(); inbox_.pop_front()) Handle(std::move(inbox_.front()));
    news_.folded = MemberId();
    const bool worked = shard_.Advance(world_.time());
    TellCoreReport();
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
  AnswerCores();
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

void SimulatedServer::Handle(Request request) {
  SimulatedClient& client = *request.read.client;
  const ParkedRead& read = request.read;
  if (request.kind == Request::Kind::kReadOutside) {
    shard_.Rest(read.member, read.after, request.rest);
    ReadResult now = shard_.ReadNow();
    now.entries = shard_.traits().keys->dense();
    client.Served(rank_, read.call, std::move(now));
    return;
  }
  bool behind_push = false;
  if (request.kind == Request::Kind::kPushPull) {
    const int64_t bytes = request.push.payload.size();
    push_payload_bytes_ += bytes + KeyBytes(request.push);
    const absl::StatusOr<PushAccepted> accepted = shard_.Accept(std::move(request.push));
    if (accepted.ok() && accepted->need_keys) return client.NeedKeys(rank_, read.call);
    client.Acknowledged(rank_, read.call, accepted.status());
    if (!accepted.ok()) return;
    behind_push = !accepted->duplicate;
    if (behind_push && takes_parts_) part_bytes_[read.member] = bytes;
  }
  shard_.Rest(read.member, read.after, request.rest);
  // Before its push is folded a member may not read; then it is asked for by name.
  if (behind_push) {
    reads_.ParkBehindPush(read);
  } else {
    absl::StatusOr<std::optional<ReadResult>> result =
        shard_.Read(read.member, read.after, read.keys);
    if (result.ok() && !result->has_value()) return reads_.Park(read);
    Answer(read, result.ok() ? absl::StatusOr<ReadResult>(**std::move(result))
                             : absl::StatusOr<ReadResult>(result.status()));
  }
}

void SimulatedServer::AnswerReads() {
  reads_.Serve(&shard_, news_, [this](const ParkedRead& read, absl::StatusOr<ReadResult> result) {
    Answer(read, std::move(result));
  });
  news_ = PolicyNews();
}

void SimulatedServer::Answer(const ParkedRead& read, absl::StatusOr<ReadResult> result) {
  pull_payload_bytes_ += read.client->Served(rank_, read.call, std::move(result));
}

void SimulatedServer::SetAlarm() {
  const absl::Time deadline = shard_.Deadline().value_or(absl::InfiniteFuture());
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
  while (!proposals_.empty() && *proposals_.begin() <= message.withdraw()) {
    shard_.Withdraw(*proposals_.begin());
    proposals_.erase(proposals_.begin());
  }
  if (message.has_core_question() && shard_.cores() != nullptr) {
    shard_.cores()->Ask(FromMessage(message.core_question()));
  }
  if (message.drain()) {
    closed_ = true;
    SendCounters(/*closing=*/true);
  }
  Work();
}

void SimulatedServer::AnswerProposal(const v1::Proposal& proposal) {
  proposals_.insert(proposal.proposal());
  v1::ShardMessage message;
  v1::ProposalReply& reply = *message.mutable_proposal_reply();
  reply.set_proposal(proposal.proposal());
  reply.set_first_exchange(
      shard_.Propose(proposal.proposal(), Exchange(proposal.member().first_exchange())).value());
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::ApplyPlan(const v1::Plan& text) {
  for (const Shard::Removed& removed : shard_.SetPlan(ToPlan(text))) {
    removed_.push_back(removed);
    part_bytes_.erase(removed.member);
  }
  v1::ShardMessage message;
  v1::PlanApplied& applied = *message.mutable_applied();
  applied.set_generation(text.generation());
  for (const Shard::Removed& removed : removed_) {
    v1::PlanApplied::Removed& entry = *applied.add_removed();
    entry.set_member(removed.member.value());
    entry.set_last_exchange(removed.last_exchange.value());
  }
  // No connection breaks here: once is enough.
  removed_.clear();
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::SendCounters(bool closing) {
  v1::ShardMessage message;
  v1::ServerCounters& counters = *message.mutable_counters();
  counters = ToMessage(shard_.counters());
  counters.set_rank(rank_.value());
  counters.set_parked_pulls(reads_.size());
  counters.set_parameter_bytes(shard_.slices().bytes());
  counters.set_push_payload_bytes(push_payload_bytes_);
  counters.set_pull_payload_bytes(pull_payload_bytes_);
  counters.set_closing(closing);
  if (closing) counters.set_parameters_hash(shard_.ParametersHash());
  coordinator_.FromServer(this, std::move(message));
}

void SimulatedServer::Heartbeat() {
  if (closed_) return;
  SendCounters(/*closing=*/false);
  world_.events.After(counters_interval_, [this] { Heartbeat(); });
}

}  // namespace tessera
