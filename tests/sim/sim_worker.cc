#include "tests/sim/sim_worker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/control_protocol.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {

SimWorker::SimWorker(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker,
                     Options options)
    : network_(network),
      coordinator_(coordinator),
      checker_(checker),
      options_(std::move(options)),
      node_(network->AddNode()),
      doors_(options_.doors),
      lives_(doors_.size()),
      known_(doors_.size()),
      bases_(doors_.size()),
      numbers_(NumbersOf(*options_.shape)),
      dense_(DenseKeys(*options_.shape, static_cast<int>(doors_.size()))),
      replica_(options_.shape->size),
      versions_(doors_.size()) {
  network_->After(node_, absl::ZeroDuration(), [this] { Join(); });
}

void SimWorker::Crash() { network_->Kill(node_); }

void SimWorker::GiveUp(const absl::Status& status) {
  if (std::exchange(gave_up_, true)) return;
  const absl::Status why(status.code(), absl::StrCat(doing_, ": ", status.message()));
  if (options_.folder == nullptr || member_ == MemberId()) return End(why.message());
  const RejoinQuestion question(why, coordinator_->state().facts().lease_timeout, network_->now());
  if (!question.may_be_server()) return End(why.message());
  AskWhetherToRejoin(question, std::string(why.message()));
}

void SimWorker::End(absl::string_view why) {
  CheckIsRemoved(why);
  network_->Kill(node_);
}

void SimWorker::CheckIsRemoved(absl::string_view what) {
  const MemberRecord* record = coordinator_->state().membership().members().Find(member_);
  const bool running = coordinator_->state().outcome().ok() && !coordinator_->state().ended();
  // The others had finished before its turn to join came.
  const bool came_late = record != nullptr && !IsCounted(record->state) &&
                         absl::StrContains(what, "the job has ended");
  if (came_late) return;
  if (record != nullptr && IsLive(record->state) && running &&
      !coordinator_->state().membership().servers().AllClosed()) {
    checker_->OnLiveMemberRefused(member_, what);
  }
}

// --- the control plane ---

void SimWorker::Join() {
  v1::JoinRequest request;
  request.set_member(member_.value());
  request.set_protocol(kControlProtocol);
  request.set_layout_hash(coordinator_->state().facts().layout_hash);
  request.set_rows(options_.rows);
  request.set_life(options_.life);
  if (options_.rank.has_value()) request.set_rank(*options_.rank);
  coordinator_->Ask<v1::JoinReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Join(request, now); },
      [this](std::optional<absl::StatusOr<v1::JoinReply>> reply) {
        if (reply.has_value() && reply->ok()) {
          member_ = MemberId((*reply)->member());
          rank_ = Rank((*reply)->rank());
          checker_->OnNamed(member_, options_.life);
          if ((*reply)->admitted()) return OnAdmitted(**reply);
          if ((*reply)->waiting_for().empty()) {
            checker_->Violate(
                absl::StrCat("member ", member_.value(), " is not admitted and waits for nobody"));
          }
        } else if (reply.has_value() && !absl::IsAlreadyExists(reply->status())) {
          return End(reply->status().message());
        }
        network_->After(node_, absl::Milliseconds(50), [this] { Join(); });
      });
}

void SimWorker::OnAdmitted(const v1::JoinReply& reply) {
  generation_ = Generation(reply.generation());
  checker_->OnAdmitted(member_, Exchange(reply.first_exchange()), generation_);
  if (reply.has_server_list()) FollowLeaders(reply.server_list());
  exchange_ = Exchange(reply.first_exchange() - 1);
  step_ = reply.first_step();
  epoch_ = reply.epoch();
  checkpoint_number_ = reply.checkpoint_number();
  evaluates_at_start_ = reply.evaluation_due() ? 1 : 0;
  if (reply.has_resume()) Resume(reply);
  if (options_.subnets != nullptr) ExpectFirst(reply);
  if (options_.core.has_value()) BeginKeys(Rank(reply.rank()));
  BeginCoding();
  Renew();
  PullFirst();
}

