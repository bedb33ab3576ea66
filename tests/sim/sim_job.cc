#include "tests/sim/sim_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr uint64_t kTrainingRows = 96;
constexpr int64_t kBatch = 4;
constexpr int64_t kEpochs = 3;
constexpr int64_t kEpochsWithCheckpoints = 6;
constexpr int64_t kMembersMax = 5;
constexpr absl::Duration kAwayTimeout = absl::Seconds(60);
constexpr absl::Duration kFaultsLast = absl::Seconds(3);
constexpr absl::Duration kFaultsLastWithCheckpoints = absl::Seconds(6);

v1::Diloco* PlainDiloco(v1::Method* method, float momentum) {
  v1::Diloco* diloco = method->mutable_diloco();
  diloco->set_local_steps(3);
  // The outer rule then adds: sums stay exact.
  diloco->set_outer_learning_rate(1);
  diloco->set_outer_momentum(momentum);
  return diloco;
}

void DrawSlimDp(v1::SlimDp* slim, Dice* dice) {
  slim->set_alpha(0.2 + 0.1 * dice->Below(8));
  slim->set_beta(slim->alpha() * 0.25 * dice->Below(5));
  slim->set_local_steps(1 + dice->Below(2));
  slim->set_core_every(1 + dice->Below(6));
  slim->set_gradient_weight(0.5 * dice->Below(3));
}

// Every other job's rule keeps a state.
float MomentumOf(const SimOptions& sim) {
  const bool has_rule = sim.method == SimMethod::kDataParallel ||
                        sim.method == SimMethod::kDiloco || sim.method == SimMethod::kDilocoQuorum;
  return has_rule && sim.seed % 2 == 0 ? 0.5f : 0.0f;
}

// What is not fixed by the method is drawn.
v1::Job JobOf(const SimOptions& sim, int workers, DrawnModel* drawn, Dice* dice) {
  const SimMethod name = sim.method;
  const float momentum = MomentumOf(sim);
  v1::Job job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  v1::Method& method = *job.mutable_method();
  switch (name) {
    case SimMethod::kDataParallel:
      method.mutable_data_parallel();
      job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(momentum);
      break;
    case SimMethod::kLocalSgd:
    case SimMethod::kLocalSgdOverlapped:
      method.mutable_local_sgd()->set_local_steps(3);
      method.mutable_local_sgd()->set_overlap(name == SimMethod::kLocalSgdOverlapped);
      break;
    case SimMethod::kAsyncSgd:
    case SimMethod::kAsyncSgdDeltas:
    case SimMethod::kAsyncSgdInverse:
      method.mutable_async_sgd()->set_local_steps(name == SimMethod::kAsyncSgdDeltas ? 2 : 1);
      method.mutable_async_sgd()->mutable_staleness()->mutable_constant()->set_scale(1);
      if (name == SimMethod::kAsyncSgdInverse) {
        method.mutable_async_sgd()->mutable_staleness()->mutable_inverse()->set_scale(1);
      }
      break;
    case SimMethod::kSoftsync:
    case SimMethod::kSoftsyncInverse:
      method.mutable_softsync()->set_local_steps(1);
      method.mutable_softsync()->set_pushes(1 + dice->Below(workers));
      method.mutable_softsync()->mutable_staleness()->mutable_constant()->set_scale(1);
      if (name == SimMethod::kSoftsyncInverse) {
        method.mutable_softsync()->mutable_staleness()->mutable_inverse()->set_scale(1);
      }
      break;
    case SimMethod::kSsp:
      method.mutable_ssp()->set_local_steps(1 + dice->Below(2));
      method.mutable_ssp()->set_bound(dice->Below(4));
      break;
    case SimMethod::kDiloco:
      PlainDiloco(&method, momentum);
      break;
    case SimMethod::kDilocoQuorum: {
      v1::Diloco* diloco = PlainDiloco(&method, momentum);
      v1::Quorum* quorum = diloco->mutable_quorum();
      quorum->set_pushes(1 + dice->Below(workers));
      quorum->set_grace(absl::ToInt64Nanoseconds(absl::Milliseconds(dice->Below(200))));
      quorum->set_adaptive_grace(sim.seed % 3 == 1);
      diloco->set_overlap(sim.seed % 5 >= 3);
      break;
    }
    case SimMethod::kDilocoAsynchronous:
      PlainDiloco(&method, 0)->set_asynchronous(true);
      break;
    case SimMethod::kIst:
      method.mutable_ist()->set_local_steps(1 + dice->Below(3));
      break;
    case SimMethod::kSlimDp:
    case SimMethod::kSlimDpAsynchronous:
      DrawSlimDp(method.mutable_slim_dp(), dice);
      method.mutable_slim_dp()->set_asynchronous(name == SimMethod::kSlimDpAsynchronous);
      break;
  }
  drawn->DrawCodecs(&job);
  return job;
}

