#include "tests/sim/replica_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kColumns = 3;
constexpr uint32_t kRanksMax = 7;
constexpr absl::Duration kLease = absl::Seconds(1);
constexpr absl::Duration kFaultsLast = absl::Seconds(4);
constexpr absl::Duration kPatience = absl::Seconds(90);

Recipe RecipeOf(int workers) {
  v1::Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_method()->mutable_decentralized()->set_local_steps(1);
  absl::StatusOr<Recipe> recipe = RecipeFor(job);
  TESSERA_CHECK(recipe.ok());
  return *std::move(recipe);
}

}  // namespace

ReplicaJob::ReplicaJob(ReplicaJobOptions options)
    : options_(options),
      dice_(options.seed),
      network_(&queue_, &dice_),
      workers_count_(1 + static_cast<int>(dice_.Below(4))),
      steps_(60 + dice_.Below(60)),
      recipe_(RecipeOf(workers_count_)),
      step_time_(dice_.Between(absl::Milliseconds(5), absl::Milliseconds(60))) {
  JobFacts facts;
  facts.servers = workers_count_;
  facts.workers = workers_count_;
  facts.layout_hash = LayoutHash(ZeroMatrix(kRows, kColumns), 1);
  facts.lease_timeout = kLease;
  facts.batch_size = 1;
  facts.steps = static_cast<int64_t>(steps_);
  facts.synchronous = recipe_.lockstep;
  facts.aligned = recipe_.aligned;
  facts.replicated = recipe_.placement == Placement::kReplicated;
  if (dice_.Chance(0.3)) facts.warmup_steps = 1 + dice_.Below(20);
  coordinator_ = std::make_unique<SimCoordinator>(&network_, facts);
  world_.seed = options.seed;
  world_.network = &network_;
  world_.coordinator = coordinator_.get();
  world_.mutation = options.mutation;
  chaos_ = network_.AddNode();
  for (int rank = 0; rank < workers_count_; ++rank) {
    StartServer(static_cast<uint32_t>(rank));
    StartWorker(std::nullopt);
  }
  faults_end_ = queue_.now();
  if (options_.faults) PlanFaults();
}

void ReplicaJob::StartServer(uint32_t rank) {
  Shard::Options options;
  options.shape = ZeroMatrix(kRows, kColumns);
  options.kind = static_cast<int>(recipe_.payload);
  options.placement = recipe_.placement;
  options.policy = recipe_.make_policy();
  options.rule = recipe_.make_rule();
  servers_.push_back(
      std::make_unique<ReplicaServer>(&world_, rank, servers_.size() + 1, std::move(options)));
}

void ReplicaJob::StartWorker(std::optional<uint32_t> rank) {
  ReplicaWorker::Options options;
  options.life = workers_.size() + 1;
  options.rank = rank;
  options.steps = steps_;
  options.step_time = step_time_ * (0.5 + 0.01 * dice_.Below(150));
  workers_.push_back(std::make_unique<ReplicaWorker>(&world_, options));
}

void ReplicaJob::PlanFaults() {
  faults_end_ = queue_.now() + kFaultsLast;
  network_.set_faults(NetworkFaults::Drawn(&dice_));
  queue_.At(faults_end_, [this] { network_.set_faults({}); });
  Strike();
}

void ReplicaJob::Strike() {
  network_.After(chaos_, dice_.Between(absl::Milliseconds(50), absl::Milliseconds(700)), [this] {
    if (queue_.now() >= faults_end_) return;
    const uint64_t what = dice_.Below(16);
    ReplicaWorker& worker = *workers_[dice_.Below(workers_.size())];
    ReplicaServer& server = *servers_[dice_.Below(servers_.size())];
    if (!coordinator_->state().membership().started()) return Strike();
    if (what < 2 && !worker.is_over()) network_.Kill(worker.node());
    if (what == 2) worker.Stop();
    if (what == 3 || what == 4) KillServer();
    if (what == 5 && !server.is_over() && server.rank() != 0) server.Leave();
    if (what == 6 && server.rank() != 0) {
      network_.Freeze(server.node(),
                      queue_.now() + dice_.Between(absl::ZeroDuration(), 2.5 * kLease));
    }
    if (what == 7) {
      network_.Freeze(worker.node(),
                      queue_.now() + dice_.Between(absl::ZeroDuration(), 2.5 * kLease));
    }
    if (what >= 8 && what < 12) StartSite();
    if (what == 12) network_.CutLink(worker.node(), coordinator_->node(), 2.5 * kLease);
    if (what == 13) network_.CutLink(worker.node(), server.node(), 2.5 * kLease);
    if (what == 14) {
      const bool may_be_lost = server.rank() != 0;
      network_.CutLink(server.node(), coordinator_->node(),
                       may_be_lost ? 2.5 * kLease : kLease / 3);
    }
    if (what == 15) worker.Hang();
    Strike();
  });
}

