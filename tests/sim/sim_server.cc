#include "tests/sim/sim_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/codec/decoder.h"
#include "common/codec/stochastic.h"
#include "common/consistency/forwarding_policy.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"
#include "server/shard/forms/site_subnet.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

// A policy with one of the mutations that sit there.
class Mutant final : public ForwardingPolicy {
 public:
  Mutant(std::unique_ptr<ConsistencyPolicy> policy, Mutation mutation)
      : ForwardingPolicy(std::move(policy)), mutation_(mutation) {}

  void SetMembers(const Plan& plan) override {
    Plan seen = plan;
    if (mutation_ == Mutation::kPolicyForgetsRemoval) {
      for (const PlanMember& m : plan_.members) {
        if (plan.Find(m.member) == nullptr) seen.members.push_back(m);
      }
    }
    plan_ = seen;
    ForwardingPolicy::SetMembers(seen);
  }
  Verdict OnPush(const PushFacts& push) override {
    Verdict verdict = ForwardingPolicy::OnPush(push);
    if (mutation_ == Mutation::kCountsTwice && ++pushes_ % 20 == 0) verdict.weight = 2;
    if (mutation_ == Mutation::kWeighsAlike) verdict.weight = 1;
    return verdict;
  }
  void SetResting(MemberId member, bool resting) override {
    if (mutation_ == Mutation::kForgetsRests) return;
    ForwardingPolicy::SetResting(member, resting);
  }
  bool MayRead(MemberId member, Exchange after) const override {
    return mutation_ == Mutation::kReadsEarly || ForwardingPolicy::MayRead(member, after);
  }

 private:
  const Mutation mutation_;
  Plan plan_;
  int pushes_ = 0;
};

}  // namespace

std::unique_ptr<ConsistencyPolicy> Mutated(std::unique_ptr<ConsistencyPolicy> policy,
                                           Mutation mutation) {
  return std::make_unique<Mutant>(std::move(policy), mutation);
}

SimServer::SimServer(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker,
                     Options options)
    : network_(network),
      coordinator_(coordinator),
      checker_(checker),
      options_(std::move(options)),
      mutation_(options_.mutation),
      node_(options_.node ? *options_.node : network->AddNode()),
      rank_(options_.rank),
      copy_(options_.copy),
      life_(copy_.value() + 1),
      last_heard_(network->now()),
      served_(std::move(options_.shard)),
      generation_(options_.generation) {
  checker_->OnLeads(copy_, options_.lead_term, options_.is_new);
  served_.SetCoreListener([this](const CoreReport& report) {
    v1::ShardMessage message;
    *message.mutable_core_report() = ToMessage(report);
    Say(std::move(message));
  });
  const absl::Duration begins = options_.node ? absl::Milliseconds(2) : absl::Milliseconds(100);
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), begins), [this] {
    Attach();
    Heartbeat();
  });
}

void SimServer::SetStandby(std::shared_ptr<LogSink> sink) {
  served_.gate().SetStandby(std::move(sink));
  Work();
}

void SimServer::OnAcknowledged(const LogSink* from, uint64_t position) {
  served_.gate().OnAcknowledged(from, position);
  Work();
}

void SimServer::Attach() {
  // One after the other.
  if (connection_ != 0) network_->CutStreams(node_, coordinator_->node(), connection_);
  connection_ = network_->AddConnection();
  coordinator_life_ = coordinator_->life();
  v1::ServerHello hello;
  hello.set_rank(rank_.value());
  hello.set_layout_hash(coordinator_->state().facts().layout_hash);
  hello.set_life(life_);
  hello.set_address(options_.address);
  hello.set_lead_term(options_.lead_term);
  hello.set_run(word_.run());
  hello.set_term(word_.term());
  hello.set_server_key(word_.server_key());
  hello.set_changes(mutation_ == Mutation::kTellsUnkept ? 0 : word_.changes());
  coordinator_->Attach(
      node_, hello,
      [this, connection = connection_](const v1::PlanMessage& message) {
        if (connection == connection_) OnPlanMessage(message);
      },
      connection_);
}