// Some jobs with standbys are so slow that they last until all shards must have standbys again.
absl::Duration DrawnStepTime(bool standbys, bool checkpoints, Dice* dice) {
  // So that there are some before the end.
  if (checkpoints) return dice->Between(absl::Milliseconds(10), absl::Milliseconds(150));
  if (standbys && dice->Chance(0.2)) {
    return dice->Between(absl::Milliseconds(100), absl::Milliseconds(250));
  }
  return dice->Between(absl::Milliseconds(1), absl::Milliseconds(60));
}

Recipe RecipeOf(const v1::Job& job) {
  absl::StatusOr<Recipe> recipe = RecipeFor(job);
  TESSERA_CHECK(recipe.ok());
  return *std::move(recipe);
}

Checker::Options CheckerOptions(const SimOptions& sim, int servers, const v1::Job& job,
                                const Recipe& recipe, const ModelShape& shape,
                                const SubnetEntries* subnets) {
  const SimMethod name = sim.method;
  Checker::Options options;
  options.seed = sim.seed;
  options.goes_back = sim.checkpoints;
  options.shards = servers;
  options.shape = shape;
  options.codecs = recipe.codecs;
  options.lockstep = recipe.lockstep;
  options.local_steps = static_cast<uint64_t>(recipe.local_steps);
  options.subnets = subnets;
  options.sign = recipe.payload == PayloadKind::kGradient ? -1 : 1;
  const float workers = static_cast<float>(job.cluster().workers());
  if (name == SimMethod::kAsyncSgdInverse || name == SimMethod::kSoftsyncInverse) {
    options.weight = [](uint64_t tau) { return tau < 2 ? 1.0f : 1.0f / static_cast<float>(tau); };
  }
  if (name == SimMethod::kSsp) {
    options.weight = [workers](uint64_t) { return 1.0f / workers; };
    options.mean = false;
    options.bound = job.method().ssp().bound();
  }
  options.core = recipe.core;
  options.job_seed = sim.seed;
  if (name == SimMethod::kSlimDpAsynchronous) {
    options.weight = [workers](uint64_t) { return 1.0f / workers; };
    options.mean = false;
  }
  options.by_examples = name == SimMethod::kDiloco || name == SimMethod::kDilocoQuorum;
  options.momentum = MomentumOf(sim);
  options.nesterov = name != SimMethod::kDataParallel;
  if (options.momentum != 0) options.tolerance = 1e-5f;
  options.rounds = name == SimMethod::kDilocoQuorum;
  if (name == SimMethod::kDilocoAsynchronous) {
    options.factor = 1.0f / workers;
    options.tolerance = 1e-5f;
  }
  return options;
}

}  // namespace

