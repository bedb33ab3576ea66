#include "tests/sim/sim_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"
#include "server/shard/site_subnet.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// A policy with one of the mutations that sit there.
class Mutant final : public ConsistencyPolicy {
 public:
  Mutant(std::unique_ptr<ConsistencyPolicy> policy, Mutation mutation)
      : policy_(std::move(policy)), mutation_(mutation) {}

  void SetMembers(const Plan& plan) override {
    Plan seen = plan;
    if (mutation_ == Mutation::kPolicyForgetsRemoval) {
      for (const PlanMember& m : plan_.members) {
        if (plan.Find(m.member) == nullptr) seen.members.push_back(m);
      }
    }
    plan_ = seen;
    policy_->SetMembers(seen);
  }
  std::optional<MemberId> NextInOrder() const override { return policy_->NextInOrder(); }
  Verdict OnPush(const PushFacts& push) override {
    Verdict verdict = policy_->OnPush(push);
    if (mutation_ == Mutation::kCountsTwice && ++pushes_ % 20 == 0) verdict.weight = 2;
    if (mutation_ == Mutation::kWeighsAlike) verdict.weight = 1;
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override { return policy_->CommitDue(now); }
  std::optional<absl::Time> Deadline() const override { return policy_->Deadline(); }
  void SetResting(MemberId member, bool resting) override {
    if (mutation_ == Mutation::kForgetsRests) return;
    policy_->SetResting(member, resting);
  }
  Exchange FirstExchange(Exchange wanted) const override { return policy_->FirstExchange(wanted); }
  bool MayRead(MemberId member, Exchange after) const override {
    return mutation_ == Mutation::kReadsEarly || policy_->MayRead(member, after);
  }
  Exchange Collecting() const override { return policy_->Collecting(); }
  std::vector<MemberId> WaitsFor() const override { return policy_->WaitsFor(); }

 private:
  const std::unique_ptr<ConsistencyPolicy> policy_;
  const Mutation mutation_;
  Plan plan_;
  int pushes_ = 0;
};

Shard::Options Prepared(Checker* checker, Shard::Options options, Mutation mutation) {
  const ShardSlices slices = SlicesOf(options.shape, options.shard, options.shard_count);
  options.policy = checker->Recorded(options.shard, slices,
                                     std::make_unique<Mutant>(std::move(options.policy), mutation));
  return options;
}

}  // namespace

SimServer::SimServer(SimNetwork* network, SimCoordinator* coordinator, Checker* checker,
                     Shard::Options options, Mutation mutation)
    : network_(network),
      coordinator_(coordinator),
      checker_(checker),
      mutation_(mutation),
      node_(network->AddNode()),
      rank_(options.shard),
      shard_(Prepared(checker, std::move(options), mutation)) {
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(100)),
                  [this] {
                    Attach();
                    Heartbeat();
                  });
}

void SimServer::Attach() {
  v1::ServerHello hello;
  hello.set_rank(rank_.value());
  hello.set_layout_hash(coordinator_->state().facts().layout_hash);
  hello.set_life(1);
  coordinator_->Attach(node_, hello,
                       [this](const v1::PlanMessage& message) { OnPlanMessage(message); });
}

void SimServer::BreakLink() {
  network_->CutStreams(node_, coordinator_->node());
  coordinator_->Detach(rank_);
  network_->After(node_, network_->dice().Between(absl::Milliseconds(30), absl::Milliseconds(150)),
                  [this] { Attach(); });
}

void SimServer::OnPlanMessage(const v1::PlanMessage& message) {
  // In the order of the fields.
  if (message.has_plan()) ApplyPlan(message.plan());
  if (message.has_propose()) Answer(message.propose());
  // Numbers ascend: this one and all before it are void.
  while (!promises_.empty() && *promises_.begin() <= message.withdraw()) {
    shard_.Withdraw(*promises_.begin());
    promises_.erase(promises_.begin());
  }
  if (message.has_core_question()) HearQuestion(message.core_question());
  if (message.drain()) {
    closed_ = true;
    SendCounters(/*closing=*/true);
  }
  Work();
}

