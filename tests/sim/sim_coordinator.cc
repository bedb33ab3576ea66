#include "tests/sim/sim_coordinator.h"

#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr uint64_t kRun = 1;
constexpr uint64_t kServerKey = 7;
// LiveCoordinator's.
constexpr absl::Duration kKeepPatience = absl::Milliseconds(250);

}  // namespace

SimCoordinator::SimCoordinator(FaultyNetwork* network, JobFacts facts, Options options)
    : network_(network), facts_(facts), options_(options), node_(network->AddNode()) {
  absl::StatusOr<std::unique_ptr<Coordinator>> created =
      Coordinator::Create(std::move(facts), network->now());
  TESSERA_CHECK(created.ok());
  v1::CoordinatorWord word;
  word.set_run(kRun);
  word.set_server_key(kServerKey);
  word.set_term(1);
  word.set_away_timeout_ns(absl::ToInt64Nanoseconds(options_.away_timeout));
  Install(*std::move(created), word);
}

// As LiveCoordinator::Install.
void SimCoordinator::Install(std::unique_ptr<Coordinator> coordinator,
                             const v1::CoordinatorWord& word) {
  ++life_;
  ticked_ = network_->now();
  kept_ = std::make_unique<KeptCoordinator>(std::move(coordinator), word, options_.is_kept);
  if (options_.is_kept) {
    stored_ = kept_->State(Moment());
    kept_->OnKept(stored_.changes(), /*in_time=*/true);
  }
  Tick();
}

void SimCoordinator::Tick() {
  const absl::Time now = network_->now();
  // As LiveCoordinator: where it did not run for long, nobody was listening.
  if (now - std::exchange(ticked_, now) > facts_.lease_timeout / 2) state().ExtendLeases(now);
  // With the mutation leases are over long before their time.
  const bool is_early = options_.mutation == Mutation::kTicksEarly;
  state().Tick(now + (is_early ? 0.8 * facts_.lease_timeout : absl::ZeroDuration()));
  if (options_.on_status) options_.on_status(state().Status(now), life_);
  Deliver();
  network_->After(node_, facts_.lease_timeout / 10, [this] { Tick(); });
}

void SimCoordinator::Die() {
  network_->Kill(node_);
  // What was written may be kept, though it was not heard of.
  if (writing_ && network_->dice().Chance(0.5)) stored_ = *writing_;
  writing_.reset();
  const bool has_told = kept_->is_late() && kept_->changes() > stored_.changes();
  has_told_unkept_ = has_told_unkept_ || (has_told && options_.mutation != Mutation::kTellsUnkept);
  // Nobody hears of what it was doing in the folder, and it may be done.
  if (works_on_folder_ && network_->dice().Chance(0.5)) {
    options_.folder->Perform(tasks_.front()).IgnoreError();
  }
  works_on_folder_ = false;
  tasks_.clear();
  // Of its words that are on their way some arrive.
  for (const auto& [rank, link] : links_) {
    if (network_->dice().Chance(0.5)) network_->CutStreams(link.node, node_, link.connection);
  }
  for (const auto& [rank, link] : hosts_) {
    if (network_->dice().Chance(0.5)) network_->CutStreams(link.node, node_, link.connection);
  }
  links_.clear();
  hosts_.clear();
  parked_.clear();
  waiting_.clear();
}

// As ServerControl::Take and Install.
void SimCoordinator::Begin() {
  node_ = network_->AddNode();
  v1::CoordinatorState state = stored_;
  ShiftTimes(Moment(), absl::Hours(1), &state);
  if (options_.mutation == Mutation::kForgetsTime) {
    state.mutable_clock()->set_trained(0);
    state.mutable_clock()->set_since(absl::ToUnixNanos(network_->now()));
  }
  absl::StatusOr<std::unique_ptr<Coordinator>> found = Coordinator::Load(facts_, state);
  TESSERA_CHECK(found.ok());
  v1::CoordinatorWord word;
  word.set_run(state.run());
  word.set_server_key(state.server_key());
  word.set_term(state.term() + 1);
  word.set_changes(state.changes());
  word.set_away_timeout_ns(absl::ToInt64Nanoseconds(options_.away_timeout));
  (*found)->Reconnect(network_->now());
  Install(*std::move(found), word);
}

void SimCoordinator::Keep() {
  if (writing_ || !kept_->IsAhead()) return;
  writing_ = kept_->State(Moment());
  Dice& dice = network_->dice();
  const bool is_slow = options_.is_slow && dice.Chance(0.1);
  const absl::Duration taken = is_slow ? dice.Between(absl::ZeroDuration(), absl::Milliseconds(800))
                                       : dice.Between(absl::ZeroDuration(), absl::Milliseconds(4));
  const uint64_t write = ++writes_;
  if (taken > kKeepPatience) {
    network_->After(node_, kKeepPatience, [this, write] {
      if (!writing_ || write != writes_) return;
      kept_->SetLate();
      Deliver();
    });
  }
  network_->After(node_, taken, [this, taken] {
    stored_ = *std::exchange(writing_, std::nullopt);
    kept_->OnKept(stored_.changes(), taken <= kKeepPatience);
    Deliver();
  });
}