void SimWorker::BeginTraining() {
  doing_ = "beginning to train";
  Retry<v1::LeaveReply>(
      [this](auto done) {
        coordinator_->Ask<v1::LeaveReply>(
            node_,
            [member = member_](Coordinator& c, absl::Time now) -> absl::StatusOr<v1::LeaveReply> {
              absl::Status begun = c.BeginTraining(member, now);
              if (!begun.ok()) return begun;
              return v1::LeaveReply();
            },
            done);
      },
      [this](absl::StatusOr<v1::LeaveReply> begun) {
        if (!begun.ok()) return GiveUp(begun.status());
        BeginEpoch([this] { Train(); });
      });
}

v1::Progress SimWorker::ProgressText() const {
  v1::Progress progress;
  progress.set_step(step_);
  progress.set_exchange(exchange_.value() - (in_flight_ ? 1 : 0));
  progress.set_epoch(epoch_);
  progress.set_examples(examples_);
  progress.set_work(work_);
  progress.set_beats(beats_);
  progress.set_steps_per_second(1 / absl::ToDoubleSeconds(options_.step_time));
  progress.set_speed_steps(step_ % 8);
  progress.set_batch_rows(cut_.batch_rows());
  return progress;
}

void SimWorker::AskRenewal(std::function<void(bool heard)> then) {
  v1::RenewRequest request;
  request.set_member(member_.value());
  *request.mutable_progress() = ProgressText();
  request.set_drain_seen(drain_exchange_);
  request.set_servers_known(servers_known_);
  coordinator_->Ask<v1::RenewReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Renew(request, now); },
      [this, then](std::optional<absl::StatusOr<v1::RenewReply>> reply) {
        if (reply.has_value() && !reply->ok()) return End(reply->status().message());
        if (reply.has_value() && (*reply)->rejoin()) return Rejoin();
        if (reply.has_value()) {
          drain_exchange_ = std::max(drain_exchange_, (*reply)->drain_exchange());
          step_budget_ = (*reply)->step_budget();
          if (step_budget_ > options_.local_steps) checker_->Violate("a budget above the job's");
          if ((*reply)->has_server_list()) FollowLeaders((*reply)->server_list());
        }
        then(reply.has_value());
      });
}

void SimWorker::Renew() {
  AskRenewal([this](bool heard) {
    const absl::Duration lease = coordinator_->state().facts().lease_timeout;
    network_->After(node_, heard ? lease / 4 : lease / 20, [this] { Renew(); });
  });
}

void SimWorker::OnTrouble() {
  if (!options_.find || std::exchange(renews_soon_, true)) return;
  AskRenewal([this](bool) { renews_soon_ = false; });
}

// As ParameterClientGrpc::FollowLeaders.
void SimWorker::FollowLeaders(const v1::ServerList& list) {
  if (!options_.find || list.generation() <= servers_known_) return;
  servers_known_ = list.generation();
  for (const v1::ServerEntry& entry : list.servers()) {
    const size_t server = entry.rank();
    ShardDoor* const door = options_.find(entry.address());
    if (lives_[server] == entry.life() || door == nullptr) continue;
    lives_[server] = entry.life();
    doors_[server] = door;
    bool pushes = false;
    for (const auto& call : calls_) {
      pushes = pushes || (call->server == server && call->kind == CallKind::kPush && !call->done);
    }
    const std::vector<std::shared_ptr<ShardCall>> calls = calls_;
    for (const auto& call : calls) {
      if (call->server != server) continue;
      // What it answered while the push was open may have been lost with it.
      if (pushes && call->kind == CallKind::kPull && call->done) {
        call->done = false;
        ++parts_missing_;
      }
      if (!call->done) call->start();
    }
  }
}