void SimServer::Answer(const v1::Proposal& proposal) {
  // The same one comes again over a new connection.
  if (last_reply_.proposal() != proposal.proposal()) {
    Exchange first(proposal.member().first_exchange());
    promises_.insert(proposal.proposal());
    if (mutation_ != Mutation::kForgetsPromise) first = shard_.Propose(proposal.proposal(), first);
    last_reply_.set_proposal(proposal.proposal());
    last_reply_.set_first_exchange(first.value());
  }
  v1::ShardMessage message;
  *message.mutable_proposal_reply() = last_reply_;
  coordinator_->FromServer(node_, rank_, message);
}

void SimServer::ApplyPlan(const v1::Plan& text) {
  const Plan plan = ToPlan(text);
  checker_->OnPlan(rank_, plan);
  Plan believed = plan;
  if (mutation_ == Mutation::kServerForgetsRemoval && rank_ == ShardId(0)) {
    for (const PlanMember& m : shard_.plan().members) {
      if (plan.Find(m.member) == nullptr) believed.members.push_back(m);
    }
  }
  if (mutation_ == Mutation::kForgetsFormerSites && rank_ == ShardId(0)) believed.former.clear();
  for (const Shard::Removed& removed : shard_.SetPlan(believed)) removed_.push_back(removed);
  v1::ShardMessage message;
  v1::PlanApplied& applied = *message.mutable_applied();
  applied.set_generation(plan.generation.value());
  for (const Shard::Removed& removed : removed_) {
    v1::PlanApplied::Removed& entry = *applied.add_removed();
    entry.set_member(removed.member.value());
    entry.set_last_exchange(removed.last_exchange.value());
  }
  coordinator_->FromServer(node_, rank_, message);
}

void SimServer::SendCounters(bool closing) {
  const ShardCounters counters = shard_.counters();
  checker_->OnCounted(rank_, counters.version);
  v1::ShardMessage message;
  v1::ServerCounters& text = *message.mutable_counters();
  text.set_rank(rank_.value());
  text.set_version(counters.version.value());
  text.set_pushes(counters.pushes);
  text.set_parked_pulls(reads_.size());
  if (counters.collecting != Exchange(0))
    text.set_exchange_committed(counters.collecting.value() - 1);
  for (const MemberId member : shard_.WaitsFor()) {
    text.add_waits_for_ranks(shard_.plan().Find(member)->rank.value());
  }
  text.set_closing(closing);
  // What is said before there is a connection, or while it breaks, is said again.
  const bool repeats = mutation_ != Mutation::kSaysReportsOnce;
  if (shard_.cores() != nullptr && shard_.cores()->report() && repeats) {
    *message.mutable_core_report() = ToMessage(*shard_.cores()->report());
  }
  coordinator_->FromServer(node_, rank_, message);
}

void SimServer::Heartbeat() {
  if (closed_) return;
  CheckWaiting();
  SendCounters(/*closing=*/false);
  network_->After(node_, absl::Milliseconds(100), [this] { Heartbeat(); });
}

void SimServer::Push(const std::function<ReceivedPush()>& make,
                     std::function<void(absl::StatusOr<PushAccepted>)> answer) {
  ReceivedPush push = make();
  const MemberId member = push.member;
  const bool loses =
      mutation_ == Mutation::kLosesStaged && rank_ == ShardId(0) && network_->dice().Chance(0.05);
  absl::StatusOr<PushAccepted> accepted(PushAccepted{});
  if (!loses) accepted = shard_.Accept(std::move(push));
  if (accepted.ok()) checker_->OnAccepted(rank_, member);
  if (mutation_ == Mutation::kAppliesDuplicates && accepted.ok() && accepted->duplicate) {
    ReceivedPush again = make();
    again.exchange = again.exchange.Next();
    shard_.Accept(std::move(again)).IgnoreError();
  }
  answer(accepted);
  Work();
}