// Server 0 has the coordinator in it.
void ReplicaJob::KillServer() {
  ReplicaServer& server = *servers_[dice_.Below(servers_.size())];
  if (server.rank() == 0 || server.is_over()) return;
  network_.Kill(server.node());
  const ServerTable& known = world_.coordinator->state().membership().servers();
  // It may not have been heard of yet.
  const bool is_known = static_cast<int>(server.rank()) < known.count();
  if (is_known && known.at(ShardId(server.rank())).life == server.life()) {
    coordinator_->Detach(ShardId(server.rank()));
  }
}

ReplicaServer* ReplicaJob::LiveServer(uint32_t rank) {
  for (const auto& server : servers_) {
    if (server->rank() == rank && !server->is_over()) return server.get();
  }
  return nullptr;
}

// A server where there is none, and a worker, which takes any rank that is free.
void ReplicaJob::StartSite() {
  for (uint32_t rank = 1; rank < kRanksMax && dice_.Chance(0.8); ++rank) {
    if (LiveServer(rank) != nullptr) continue;
    network_.After(chaos_, absl::Milliseconds(300), [this, rank] {
      if (LiveServer(rank) == nullptr && !coordinator_->state().ended()) StartServer(rank);
    });
    break;
  }
  network_.After(chaos_, absl::Milliseconds(500), [this] { StartWorker(std::nullopt); });
}

bool ReplicaJob::AllOver() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->is_over(); });
}

std::vector<ReplicaServer*> ReplicaJob::Ready() {
  std::vector<ReplicaServer*> ready;
  const ServerTable& table = coordinator_->state().membership().servers();
  for (int i = 0; i < table.count(); ++i) {
    if (!table.IsReady(ShardId(i))) continue;
    ReplicaServer* const server = world_.servers.at(table.at(ShardId(i)).life);
    if (!server->is_over()) ready.push_back(server);
  }
  return ready;
}

void ReplicaJob::CheckReplicas() {
  std::set<MemberId> lost;
  for (const auto& [id, record] : coordinator_->state().membership().members().all()) {
    if (!IsLive(record.state) && record.ended != "finished") lost.insert(id);
  }
  ReplicaServer* first = nullptr;
  for (ReplicaServer* const server : Ready()) {
    server->Settled();
    if (first == nullptr) {
      first = server;
      continue;
    }
    ++pairs_;
    const ReplicaServer::Pushes &a = first->Settled(), &b = server->Settled();
    std::vector<std::pair<MemberId, Exchange>> differ;
    std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(),
                                  std::back_inserter(differ));
    std::set<MemberId> seen;
    for (const auto& [member, exchange] : differ) {
      if (lost.count(member) > 0 && seen.insert(member).second) continue;
      Violate(absl::StrCat("servers ", first->rank(), " and ", server->rank(), ": member ",
                           member.value(), " exchange ", exchange.value(), " is in one of them"));
    }
    if (differ.empty() && first->Values() != server->Values()) {
      Violate(absl::StrCat("servers ", first->rank(), " and ", server->rank(), " differ"));
    }
  }
}

void ReplicaJob::Violate(absl::string_view what) { world_.Violate(std::string(what)); }

ReplicaJobOutcome ReplicaJob::Run() {
  const absl::Time give_up = faults_end_ + kPatience;
  const Coordinator& job = coordinator_->state();
  while (!world_.violation.has_value()) {
    if (job.ended() && AllOver() && queue_.now() > faults_end_) break;
    if (queue_.now() > give_up) {
      std::string text = "stuck, waiting for:";
      for (const std::string& name : job.membership().WaitingFor()) {
        absl::StrAppend(&text, " ", name);
      }
      for (const auto& [id, record] : job.membership().members().all()) {
        if (!IsLive(record.state)) continue;
        absl::StrAppend(&text, "; rank ", record.rank.value(), " step ", record.progress.step());
      }
      Violate(text);
      break;
    }
    TESSERA_CHECK(queue_.RunNext());
  }
  const absl::Time quiet = queue_.now() + 3 * kLease;
  while (!world_.violation.has_value() && queue_.now() < quiet) queue_.RunNext();
  ReplicaJobOutcome outcome;
  outcome.finished = job.ended() && job.outcome().ok();
  if (!world_.violation.has_value() && outcome.finished) CheckReplicas();
  outcome.pairs = pairs_;
  if (!world_.violation.has_value() && !options_.faults && !outcome.finished) {
    Violate(absl::StrCat("no faults, but: ", std::string(job.outcome().message())));
  }
  for (const auto& [id, record] : job.membership().members().all()) {
    outcome.lost += record.state == MemberState::kLost;
  }
  for (const auto& server : servers_) {
    outcome.servers_lost += server->is_over();
    outcome.servers_joined += server->copied() && !server->is_over();
  }
  for (ReplicaServer* const server : Ready()) outcome.pushes += server->Settled().size();
  outcome.partial_pushes = job.membership().partial_pushes();
  outcome.violation = world_.violation;
  return outcome;
}

}  // namespace tessera