void SimWorker::BeginEpoch(std::function<void()> then) {
  if (Finished()) return then();
  doing_ = absl::StrCat("beginning epoch ", epoch_);
  v1::BeginEpochRequest request;
  request.set_member(member_.value());
  request.set_epoch(epoch_);
  request.set_step(step_);
  Retry<v1::EpochCut>(
      [this, request](auto done) {
        coordinator_->Ask<v1::EpochCut>(
            node_, [request](Coordinator& c, absl::Time now) { return c.BeginEpoch(request, now); },
            done);
      },
      [this, then = std::move(then)](absl::StatusOr<v1::EpochCut> cut) {
        if (!cut.ok()) return GiveUp(cut.status());
        cut_ = *std::move(cut);
        const bool reads_twice = options_.mutation == Mutation::kReadsTwice && cut_.parts() > 1;
        if (reads_twice) cut_.set_part(0);
        checker_->OnCut(member_, rank_, epoch_, cut_);
        if (step_ >= cut_.first_step() + cut_.steps()) {
          // Epochs get shorter as workers join: one that joins late may begin past the epoch it was
          // told.
          ++epoch_;
          if (!options_.lockstep) ++evaluates_at_start_;
          if (Finished()) step_ = cut_.first_step() + cut_.steps();
          return Finished() ? then() : BeginEpoch(then);
        }
        if (step_ < cut_.first_step()) {
          return checker_->Violate(absl::StrCat(
              "member ", member_.value(), ": step ", step_, " is not in epoch ", epoch_,
              ", steps [", cut_.first_step(), ", ", cut_.first_step() + cut_.steps(), ")"));
        }
        then();
      });
}

void SimWorker::Leave() {
  doing_ = "leaving";
  checker_->OnFinishes(member_, exchange_, Finished());
  if (Finished()) checker_->OnFlushed(member_, exchange_);
  v1::LeaveRequest request;
  request.set_member(member_.value());
  Retry<v1::LeaveReply>(
      [this, request](auto done) {
        coordinator_->Ask<v1::LeaveReply>(
            node_,
            [request](Coordinator& c, absl::Time now) -> absl::StatusOr<v1::LeaveReply> {
              absl::Status left = c.Leave(request, now);
              if (!left.ok()) return left;
              return v1::LeaveReply();
            },
            done);
      },
      [this](absl::StatusOr<v1::LeaveReply>) { network_->Kill(node_); });
}

// --- the data plane ---

void SimWorker::Train() {
  if (stands()) return;
  if (since_exchange_ == 0 && (Finished() || evaluates_at_start_ > 0)) {
    // It joined when no step was left, or begins where an evaluation is due.
    evaluates_at_start_ = std::max(0, evaluates_at_start_ - 1);
    last_ = Finished();
    return Arrive();
  }
  // A budget may have shrunk meanwhile.
  if (since_exchange_ > 0 && (since_exchange_ >= StepsUntilExchange() || Finished())) {
    return in_flight_ ? EndOverlapped() : TakeCores([this] { PushPull(); });
  }
  doing_ = "computing";
  Begin(v1::Progress::MINIBATCH);
  network_->After(node_, options_.step_time * (0.5 + 0.01 * network_->dice().Below(100)),
                  [this] { OnStep(); });
}

void SimWorker::OnStep() {
  if (hangs_ || stands()) return;
  Begin(v1::Progress::NOTHING);
  ++step_;
  ++examples_;
  ++since_exchange_;
  if (step_ < cut_.first_step() + cut_.steps()) return Train();
  ++epoch_;
  evaluation_due_ = true;
  if (Finished()) return Train();
  BeginEpoch([this] { Train(); });
}

void SimWorker::PushPull() {
  if (stands()) return;
  told_ = {};
  const bool rests = evaluation_due_ || Finished() || IsLast(exchange_) ||
                     (options_.overlaps && IsLast(exchange_.Next()));
  const IdleNotice word = rests ? NextRest() : IdleNotice();
  const bool flushes = options_.codecs.flush && IsLastPush(exchange_);
  exchange_ = exchange_.Next();
  doing_ = absl::StrCat("exchange ", exchange_.value());
  if (flushes && keys_ != nullptr) keys_->PushAll();
  EncodePush(flushes);
  if (options_.subnets != nullptr) {
    // The last round's subnets go back, and no other is fetched.
    FetchAll(/*waits_only=*/Finished());
    parts_missing_ += doors_.size();
    for (size_t server = 0; server < doors_.size(); ++server) {
      if (options_.forges) Forge(server);
      SendPush(server, SubnetPush(server));
    }
    return;
  }
  parts_missing_ = 2 * doors_.size();
  for (size_t server = 0; server < doors_.size(); ++server) {
    if (keys_ == nullptr) {
      SendPush(server, MakePush(server));
    } else {
      const std::function<ReceivedPush()> push = SparsePush(server);
      if (options_.forges) ForgeSparse(server, push);
      SendPush(server, push);
    }
    PullFrom(server, exchange_, word);
  }
  if (options_.overlaps && !rests) TrainOn();
}

