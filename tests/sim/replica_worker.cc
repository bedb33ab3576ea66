#include "tests/sim/replica_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/control_protocol.h"
#include "tests/server/shard/shard_fixture.h"
#include "tests/sim/checker.h"

namespace tessera {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(20);

}  // namespace

ReplicaWorker::ReplicaWorker(ReplicaWorld* world, Options options)
    : world_(*world), options_(options), node_(world->network->AddNode()) {
  world_.network->After(node_, absl::ZeroDuration(), [this] { Join(); });
}

void ReplicaWorker::GiveUp(const absl::Status& status) {
  const MemberRecord* record = world_.coordinator->state().membership().members().Find(member_);
  const Coordinator& job = world_.coordinator->state();
  const std::string state = job.Status(world_.network->now()).state();
  const bool running = state != "draining" && state != "done";
  if (record != nullptr && IsLive(record->state) && running) {
    world_.Violate(absl::StrCat("live member ", member_.value(),
                                " was refused: ", std::string(status.message())));
  }
  world_.network->Kill(node_);
}

void ReplicaWorker::Join() {
  v1::JoinRequest request;
  request.set_member(member_.value());
  request.set_protocol(kControlProtocol);
  request.set_layout_hash(world_.coordinator->state().facts().layout_hash);
  request.set_rows(1000);
  request.set_life(options_.life);
  if (options_.rank.has_value()) request.set_rank(*options_.rank);
  world_.coordinator->Ask<v1::JoinReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Join(request, now); },
      [this](std::optional<absl::StatusOr<v1::JoinReply>> reply) {
        if (reply.has_value() && reply->ok()) {
          member_ = MemberId((*reply)->member());
          if ((*reply)->admitted()) return OnAdmitted(**reply);
          if ((*reply)->waiting_for().empty()) {
            world_.Violate(
                absl::StrCat("member ", member_.value(), " is not admitted and waits for nobody"));
          }
        } else if (reply.has_value() && !absl::IsAlreadyExists(reply->status())) {
          return GiveUp(reply->status());
        }
        world_.network->After(node_, absl::Milliseconds(50), [this] { Join(); });
      });
}

void ReplicaWorker::OnAdmitted(const v1::JoinReply& reply) {
  exchange_ = Exchange(reply.first_exchange() - 1);
  step_ = reply.first_step();
  warms_up_ = step_ < world_.coordinator->state().facts().warmup_steps;
  rank_ = reply.rank();
  TakeList(reply.server_list());
  for (const v1::ServerEntry& entry : reply.server_list().servers()) {
    if (entry.rank() == rank_) home_ = entry.life();
  }
  if (home_ == 0) return GiveUp(absl::InternalError("admitted without a server beside it"));
  Renew();
  exchanging_ = true;
  PullFromHome();
}

void ReplicaWorker::Renew() {
  v1::RenewRequest request;
  request.set_member(member_.value());
  request.set_servers_known(list_generation_);
  request.mutable_progress()->set_step(step_);
  request.mutable_progress()->set_exchange(exchange_.value());
  request.mutable_progress()->set_work(work_);
  request.mutable_progress()->set_beats(beats_);
  world_.coordinator->Ask<v1::RenewReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Renew(request, now); },
      [this](std::optional<absl::StatusOr<v1::RenewReply>> reply) {
        if (reply.has_value() && !reply->ok()) return GiveUp(reply->status());
        if (reply.has_value() && (*reply)->has_server_list()) TakeList((*reply)->server_list());
        world_.network->After(node_, absl::Milliseconds(250), [this] { Renew(); });
      });
}

void ReplicaWorker::TakeList(const v1::ServerList& list) {
  if (list.generation() <= list_generation_) return;
  list_generation_ = list.generation();
  servers_.clear();
  for (const v1::ServerEntry& entry : list.servers()) servers_.insert(entry.life());
  // Pushes to those that have gone are given up.
  for (auto it = missing_.begin(); it != missing_.end();) {
    it = servers_.count(*it) == 0 ? missing_.erase(it) : std::next(it);
  }
  OnPart();
}