bool SimServer::ReadOutside(MemberId member, Exchange after, RestWord word) {
  shard_.Rest(member, after, word);
  const ReadResult result = shard_.ReadNow();
  checker_->OnReadOutside(rank_, member, result.version, ValuesOf(*result.snapshot));
  const bool in_round = checker_->IsInRound(rank_);
  Work();
  return in_round;
}

void SimServer::Pull(MemberId member, Exchange after, RestWord word, std::optional<CoreName> core,
                     std::function<void(absl::StatusOr<PulledValues>)> answer) {
  shard_.Rest(member, after, word);
  reads_.push_back({member, after, std::move(answer), std::nullopt, false, core});
  Work();
}

void SimServer::ReadCore(MemberId member, uint64_t number,
                         std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> answer) {
  core_reads_.push_back({member, number, std::move(answer)});
  Work();
}

void SimServer::Fetch(MemberId member, const SubnetPlace& asked, bool waits_only,
                      std::function<void(absl::StatusOr<PulledValues>)> answer) {
  reads_.push_back({member, Exchange(asked.round - 1), std::move(answer), asked, waits_only, std::nullopt});
  Work();
}

void SimServer::Work() {
  AnswerReads();
  if (working_) return;
  working_ = true;
  // Folding takes time, in which other things arrive.
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(1)),
                  [this] {
                    working_ = false;
                    const bool worked = shard_.Advance(network_->now());
                    FollowSelection();
                    if (worked) {
                      Work();
                    } else {
                      AnswerReads();
                      CheckWaiting();
                      SetAlarm();
                    }
                  });
}

void SimServer::AnswerReads() {
  std::vector<ParkedRead> still;
  for (ParkedRead& read : reads_) {
    absl::StatusOr<std::optional<PulledValues>> result = Try(read);
    if (!result.ok()) {
      read.answer(result.status());
    } else if (!result->has_value()) {
      still.push_back(std::move(read));
    } else {
      read.answer(**std::move(result));
    }
  }
  reads_ = std::move(still);
  AnswerCores();
}

void SimServer::AnswerCores() {
  std::vector<ParkedCore> still;
  for (ParkedCore& read : core_reads_) {
    absl::StatusOr<std::optional<std::shared_ptr<const Core>>> core =
        shard_.ReadCore(read.member, read.number);
    if (!core.ok()) {
      read.answer(core.status());
    } else if (core->has_value()) {
      read.answer(**core);
    } else {
      still.push_back(std::move(read));
    }
  }
  core_reads_ = std::move(still);
}

absl::StatusOr<std::optional<PulledValues>> SimServer::TrySparse(const ParkedRead& read) {
  absl::StatusOr<std::optional<SparseReadResult>> result =
      shard_.ReadSparse(read.member, read.after, *read.core);
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  PulledValues pulled;
  pulled.version = (*result)->read.version;
  pulled.cores = (*result)->read.cores;
  pulled.needs_all = (*result)->place == nullptr;
  if (pulled.needs_all) return std::optional<PulledValues>(std::move(pulled));
  const EntrySet& entries = (*result)->place->keys.entries;
  const std::vector<float> all = ValuesOf(*(*result)->read.snapshot);
  for (const int64_t place : entries.places()) pulled.values.push_back(all[place]);
  checker_->OnSparseRead(rank_, read.member, shard_.plan().Find(read.member)->rank, read.after,
                         pulled.version, read.core->number, entries, pulled.values);
  return std::optional<PulledValues>(std::move(pulled));
}

void SimServer::HearQuestion(v1::CoreQuestion question) {
  if (shard_.cores() == nullptr) return;
  if (mutation_ == Mutation::kTakesAllTies && question.ties_size() > 0) {
    question.set_all_ties(true);
    question.clear_ties();
  }
  shard_.cores()->Ask(FromMessage(question));
}