bool SimServer::IsAway() const {
  return coordinator_->is_kept() &&
         network_->now() - last_heard_ > coordinator_->state().facts().lease_timeout;
}

void SimServer::BreakLink() {
  network_->CutStreams(node_, coordinator_->node(), connection_);
  coordinator_->Detach(rank_, connection_);
  network_->After(node_, network_->dice().Between(absl::Milliseconds(30), absl::Milliseconds(150)),
                  [this] { Attach(); });
}

void SimServer::OnPlanMessage(const v1::PlanMessage& message) {
  last_heard_ = network_->now();
  if (message.has_word()) word_ = message.word();
  if (!message.refuse().empty()) {
    if (options_.on_refused) options_.on_refused();
    return;
  }
  if (!message.leave().instead().empty()) leaving_ = false;
  if (leaving_ && message.leave().may_end()) return options_.on_left();
  if (message.has_restore()) HearRestore(message.restore());
  if (message.drain()) checker_->OnClosing(copy_);
  if (message.has_plan()) ApplyPlan(message.plan());
  if (message.has_checkpoint()) TakeOrder(message.checkpoint());
  if (message.has_propose()) Answer(message.propose());
  // Numbers ascend: this one and all before it are void.
  if (message.withdraw() != 0) served_.Withdraw(message.withdraw());
  while (!promises_.empty() && *promises_.begin() <= message.withdraw()) {
    promises_.erase(promises_.begin());
  }
  if (message.has_plan() || message.has_restore()) Begin();
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
    if (mutation_ != Mutation::kForgetsPromise) first = served_.Propose(proposal.proposal(), first);
    last_reply_.set_proposal(proposal.proposal());
    last_reply_.set_first_exchange(first.value());
  }
  v1::ShardMessage message;
  *message.mutable_proposal_reply() = last_reply_;
  Say(std::move(message));
}

void SimServer::ApplyPlan(const v1::Plan& text) {
  const Plan plan = ToPlan(text);
  checker_->OnPlanTold(plan);
  checker_->OnPlan(copy_, plan);
  Plan believed = plan;
  if (mutation_ == Mutation::kServerForgetsRemoval && rank_ == ShardId(0)) {
    for (const PlanMember& m : shard().plan().members) {
      if (plan.Find(m.member) == nullptr) believed.members.push_back(m);
    }
  }
  if (mutation_ == Mutation::kForgetsDepartedSites && rank_ == ShardId(0)) {
    believed.departed.clear();
  }
  v1::ShardMessage message;
  v1::PlanApplied& applied = *message.mutable_applied();
  applied.set_generation(plan.generation.value());
  for (const Shard::Removed& removed : served_.SetPlan(believed)) {
    v1::PlanApplied::Removed& entry = *applied.add_removed();
    entry.set_member(removed.member.value());
    const bool is_wrong = mutation_ == Mutation::kMisreportsRemoved && rank_ == ShardId(0);
    entry.set_last_exchange(removed.last_exchange.value() + (is_wrong ? 1 : 0));
  }
  Say(std::move(message));
}

void SimServer::SendCounters(bool closing) {
  v1::ShardMessage message;
  message.set_leaves(leaving_);
  v1::ServerCounters& text = *message.mutable_counters();
  text = ToMessage(shard().counters());
  if (mutation_ == Mutation::kCountsOneMore) text.set_examples(text.examples() + 1);
  checker_->OnCounters(copy_, text);
  text.set_rank(rank_.value());
  text.set_parked_pulls(reads_.size());
  for (const MemberId member : shard().WaitsFor()) {
    text.add_waits_for_ranks(shard().plan().Find(member)->rank.value());
  }
  text.set_closing(closing);
  // What is said before there is a connection, or while it breaks, is said again.
  const bool repeats = mutation_ != Mutation::kSaysReportsOnce;
  const std::optional<CoreReport> report = served_.core_report();
  if (report && repeats) *message.mutable_core_report() = ToMessage(*report);
  Say(std::move(message));
}