void ReplicaWorker::EndWarmUp() {
  v1::RenewRequest request;
  request.set_member(member_.value());
  request.set_servers_known(list_generation_);
  request.mutable_progress()->set_step(step_);
  request.mutable_progress()->set_exchange(exchange_.value());
  request.mutable_progress()->set_beats(beats_);
  request.set_ends_warm_up(true);
  world_.coordinator->Ask<v1::RenewReply>(
      node_, [request](Coordinator& c, absl::Time now) { return c.Renew(request, now); },
      [this](std::optional<absl::StatusOr<v1::RenewReply>> reply) {
        if (reply.has_value() && !reply->ok()) return GiveUp(reply->status());
        if (reply.has_value() && (*reply)->begin_first().empty()) {
          warms_up_ = false;
          return Step();
        }
        world_.network->After(node_, absl::Milliseconds(50), [this] { EndWarmUp(); });
      });
}

void ReplicaWorker::Step() {
  if (step_ >= options_.steps || stopping_) return Leave();
  if (warms_up_ && step_ >= world_.coordinator->state().facts().warmup_steps) return EndWarmUp();
  work_ = v1::Progress::MINIBATCH;
  ++beats_;
  world_.network->After(
      node_, options_.step_time * (0.5 + 0.01 * world_.network->dice().Below(100)), [this] {
        if (hangs_) return;
        work_ = v1::Progress::NOTHING;
        ++beats_;
        ++step_;
        PushPull();
      });
}

void ReplicaWorker::PushPull() {
  exchange_ = exchange_.Next();
  exchanging_ = true;
  pulled_ = false;
  missing_ = servers_;
  const std::set<uint64_t> all = servers_;
  for (const uint64_t life : all) PushTo(life, exchange_);
  PullFromHome();
}

ReceivedPush ReplicaWorker::MakePush(const ReplicaServer& to, Exchange exchange) const {
  ReceivedPush push;
  push.member = member_;
  push.exchange = exchange;
  push.kind = static_cast<int>(PayloadKind::kDelta);
  push.examples = 1;
  push.from_peer = to.life() != home_;
  push.layout_hash = to.layout_hash();
  std::vector<float> values(to.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(UpdateEntry(world_.seed, member_, exchange, i));
  }
  push.payload = PayloadOf(values);
  return push;
}

void ReplicaWorker::PushTo(uint64_t life, Exchange exchange) {
  if (missing_.count(life) == 0 || exchange != exchange_) return;
  ReplicaServer* const to = world_.servers.at(life);
  world_.network->Call<absl::StatusOr<PushAccepted>>(
      node_, to->node(),
      [this, to, exchange](auto answer) { to->Push(MakePush(*to, exchange), answer); },
      [this, life, exchange](std::optional<absl::StatusOr<PushAccepted>> reply) {
        if (!reply.has_value() || absl::IsUnavailable(reply->status())) {
          world_.network->After(node_, kRetryPause,
                                [this, life, exchange] { PushTo(life, exchange); });
          return;
        }
        // An answer to a push that was given up is nobody's.
        if (missing_.count(life) == 0 || exchange != exchange_) return;
        if (!reply->ok()) return GiveUp(reply->status());
        missing_.erase(life);
        OnPart();
      });
}

void ReplicaWorker::PullFromHome() {
  ReplicaServer* const from = world_.servers.at(home_);
  world_.network->Call<absl::StatusOr<bool>>(
      node_, from->node(),
      [from, member = member_, after = exchange_](auto answer) {
        from->Pull(member, after, answer);
      },
      [this](std::optional<absl::StatusOr<bool>> reply) {
        if (!reply.has_value() || absl::IsUnavailable(reply->status())) {
          world_.network->After(node_, kRetryPause, [this] { PullFromHome(); });
          return;
        }
        if (!reply->ok()) return GiveUp(reply->status());
        pulled_ = true;
        OnPart();
      });
}

void ReplicaWorker::OnPart() {
  if (!exchanging_ || !pulled_ || !missing_.empty()) return;
  exchanging_ = false;
  Step();
}

void ReplicaWorker::Leave() {
  v1::LeaveRequest request;
  request.set_member(member_.value());
  world_.coordinator->Ask<v1::LeaveReply>(
      node_,
      [request](Coordinator& c, absl::Time now) -> absl::StatusOr<v1::LeaveReply> {
        absl::Status left = c.Leave(request, now);
        if (!left.ok()) return left;
        return v1::LeaveReply();
      },
      [this](std::optional<absl::StatusOr<v1::LeaveReply>> reply) {
        if (reply.has_value()) return world_.network->Kill(node_);
        world_.network->After(node_, kRetryPause, [this] { Leave(); });
      });
}

}  // namespace tessera