void SimWorker::PullFirst() {
  doing_ = absl::StrCat("pull after ", exchange_.value());
  if (options_.subnets != nullptr) return FetchAll(/*waits_only=*/false);
  parts_missing_ = doors_.size();
  for (size_t server = 0; server < doors_.size(); ++server) {
    PullFrom(server, exchange_, IdleNotice());
  }
}

// As TrainLoop::DoExchange. In lockstep it may be that it hears of a drain only while it waits for that exchange.
bool SimWorker::IsLastPush(Exchange before) const {
  return Finished() || IsLast(before) || (options_.lockstep && IsLast(before.Next()));
}

void SimWorker::SendPush(size_t server, std::function<ReceivedPush()> make) {
  CallShard<PushAccepted>(
      server, CallKind::kPush, [make](SimServer* to, auto answer) { to->Push(make, answer); },
      [this, server, make](absl::StatusOr<PushAccepted> accepted) {
        if (!accepted.ok()) return GiveUp(accepted.status());
        if (accepted->need_keys) return SendPush(server, WithKeys(server, make));
        OnPart();
      });
}

void SimWorker::PullFrom(size_t server, Exchange after, IdleNotice word) {
  CallShard<PulledValues>(
      server, CallKind::kPull,
      [member = member_, after, word, core = PulledCore(server)](SimServer* from, auto answer) {
        from->Pull(member, after, word, core, answer);
      },
      [this, server](absl::StatusOr<PulledValues> pulled) {
        if (!pulled.ok()) return GiveUp(pulled.status());
        bases_[server] = pulled->version;
        known_[server] = pulled->known;
        Hear(pulled->checkpoint);
        cores_told_ = std::max(cores_told_, pulled->cores);
        needs_all_ = needs_all_ || pulled->needs_all;
        // The servers' values are checked where they are read.
        if (keys_ != nullptr) return OnPart();
        size_t at = 0;
        for (const int64_t number : NumbersIn(numbers_, options_.slices[server])) {
          replica_[number] = pulled->values[at++];
        }
        OnPart();
      });
}

void SimWorker::OnPart() {
  if (--parts_missing_ > 0) return;
  // Those of a core may go on.
  calls_.erase(
      std::remove_if(calls_.begin(), calls_.end(),
                     [](const auto& call) { return call->done || call->kind != CallKind::kOther; }),
      calls_.end());
  for (size_t server = 0; server < known_.size(); ++server) {
    checker_->OnTold(ShardId(server), member_, known_[server]);
  }
  OnExchangeDone();
}

void SimWorker::OnExchangeDone() {
  if (keys_ != nullptr && !FollowKeys()) return;
  if (options_.subnets == nullptr) {
    checker_->OnReplica(member_, exchange_, replica_);
  } else if (!FollowCut()) {
    return;
  }
  if (!has_pulled_) {
    has_pulled_ = true;
    return BeginTraining();
  }
  if (in_flight_) {
    has_come_ = true;
    return waits_for_it_ ? EndOverlapped() : void();
  }
  since_exchange_ = 0;
  last_ = Finished();
  const bool evaluates = rest_.rests || (options_.lockstep && IsLast(exchange_));
  SaveIfAsked(ProgressText(), evaluation_due_,
              [this, evaluates] { evaluates ? Arrive() : Train(); });
}

std::string SimWorker::Describe() const {
  return absl::StrCat("member ", member_.value(), is_over() ? " is over" : "", ": ", doing_,
                      ", step ", step_);
}

}  // namespace tessera