SimJob::SimJob(SimOptions options)
    : options_(options),
      dice_(options.seed),
      network_(&queue_, &dice_),
      servers_count_(options.standbys ? 2 + static_cast<int>(dice_.Below(3))
                                      : 1 + static_cast<int>(dice_.Below(4))),
      workers_count_(1 + static_cast<int>(dice_.Below(4))),
      epochs_(options.checkpoints ? kEpochsWithCheckpoints : kEpochs),
      steps_(dice_.Chance(0.3) ? epochs_ / 3 * (10 + dice_.Below(20)) : 0),
      drawn_(options.seed, options.plain),
      job_(JobOf(options, workers_count_, &drawn_, &dice_)),
      recipe_(RecipeOf(job_)),
      step_time_(DrawnStepTime(options.standbys, options.checkpoints, &dice_)),
      subnets_(recipe_.subnets ? std::make_unique<SubnetEntries>(options.seed, servers_count_)
                               : nullptr),
      shape_(subnets_ != nullptr ? subnets_->shape() : drawn_.Shape()),
      checker_(CheckerOptions(options, servers_count_, job_, recipe_, shape_, subnets_.get())) {
  JobFacts facts;
  facts.servers = servers_count_;
  facts.workers = workers_count_;
  facts.layout_hash = LayoutHash(shape_, servers_count_);
  facts.lease_timeout = kLease;
  facts.batch_size = kBatch;
  facts.epochs = steps_ > 0 ? 0 : static_cast<int64_t>(epochs_);
  facts.steps = static_cast<int64_t>(steps_);
  facts.evaluate_every = 1;
  facts.local_steps = recipe_.local_steps;
  facts.synchronous = recipe_.lockstep;
  facts.aligned = recipe_.aligned;
  facts.step_budgets = recipe_.step_budgets;
  // Half of the jobs in which minibatches may differ have it so.
  facts.rows_by_speed = !recipe_.subnets && !recipe_.step_budgets && options.seed % 2 == 0;
  facts.subnets = recipe_.subnets;
  facts.core = recipe_.core;
  facts.standbys = options_.standbys;
  facts.entries = shape_.size;
  facts.parameters = static_cast<int>(shape_.parameters.size());
  if (subnets_ != nullptr) facts.members_max = subnets_->members_max();
  SimCoordinator::Options control;
  control.mutation = options.mutation;
  if (options_.coordinator_dies) {
    control.is_kept = true;
    control.away_timeout = kAwayTimeout;
    control.is_slow = dice_.Chance(0.2);
  }
  control.on_status = [this](const v1::JobStatus& status, uint64_t life) {
    OnStatus(status, life);
  };
  if (options_.checkpoints) KeepCheckpoints(&facts, &control);
  coordinator_ = std::make_unique<SimCoordinator>(&network_, facts, control);
  chaos_ = network_.AddNode();
  StartServers();
  for (int worker = 0; worker < workers_count_; ++worker) StartWorker(std::nullopt);
  if (options_.rogue_calls > 0) StartRogue();
  faults_end_ = queue_.now();
  if (options_.faults) PlanFaults();
}

Shard::Options SimJob::ShardOptions(ShardId shard) {
  Shard::Options options;
  options.shape = shape_;
  options.shard = shard;
  options.sharding = servers_count_;
  options.kind = static_cast<int>(recipe_.payload);
  options.codecs = recipe_.codecs;
  options.policy = recipe_.make_policy();
  options.rule = recipe_.make_rule();
  options.schedule = recipe_.schedule;
  options.core = recipe_.core;
  options.seed = options_.seed;
  if (subnets_ != nullptr) {
    options.seed = subnets_->seed();
    options.groups = subnets_->groups();
  }
  return options;
}

void SimJob::StartServers() {
  servers_.resize(servers_count_);
  for (int rank = 0; rank < servers_count_; ++rank) {
    doors_.push_back(std::make_unique<ServerDoor>());
    if (options_.standbys) {
      StartHost(static_cast<uint32_t>(rank));
    } else {
      StartServer(rank);
    }
  }
  if (options_.standbys) servers_.clear();
}