void SimServer::Heartbeat() {
  if (closed_) return AwaitEnd();
  CheckWaiting();
  if (coordinator_->is_here() && coordinator_life_ != coordinator_->life()) Attach();
  SendCounters(/*closing=*/false);
  network_->After(node_, absl::Milliseconds(100), [this] { Heartbeat(); });
}

// As AttachLink: once it has said its last counters its process ends with the connection.
void SimServer::AwaitEnd() {
  if (!coordinator_->is_kept()) return;
  if (coordinator_life_ == coordinator_->life() && coordinator_->is_here()) {
    return network_->After(node_, absl::Milliseconds(100), [this] { AwaitEnd(); });
  }
  if (options_.on_refused) return options_.on_refused();
  network_->Kill(node_);
}

void SimServer::Push(const std::function<ReceivedPush()>& make,
                     std::function<void(absl::StatusOr<PushAccepted>)> answer) {
  ReceivedPush push = make();
  const MemberId member = push.member;
  const Exchange exchange = push.exchange;
  const bool loses =
      mutation_ == Mutation::kLosesStaged && rank_ == ShardId(0) && network_->dice().Chance(0.05);
  if (loses) return answer(PushAccepted{});
  const bool is_member = checker_->IsMember(copy_, member);
  served_.Accept(std::move(push), [=](absl::StatusOr<PushAccepted> accepted) {
    if (accepted.ok() && !is_member) checker_->OnAcceptedOfNone(copy_, member);
    if (accepted.ok() && !accepted->need_keys) {
      checker_->OnAcknowledged(copy_, member, exchange);
    }
    if (mutation_ == Mutation::kAppliesDuplicates && accepted.ok() && accepted->duplicate) {
      ReceivedPush again = make();
      again.exchange = again.exchange.Next();
      shard().Accept(std::move(again)).IgnoreError();
    }
    answer(accepted);
  });
  Work();
}

void SimServer::ReadOutside(MemberId member, Exchange after, IdleNotice word,
                            std::function<void(absl::StatusOr<ReadOfMoment>)> answer) {
  // It reads at once, and may answer before there is a moment to compare, or when a standby has it.
  struct Reading {
    std::optional<ReadOfMoment> read;
    std::optional<absl::Status> said;
  };
  const auto reading = std::make_shared<Reading>();
  const auto end = [reading, answer] {
    if (!reading->read || !reading->said) return;
    if (!reading->said->ok()) return answer(*reading->said);
    answer(*reading->read);
  };
  served_.ReadOutside(member, after, word, Clock(),
                      [reading, end](const absl::StatusOr<ReadResult>& said) {
                        reading->said = said.status();
                        end();
                      });
  const ReadResult now = shard().ReadNow();
  checker_->OnReadOutside(copy_, member, now.version, ValuesOf(*now.snapshot));
  reading->read = {checker_->IsInRound(copy_), checker_->KnowledgeOf(copy_)};
  end();
  Work();
}

void SimServer::Pull(MemberId member, Exchange after, IdleNotice word, std::optional<CoreName> core,
                     std::function<void(absl::StatusOr<PulledValues>)> answer) {
  Read({member, after, std::nullopt, false, core}, word, std::move(answer));
}

void SimServer::Fetch(MemberId member, const SubnetPlace& asked, bool waits_only,
                      std::function<void(absl::StatusOr<PulledValues>)> answer) {
  Read({member, Exchange(asked.round - 1), asked, waits_only, std::nullopt}, IdleNotice(),
       std::move(answer));
}