void SimCoordinator::WorkOnFolder() {
  if (works_on_folder_ || tasks_.empty()) return;
  works_on_folder_ = true;
  Dice& dice = network_->dice();
  const absl::Duration longest = absl::Milliseconds(dice.Chance(0.1) ? 1500 : 30);
  network_->After(node_, dice.Between(absl::ZeroDuration(), longest), [this] {
    works_on_folder_ = false;
    const DiskTask task = std::move(tasks_.front());
    tasks_.pop_front();
    const bool fails = options_.has_faults && network_->dice().Chance(0.03);
    absl::Status status = absl::UnavailableError("disk error");
    if (!fails) status = options_.folder->Perform(task);
    if (task.is_awaited()) OnDisk(task, status);
    WorkOnFolder();
  });
}

void SimCoordinator::OnDisk(const DiskTask& task, const absl::Status& status) {
  state().OnDisk(task, status, network_->now());
  const bool is_known = task.kind == DiskTask::Kind::kCommit && status.ok() &&
                        state().Status(network_->now()).checkpoint_step() == task.manifest.step;
  if (is_known) WhenTold([this, step = task.manifest.step] { options_.on_whole(step); });
  Deliver();
}

void SimCoordinator::WhenTold(std::function<void()> then) {
  const uint64_t changes = kept_->Collect();
  if (options_.mutation == Mutation::kTellsUnkept || kept_->MayBeTold(changes)) return then();
  waiting_.push_back({changes, std::move(then)});
}

// What every message to a server begins with.
void SimCoordinator::SendWord(ShardId server) {
  const auto link = links_.find(server);
  if (!options_.is_kept || link == links_.end()) return;
  v1::PlanMessage message;
  *message.mutable_word() = kept_->Word();
  network_->Stream(
      node_, link->second.node, [deliver = link->second.deliver, message] { deliver(message); },
      link->second.connection);
}

void SimCoordinator::Attach(NodeId server, v1::ServerHello hello,
                            std::function<void(const v1::PlanMessage&)> deliver,
                            uint64_t connection) {
  const auto arrive = [this, server, hello, deliver = std::move(deliver), connection] {
    const auto link = links_.find(ShardId(hello.rank()));
    const bool is_stale = link != links_.end() && link->second.life == hello.life() &&
                          link->second.connection > connection;
    if (is_stale) return;  // As of a host.
    absl::Status attached = CheckHello(hello);
    if (attached.ok()) attached = state().Attach(hello, network_->now());
    if (attached.ok()) heard_[server] = network_->now();
    // One that joins may be too early: another one of its rank is not known to be gone yet. One that
    // leads may be superseded.
    TESSERA_CHECK(attached.ok() || facts_.replicated || facts_.standbys || facts_.checkpoints ||
                  has_told_unkept_);
    if (attached.ok()) {
      // What a process has sent may outlive it.
      if (!network_->IsAlive(server)) Detach(ShardId(hello.rank()), connection);
      kept_->DropFor(ShardId(hello.rank()));
      links_[ShardId(hello.rank())] = {server, hello.life(), connection, deliver};
      SendWord(ShardId(hello.rank()));
    } else {
      v1::PlanMessage refusal;
      refusal.set_refuse(std::string(attached.message()));
      WhenTold([this, server, deliver, refusal, connection] {
        network_->Stream(
            node_, server, [deliver, refusal] { deliver(refusal); }, connection);
      });
    }
    Deliver();
  };
  network_->Stream(server, node_, arrive, connection);
}

void SimCoordinator::FromServer(NodeId server, ShardId rank, v1::ShardMessage message,
                                uint64_t connection) {
  const auto arrive = [this, server, rank, message = std::move(message), connection] {
    // Another server has come in its place, or it has made another connection.
    const auto link = links_.find(rank);
    if (link == links_.end() || link->second.node != server) return;
    if (link->second.connection != connection) return;
    heard_[server] = network_->now();
    state().OnShardMessage(rank, message, network_->now());
    if (message.has_counters()) SendWord(rank);
    Deliver();
  };
  network_->Stream(server, node_, arrive, connection);
}

void SimCoordinator::Detach(ShardId rank, uint64_t connection) {
  network_->After(node_, absl::Milliseconds(20), [this, rank, connection] {
    const auto link = links_.find(rank);
    if (link == links_.end() || link->second.connection != connection) return;
    const uint64_t life = link->second.life;
    // As LiveCoordinator: what was on its way is not heard any more.
    links_.erase(link);
    state().Detach(rank, life, network_->now());
    Deliver();
  });
}