void SimJob::StartWorker(std::optional<uint32_t> rank) {
  SimWorker::Options options;
  options.seed = options_.seed;
  options.life = workers_.size() + 1;
  options.rank = rank;
  options.rows = kTrainingRows;
  options.epochs = steps_ > 0 ? 0 : epochs_;
  options.steps = steps_;
  options.local_steps = recipe_.local_steps;
  options.lockstep = recipe_.lockstep;
  options.overlaps = recipe_.overlaps;
  options.kind = static_cast<int>(recipe_.payload);
  options.step_time = step_time_ * (0.5 + 0.01 * dice_.Below(150));
  options.subnets = subnets_.get();
  options.sites = static_cast<uint32_t>(workers_count_);
  options.core = recipe_.core;
  options.shape = &shape_;
  options.codecs = recipe_.codecs;
  options.job_seed = options_.seed;
  options.forges = options_.faults;
  options.layout_hash = coordinator_->state().facts().layout_hash;
  for (int shard = 0; shard < servers_count_; ++shard) {
    options.slices.push_back(SlicesOf(shape_, ShardId(shard), servers_count_));
    if (options_.standbys) {
      options.doors.push_back(hosts_[shard].get());
    } else {
      options.doors.push_back(doors_[shard].get());
    }
  }
  if (options_.standbys) {
    options.find = [this](const std::string& address) -> ShardDoor* {
      const auto found = directory_.find(address);
      return found == directory_.end() ? nullptr : found->second;
    };
  }
  options.mutation = options_.mutation;
  options.folder = folder_.get();
  options.on_rejoin = [this](uint32_t former) { Rejoin(former); };
  workers_.push_back(
      std::make_unique<SimWorker>(&network_, coordinator_.get(), &checker_, std::move(options)));
}

void SimJob::StartRogue() {
  SimRogue::Options options;
  options.seed = options_.seed;
  options.rows = kTrainingRows;
  options.kind = static_cast<int>(recipe_.payload);
  options.by_examples =
      options_.method == SimMethod::kDiloco || options_.method == SimMethod::kDilocoQuorum;
  options.calls = options_.rogue_calls;
  options.shape = &shape_;
  options.layout_hash = coordinator_->state().facts().layout_hash;
  for (int shard = 0; shard < servers_count_; ++shard) {
    options.slices.push_back(SlicesOf(shape_, ShardId(shard), servers_count_));
    options.doors.push_back(doors_[shard].get());
  }
  rogue_ = std::make_unique<SimRogue>(&network_, coordinator_.get(), &checker_, std::move(options));
}

void SimJob::PlanFaults() {
  faults_end_ = queue_.now() + (options_.checkpoints ? kFaultsLastWithCheckpoints : kFaultsLast);
  network_.set_faults(NetworkFaults::Drawn(&dice_));
  queue_.At(faults_end_, [this] { network_.set_faults({}); });
  network_.After(chaos_, absl::Milliseconds(500), [this] { KeepWorkers(); });
  if (options_.standbys) queue_.At(faults_end_, [this] { CheckProtected(); });
  Strike();
}

void SimJob::Strike() {
  network_.After(chaos_, dice_.Between(absl::Milliseconds(20), absl::Milliseconds(900)), [this] {
    if (queue_.now() >= faults_end_) return;
    struck_evaluating_ += coordinator_->state().StateWord() == "evaluating" ? 1 : 0;
    if (options_.coordinator_dies && dice_.Chance(0.45)) {
      StrikeCoordinator();
      return Strike();
    }
    if (options_.standbys && dice_.Chance(0.5)) {
      StrikeHost();
      return Strike();
    }
    if (options_.checkpoints && !options_.standbys && dice_.Chance(0.5)) {
      StrikeServer();
      return Strike();
    }
    const uint64_t what = dice_.Below(26);
    if (what < 7) CrashWorker();
    if (what >= 7 && what < 11) FreezeSomebody();
    if (what >= 11 && what < 15) StartLateWorker();
    if (what >= 15 && what < 18 && !options_.standbys) {
      servers_[dice_.Below(servers_.size())]->BreakLink();
    }
    if (what == 18 && !options_.standbys && !OnlyLeaves() && dice_.Chance(0.2)) KillServer();
    if (what == 19 && dice_.Chance(0.3) && coordinator_->state().membership().started() &&
        coordinator_->is_here()) {
      harm_.OnDrained();
      coordinator_->Drain();
    }
    if (what >= 20 && what < 24) CutSomeLink();
    if (what >= 24) {
      has_hung_ = true;
      SimWorker& worker = *workers_[dice_.Below(workers_.size())];
      harm_.OnHung(worker.node());
      worker.Hang();
    }
    Strike();
  });
}