void SimServer::Read(AskedRead read, IdleNotice word,
                     std::function<void(absl::StatusOr<PulledValues>)> answer) {
  const uint64_t id = next_read_++;
  reads_[id] = {read.member, read.after};
  served_.Read<PulledValues>(
      id, read.member, read.after, word,
      [this, id, read] {
        absl::StatusOr<std::optional<PulledValues>> result = Try(read);
        if (!result.ok() || result->has_value()) reads_.erase(id);
        if (result.ok() && result->has_value()) {
          (**result).known = checker_->KnowledgeOf(copy_);
        }
        return result;
      },
      std::move(answer));
  Work();
}

void SimServer::ReadCore(MemberId member, uint64_t number,
                         std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> answer) {
  served_.Read<std::shared_ptr<const Core>>(
      next_read_++, member, Exchange(0), IdleNotice(),
      [this, member, number] { return shard().ReadCore(member, number); }, std::move(answer));
  Work();
}

void SimServer::Work() {
  had_events_ = true;
  if (working_) return;
  working_ = true;
  // Folding takes time, in which other things arrive.
  network_->After(node_, network_->dice().Between(absl::ZeroDuration(), absl::Milliseconds(1)),
                  [this] {
                    working_ = false;
                    const bool worked = served_.Work(std::exchange(had_events_, false), Clock());
                    FollowSelection();
                    if (worked) {
                      Work();
                    } else {
                      CheckWaiting();
                      SetAlarm();
                    }
                  });
}

absl::StatusOr<std::optional<PulledValues>> SimServer::TrySparse(const AskedRead& read) {
  absl::StatusOr<std::optional<ReadResult>> result =
      shard().Read(read.member, read.after, NamedCore{*read.core, 0, std::nullopt});
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  const ReadResult& found = **result;
  PulledValues pulled;
  pulled.version = found.version;
  pulled.cores = found.cores;
  pulled.checkpoint = found.checkpoint;
  pulled.needs_all = found.entries == nullptr;
  if (pulled.needs_all) return std::optional<PulledValues>(std::move(pulled));
  const EntrySet& entries = static_cast<const SparsePlace&>(*found.entries).keys().entries;
  const std::vector<float> all = ValuesOf(*found.snapshot);
  for (const int64_t place : entries.places()) pulled.values.push_back(all[place]);
  checker_->OnSparseRead(copy_, read.member, shard().plan().Find(read.member)->rank, read.after,
                         pulled.version, read.core->number, entries, pulled.values);
  pulled.values = Coded(found, read.member, pulled.values);
  return std::optional<PulledValues>(std::move(pulled));
}

// As server/rpc/pull_call.cc answers and ValueWriter reads.
std::vector<float> SimServer::Coded(const ReadResult& read, MemberId reader,
                                    const std::vector<float>& values) {
  const CodedKeys& keys = *read.entries->forms().Find(shard().traits().codecs.pull);
  if (keys.codec() == Codec()) return values;
  PayloadRandom random = PayloadRandom::OfValues(shard().traits().seed, read.version, rank_);
  if (mutation_ == Mutation::kRoundsForEach) random.a += reader.value();
  const std::unique_ptr<AnswerPayload> answer =
      CodedPayload(keys, random, read.entries->Source(read.snapshot));
  std::vector<float> seen(values.size());
  Decoder decoder(keys);
  float* next = seen.data();
  while (answer->left() > 0) {
    for (const grpc::Slice& slice : answer->Next(AnswerPayload::kRoomMin)) {
      next += decoder
                  .Assign(reinterpret_cast<const char*>(slice.begin()),
                          static_cast<int64_t>(slice.size()), 1, next, decoder.left())
                  .entries;
    }
  }
  if (mutation_ == Mutation::kCutsBits && keys.codec()->kind() == "bf16") {
    for (size_t i = 0; i < seen.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &values[i], sizeof(bits));
      bits &= 0xffff0000;
      std::memcpy(&seen[i], &bits, sizeof(bits));
    }
  }
  checker_->OnSeen(copy_, keys, values, seen);
  return seen;
}