void SimCoordinator::AttachHost(NodeId host, v1::HostMessage message,
                                std::function<void(const v1::HostOrder&)> deliver,
                                uint64_t connection) {
  const auto arrive = [this, host, message = std::move(message), deliver, connection] {
    const v1::HostHello& hello = message.hello();
    // The same process has given this connection up for a later one, and what came on it is cancelled.
    const auto link = hosts_.find(hello.rank());
    const bool is_stale = link != hosts_.end() && link->second.life == hello.life() &&
                          link->second.connection > connection;
    if (is_stale) return;
    absl::Status attached = CheckHello(hello);
    if (attached.ok()) attached = state().AttachHost(hello, network_->now());
    if (attached.ok()) {
      kept_->DropForHost(hello.rank());
      hosts_[hello.rank()] = {host, hello.life(), connection, deliver};
    } else {
      v1::HostOrder refusal;
      refusal.set_refuse(std::string(attached.message()));
      WhenTold([this, host, deliver, refusal, connection] {
        network_->Stream(
            node_, host, [deliver, refusal] { deliver(refusal); }, connection);
      });
    }
    Deliver();
  };
  network_->Stream(host, node_, arrive, connection);
}

void SimCoordinator::FromHost(NodeId host, uint32_t rank, v1::HostMessage message,
                              uint64_t connection) {
  const auto arrive = [this, rank, message = std::move(message), connection] {
    const auto link = hosts_.find(rank);
    if (link == hosts_.end() || link->second.connection != connection) return;
    state().OnHostMessage(rank, message, network_->now());
    Deliver();
  };
  network_->Stream(host, node_, arrive, connection);
}

void SimCoordinator::DetachHost(uint32_t rank, uint64_t connection) {
  network_->After(node_, absl::Milliseconds(5), [this, rank, connection] {
    const auto found = hosts_.find(rank);
    if (found == hosts_.end() || found->second.connection != connection) return;
    const uint64_t life = found->second.life;
    hosts_.erase(found);
    state().DetachHost(rank, life, network_->now());
    Deliver();
  });
}

void SimCoordinator::Evaluate(NodeId from, v1::EvaluateRequest request,
                              Done<v1::EvaluateReply> done) {
  network_->Call<absl::StatusOr<v1::EvaluateReply>>(
      from, node_,
      [this, from, request](std::function<void(absl::StatusOr<v1::EvaluateReply>)> answer) {
        heard_[from] = network_->now();
        const absl::Status asked = state().Evaluate(request, network_->now());
        if (asked.ok()) {
          auto& parked = parked_[MemberId(request.member())];
          if (parked.answer) {
            parked.answer(absl::AbortedError("evaluate: a later call of this member replaced it"));
          }
          parked = {kept_->events(), std::move(answer)};
        } else {
          WhenTold([answer = std::move(answer), asked] { answer(asked); });
        }
        Deliver();
      },
      std::move(done));
}

void SimCoordinator::Drain() {
  state().Drain("the simulation wants it", network_->now());
  Deliver();
}

void SimCoordinator::AskForCheckpoint() {
  (void)state().Checkpoint("the simulation wants it", network_->now());
  Deliver();
}

bool SimCoordinator::training_is_over() const {
  for (const auto& [member, record] : state().membership().members().all()) {
    if (record.state == MemberState::kLeft && record.ended == "finished") return true;
  }
  return false;
}

void SimCoordinator::Deliver() {
  kept_->Collect();
  const bool tells_all = options_.mutation == Mutation::kTellsUnkept;
  if (tells_all) kept_->SetLate();
  KeptCoordinator::Told told = kept_->Release();
  if (told.ahead) {
    for (const auto& [rank, link] : links_) SendWord(rank);
  }
  for (KeptCoordinator::Batch& batch : told.batches) Send(std::move(batch));
  while (!waiting_.empty() && kept_->MayBeTold(waiting_.front().changes)) {
    const std::function<void()> then = std::move(waiting_.front().then);
    waiting_.pop_front();
    then();
  }
  Keep();
}

void SimCoordinator::Send(KeptCoordinator::Batch batch) {
  for (Outgoing& outgoing : batch.outbox) {
    const auto link = links_.find(outgoing.server);
    if (link == links_.end()) continue;
    network_->Stream(
        node_, link->second.node,
        [deliver = link->second.deliver, message = std::move(outgoing.message)] {
          deliver(message);
        },
        link->second.connection);
  }
  for (HostOutgoing& outgoing : batch.host_outbox) {
    const auto link = hosts_.find(outgoing.host);
    if (link == hosts_.end()) continue;
    if (options_.is_kept) *outgoing.order.mutable_word() = kept_->Word();
    network_->Stream(
        node_, link->second.node,
        [deliver = link->second.deliver, order = std::move(outgoing.order)] { deliver(order); },
        link->second.connection);
  }
  for (DiskTask& task : batch.tasks) tasks_.push_back(std::move(task));
  WorkOnFolder();
  for (Coordinator::EvaluateAnswer& answer : batch.replies) {
    const auto parked = parked_.find(answer.member);
    if (parked == parked_.end() || parked->second.after_event >= batch.event) continue;
    if (options_.mutation == Mutation::kScoresTwice && answer.reply.ok()) answer.reply->set_part(0);
    parked->second.answer(std::move(answer.reply));
    parked_.erase(parked);
  }
}

}  // namespace tessera