void SimServer::FollowSelection() {
  CoreExchange* const cores = shard_.cores();
  if (cores == nullptr) return;
  const std::optional<CoreReport> report = cores->report();
  // Selections begin with a report, and nothing is folded before it.
  if (report && selecting_ != report->core) {
    selecting_ = report->core;
    checker_->OnSelection(rank_, report->core);
  }
  if (report && cores->report_number() != reports_sent_) {
    reports_sent_ = cores->report_number();
    v1::ShardMessage message;
    *message.mutable_core_report() = ToMessage(*report);
    coordinator_->FromServer(node_, rank_, message);
  }
  if (cores->core() != nullptr && selected_ != cores->core()->name.number) {
    selected_ = cores->core()->name.number;
    checker_->OnCore(rank_, *cores->core());
  }
}

absl::StatusOr<std::optional<PulledValues>> SimServer::Try(const ParkedRead& read) {
  if (read.asked.has_value()) return TryFetch(read);
  if (read.core.has_value()) return TrySparse(read);
  absl::StatusOr<std::optional<ReadResult>> result = shard_.Read(read.member, read.after);
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  PulledValues pulled;
  pulled.version = (*result)->version;
  pulled.values = ValuesOf(*(*result)->snapshot);
  pulled.cores = (*result)->cores;
  checker_->OnRead(rank_, read.member, read.after, pulled.version, pulled.values);
  return std::optional<PulledValues>(std::move(pulled));
}

absl::StatusOr<std::optional<PulledValues>> SimServer::TryFetch(const ParkedRead& read) {
  absl::StatusOr<std::optional<SubnetReadResult>> result =
      shard_.ReadSubnet(read.member, read.after.Next());
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  PulledValues pulled;
  pulled.version = (*result)->read.version;
  pulled.place = (*result)->site->place();
  std::optional<std::vector<float>> values;
  if (*pulled.place == *read.asked && !read.waits_only) {
    SubnetGather gather((*result)->site, (*result)->read.snapshot);
    pulled.values.resize(gather.left());
    gather.Next(gather.left(), pulled.values.data());
    values = pulled.values;
  }
  // Whoever still asks has its answer already, and nobody trains the round.
  if (!coordinator_->training_is_over()) {
    checker_->OnFetched(rank_, read.member, *pulled.place, pulled.version, values);
  }
  return std::optional<PulledValues>(std::move(pulled));
}

void SimServer::SetAlarm() {
  const absl::Time deadline = shard_.Deadline().value_or(absl::InfiniteFuture());
  if (deadline >= alarm_) return;
  alarm_ = deadline;
  network_->After(node_, std::max(absl::ZeroDuration(), deadline - network_->now()), [this] {
    alarm_ = absl::InfiniteFuture();
    Work();
  });
}

void SimServer::CheckWaiting() {
  if (working_) return;
  std::vector<Checker::Reader> readers;
  for (const ParkedRead& read : reads_) readers.push_back({read.member, read.after});
  checker_->OnWaiting(rank_, readers, shard_.WaitsFor(),
                      !promises_.empty() || shard_.Deadline().has_value());
}

std::string SimServer::Describe() const {
  std::string text =
      absl::StrCat("server ", rank_.value(), ": collecting ", shard_.counters().collecting.value(),
                   ", staged bytes ", shard_.counters().staged_bytes, ", promises ",
                   promises_.size(), ", waits for members");
  for (const MemberId member : shard_.WaitsFor()) absl::StrAppend(&text, " ", member.value());
  absl::StrAppend(&text, "; reads of");
  for (const ParkedRead& read : reads_) {
    absl::StrAppend(&text, " ", read.member.value(), "@", read.after.value());
  }
  return text;
}

}  // namespace tessera