void SimJob::CutSomeLink() {
  if (options_.standbys) return CutHostLink();
  const NodeId server = servers_[dice_.Below(servers_.size())]->node();
  const NodeId worker = workers_[dice_.Below(workers_.size())]->node();
  switch (dice_.Below(3)) {
    case 0:
      return network_.CutLink(worker, server, 2.5 * kLease);
    case 1:
      harm_.OnSilenced(worker);
      return network_.CutLink(worker, coordinator_->node(), 2.5 * kLease);
    case 2:
      // A server that is silent for a lease ends the job: stay below.
      return network_.CutLink(server, coordinator_->node(), kLease / 3);
  }
}

void SimJob::CrashWorker() {
  SimWorker& worker = *workers_[dice_.Below(workers_.size())];
  if (worker.is_over()) return;
  worker.Crash();
  harm_.OnSilenced(worker.node());
  // A job that has not started waits for as many as it wants; later it goes on without.
  const bool must = !coordinator_->state().membership().started();
  if (!must && dice_.Chance(0.4)) return;
  // Some insist on the rank that their lost life may still hold.
  std::optional<uint32_t> rank;
  const MemberRecord* record = coordinator_->state().membership().members().Find(worker.member());
  if (record != nullptr && dice_.Chance(0.4)) rank = record->rank.value();
  network_.After(chaos_, dice_.Between(absl::Milliseconds(10), absl::Milliseconds(1500)),
                 [this, rank] { StartWorker(rank); });
}

void SimJob::KeepWorkers() {
  if (coordinator_->ended()) return;
  const Membership& membership = coordinator_->state().membership();
  const std::vector<std::string> waiting_for = membership.WaitingFor();
  const bool lacks_one =
      std::any_of(waiting_for.begin(), waiting_for.end(),
                  [](const std::string& name) { return absl::StartsWith(name, "worker"); });
  // One that went back waits for those that were its members, if any of them lives.
  const bool may_start = membership.start().begun_from() == nullptr || AllOver();
  if (!membership.started() && lacks_one && may_start && coordinator_->is_here()) {
    StartWorker(std::nullopt);
  }
  network_.After(chaos_, absl::Milliseconds(500), [this] { KeepWorkers(); });
}

void SimJob::StartLateWorker() {
  int64_t live = 0;
  for (const auto& worker : workers_) live += worker->is_over() ? 0 : 1;
  if (live < kMembersMax) StartWorker(std::nullopt);
}

void SimJob::FreezeSomebody() {
  if (!options_.standbys && dice_.Chance(0.3)) {
    // A server that is silent for a lease ends the job: stay below.
    const SimServer& server = *servers_[dice_.Below(servers_.size())];
    network_.Freeze(server.node(), queue_.now() + dice_.Between(absl::ZeroDuration(), kLease / 3));
    return;
  }
  const SimWorker& worker = *workers_[dice_.Below(workers_.size())];
  harm_.OnSilenced(worker.node());
  network_.Freeze(worker.node(), queue_.now() + dice_.Between(absl::ZeroDuration(), 2.5 * kLease));
}

void SimJob::StrikeCoordinator() {
  if (!coordinator_->is_here() || coordinator_->ended()) return;
  if (dice_.Chance(0.2)) {
    return network_.Freeze(coordinator_->node(),
                           queue_.now() + dice_.Between(absl::ZeroDuration(), 2.5 * kLease));
  }
  coordinator_->Die();
  if (coordinator_->has_told_unkept()) checker_.Forgive();
  network_.After(chaos_, dice_.Between(absl::Milliseconds(10), 2.5 * kLease), [this] {
    coordinator_->Begin();
    ++coordinators_;
  });
  // Its machine was others', too.
  if (dice_.Chance(0.2)) CrashWorker();
  if (OnlyLeaves()) return;
  if (options_.standbys && dice_.Chance(0.3)) KillHost();
  if (options_.checkpoints && !options_.standbys && checker_.wholes() > 0 && dice_.Chance(0.5)) {
    EndServer(0);
  }
}

bool SimJob::AllOver() const {
  for (const std::unique_ptr<SimWorker>& worker : workers_) {
    if (!worker->is_over()) return false;
  }
  return rogue_ == nullptr || rogue_->is_over();
}

}  // namespace tessera