void SimServer::HearQuestion(v1::CoreQuestion question) {
  if (mutation_ == Mutation::kTakesAllTies && question.ties_size() > 0) {
    question.set_all_ties(true);
    question.clear_ties();
  }
  served_.AskCore(FromMessage(question));
}

void SimServer::FollowSelection() {
  const CoreExchange* const cores = shard().cores();
  if (cores == nullptr) return;
  checker_->FollowSelection(copy_);
  if (cores->core() != nullptr && selected_ != cores->core()->name.number) {
    selected_ = cores->core()->name.number;
    checker_->OnCore(copy_, *cores->core());
  }
}

absl::StatusOr<std::optional<PulledValues>> SimServer::Try(const AskedRead& read) {
  if (read.asked.has_value()) return TryFetch(read);
  if (read.core.has_value()) return TrySparse(read);
  absl::StatusOr<std::optional<ReadResult>> result = shard().Read(read.member, read.after);
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  PulledValues pulled;
  pulled.version = (*result)->version;
  pulled.values = ValuesOf(*(*result)->snapshot);
  pulled.cores = (*result)->cores;
  pulled.checkpoint = (*result)->checkpoint;
  checker_->OnRead(copy_, read.member, read.after, pulled.version, pulled.values);
  pulled.values = Coded(**result, read.member, pulled.values);
  return std::optional<PulledValues>(std::move(pulled));
}

absl::StatusOr<std::optional<PulledValues>> SimServer::TryFetch(const AskedRead& read) {
  absl::StatusOr<std::optional<ReadResult>> result =
      shard().Read(read.member, read.after, *read.asked);
  if (!result.ok()) return result.status();
  if (!result->has_value()) return std::optional<PulledValues>();
  PulledValues pulled;
  pulled.version = (*result)->version;
  pulled.checkpoint = (*result)->checkpoint;
  const auto site = std::static_pointer_cast<const SiteSubnet>((*result)->entries);
  pulled.place = site->place();
  std::optional<std::vector<float>> values;
  if (*pulled.place == *read.asked && !read.waits_only) {
    SubnetGather gather(site, (*result)->snapshot);
    pulled.values.resize(gather.left());
    gather.Next(gather.left(), pulled.values.data());
    values = pulled.values;
  }
  // Whoever still asks has its answer already, and nobody trains the round.
  if (!coordinator_->training_is_over()) {
    checker_->OnFetched(copy_, read.member, *pulled.place, pulled.version, values);
  }
  if (values) {
    pulled.values = Coded(**result, read.member, *values);
  }
  return std::optional<PulledValues>(std::move(pulled));
}

void SimServer::SetAlarm() {
  const absl::Time deadline = shard().Deadline().value_or(absl::InfiniteFuture());
  if (deadline >= alarm_) return;
  alarm_ = deadline;
  network_->After(node_, std::max(absl::ZeroDuration(), deadline - Clock()), [this] {
    alarm_ = absl::InfiniteFuture();
    Work();
  });
}

void SimServer::CheckWaiting() {
  if (working_ || !has_begun_) return;
  std::vector<Checker::Reader> readers;
  for (const auto& [id, reader] : reads_) readers.push_back(reader);
  checker_->OnWaiting(copy_, readers, shard().WaitsFor(),
                      !promises_.empty() || shard().Deadline().has_value());
}

std::string SimServer::Describe() const {
  std::string text =
      absl::StrCat("server ", rank_.value(), ": collecting ", shard().counters().collecting.value(),
                   ", staged bytes ", shard().counters().staged_bytes, ", promises ",
                   promises_.size(), ", waits for members");
  for (const MemberId member : shard().WaitsFor()) absl::StrAppend(&text, " ", member.value());
  absl::StrAppend(&text, "; reads of");
  for (const auto& [id, reader] : reads_) {
    absl::StrAppend(&text, " ", reader.member.value(), "@", reader.after.value());
  }
  return text;
}

}  // namespace tessera
