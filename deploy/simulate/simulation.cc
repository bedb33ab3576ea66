#include "deploy/simulate/simulation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/process.h"
#include "common/codec/codec.h"
#include "common/codec/selective_codec.h"
#include "common/checkpoint/initial_file.h"
#include "common/config/job_digest.h"
#include "common/config/quantity.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"
#include "deploy/simulate/chance.h"
#include "deploy/simulate/simulation_report.h"
#include "kernels/devices.h"
#include "server/control/job_facts.h"
#include "server/control/report.h"
#include "worker/replica/make_replica.h"

namespace tessera {
namespace {

// The mathematics of a model runs on its worker's fiber; only pages that are used take memory.
constexpr size_t kMathStackBytes = size_t{1} << 20;
// Longer than any lease, evaluation or round trip that makes sense.
constexpr int64_t kStandstillLeases = 1000;
// The longest step, latency or message's cost: what takes longer takes days to simulate, as servers tell of
// themselves all the time.
constexpr SimNanos kLengthMax = 24 * 3600 * kNanosPerSecond;
constexpr SimNanos kRestartMax = 365 * kLengthMax;
// How often servers tell their counters, as in server/rpc/attach_link.h.
constexpr SimNanos kCountersInterval = kNanosPerSecond / 4;

// Refuses numbers that mean nothing, and times with which the simulation would not end while a person waits.
absl::Status Check(const SimulationOptions& options) {
  const auto check_length = [](absl::string_view what, SimNanos length, SimNanos most) {
    if (length <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("simulation: ", what, " is ",
                                                   FormatDuration(length), ", want at most ",
                                                   FormatDuration(most)));
  };
  TESSERA_RETURN_IF_ERROR(check_length("step time", options.step_time, kLengthMax));
  TESSERA_RETURN_IF_ERROR(check_length("latency", options.latency, kLengthMax));
  TESSERA_RETURN_IF_ERROR(check_length("message cost", options.message_cost, kLengthMax));
  TESSERA_RETURN_IF_ERROR(
      check_length("restart after", options.restart_after.value_or(0), kRestartMax));
  // A share of 1 would make a step take no time.
  const auto share = [](double value) { return value >= 0 && value < 1; };
  // !(x >= 0) holds for NaN as well.
  if (options.machines < 0 || options.cores_per_machine < 0 || options.bandwidth < 0 ||
      options.latency < 0 || options.loopback_bandwidth < 0 || options.server_rate < 0 ||
      options.step_time < 0 || !(options.fail_rate >= 0) || options.restart_after.value_or(0) < 0) {
    return absl::InvalidArgumentError("simulation: an option is negative, want 0 or more");
  }
  if (!(options.slow_worker >= 1 && options.slow_worker <= kSlowWorkerMax)) {
    return absl::InvalidArgumentError(absl::StrCat("simulation: the slow worker takes ",
                                                   options.slow_worker,
                                                   " times as long, want 1 to ", kSlowWorkerMax));
  }
  if (!share(options.speed_spread) || !share(options.step_jitter)) {
    return absl::InvalidArgumentError(absl::StrCat("simulation: speed spread is ",
                                                   options.speed_spread, " and step jitter ",
                                                   options.step_jitter, ", want both in [0, 1)"));
  }
  return absl::OkStatus();
}

absl::Status CheckServerMachines(const v1::Job& job, const Recipe& recipe,
                                 const SimulationOptions& options) {
  const std::vector<int>& given = options.server_machines;
  if (given.empty()) return absl::OkStatus();
  if (recipe.placement == Placement::kReplicated) {
    return absl::InvalidArgumentError(
        "simulation: servers have machines given, want none: each is beside its worker");
  }
  if (given.size() != job.cluster().servers().count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("simulation: ", given.size(), " of ", job.cluster().servers().count(),
                     " servers have a machine given, want one for each"));
  }
  for (const int machine : given) {
    if (machine >= 0 && machine < options.machines) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("simulation: a server is on machine ", machine, " of ", options.machines,
                     ", want one from 0 on of that many; give machines"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Simulation>> Simulation::Create(const v1::Job& job,
                                                               const SimulationOptions& options,
                                                               const Datasets* data) {
  TESSERA_RETURN_IF_ERROR(Check(options));
  auto simulation = absl::WrapUnique(new Simulation(job, options, data));
  TESSERA_RETURN_IF_ERROR(simulation->Build());
  return simulation;
}

// Workers end first: what is left of their bodies speaks to the rest.
Simulation::~Simulation() { workers_.clear(); }

int Simulation::MachineOf(int process, int first) const {
  // Given machines are shared by servers and workers in turn; else each process has its own.
  return options_.machines > 0 ? process % options_.machines : first + process;
}

int Simulation::MachineOfServer(int rank) const {
  if (options_.server_machines.empty()) return MachineOf(rank, 0);
  return options_.server_machines[static_cast<size_t>(rank)];
}

int Simulation::first_worker_machine() const {
  const bool is_replicated = recipe_.placement == Placement::kReplicated;
  return is_replicated ? 0 : static_cast<int>(job_.cluster().servers().count());
}

absl::Status Simulation::Build() {
  digest_ = JobDigest(job_);
  TESSERA_ASSIGN_OR_RETURN(recipe_, RecipeFor(job_));
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ExchangedShape(job_.model(), recipe_));
  const SelectiveCodec* const selective = recipe_.codecs.push->selective();
  // Payload sizes of a selective codec follow from the values, which stubs do not have.
  if (options_.stub_gradients && selective != nullptr) {
    const PayloadForecast forecast = selective->Forecast(shape.size);
    if (forecast.certainty == PayloadForecast::Certainty::kUnknown) {
      return absl::InvalidArgumentError(absl::StrCat("simulation: codec.push.", forecast.because,
                                                     " beside stub gradients, ", forecast.advice,
                                                     ", or simulate the mathematics, too"));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckServerMachines(job_, recipe_, options_));
  JobFacts facts = FactsOf(job_, recipe_, shape, digest_);
  facts.standbys = facts.checkpoints = false;  // Servers do not fail here.
  // Each member needs a neuron of each layer.
  if (facts.members_max > 0 && facts.workers > facts.members_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "simulation: workers are ", facts.workers, ", want at most ", facts.members_max,
        ", the neurons of the least hidden layer, which are dealt to them"));
  }
  TESSERA_RETURN_IF_ERROR(BuildLearning(shape));
  const int workers = static_cast<int>(job_.cluster().workers());
  SimNetwork::Options network;
  network.bandwidth = options_.bandwidth;
  network.latency = options_.latency;
  network.loopback_bandwidth = options_.loopback_bandwidth;
  network.message_cost = options_.message_cost;
  world_ = std::make_unique<SimulatedWorld>(
      options_.machines > 0 ? options_.machines : first_worker_machine() + workers,
      options_.cores_per_machine, network);
  TESSERA_ASSIGN_OR_RETURN(coordinator_, SimulatedCoordinator::Create(facts, 0, world_.get()));
  coordinator_->StartTicking();
  TESSERA_RETURN_IF_ERROR(BuildServers(shape));

  surroundings_.job = &job_;
  surroundings_.recipe = &recipe_;
  surroundings_.job_digest = digest_;
  surroundings_.data = &data_;
  surroundings_.orders = &orders_;
  surroundings_.world = world_.get();
  surroundings_.coordinator = coordinator_.get();
  surroundings_.servers = &servers_;
  surroundings_.moves_values = !options_.stub_gradients;
  surroundings_.stack_bytes = options_.stub_gradients ? Fiber::kStackBytes : kMathStackBytes;
  surroundings_.shape = &shape_;
  surroundings_.inboxes = &inboxes_;
  // Made when a worker has joined, as its first exchange is known only then.
  surroundings_.make_learner = [this](Rank rank, Exchange first, const LayerEnds& ends) {
    return MakeLearner(rank, first, ends);
  };
  // The job waits for rank 0, 1 and so on; with the last rank first it looks no further than rank
  // 0 until all are there.
  for (int rank = workers - 1; rank >= 0; --rank) {
    TESSERA_RETURN_IF_ERROR(AddWorker(Rank(rank), 0));
  }
  // Ten steps, so that slow steps are no standstill.
  progress_interval_ =
      kStandstillLeases * std::max(job_.cluster().lease_timeout(), 10 * options_.step_time);
  world_->events.After(progress_interval_, [this] { CheckProgress(); });
  return absl::OkStatus();
}

absl::Status Simulation::BuildLearning(const ModelShape& shape) {
  input_ = InputRowsOf(job_.model(), data_);
  shape_ = shape;
  // The mathematics of a step is not timed: each step takes its share of step_time.
  step_share_ = StepShareOf(shape, data_.train, input_);
  if (!options_.stub_gradients) {
    TESSERA_ASSIGN_OR_RETURN(
        backend_,
        CreateBackend(job_.cluster().device(), job_.cluster().threads(), {job_.cluster().cudnn()}));
    return absl::OkStatus();
  }
  stub_ = std::make_unique<StubArrays>(shape);
  if (recipe_.split) {
    stub_halves_ = std::make_unique<StubHalfLearner::Surroundings>(
        shape, *recipe_.split, static_cast<int>(job_.cluster().servers().count()),
        job_.train().batch_size(), data_.train.has_classes(), stub_.get());
  }
  if (!recipe_.subnets) return absl::OkStatus();
  stub_subnets_.shape = shape;
  stub_subnets_.groups = GroupsOf(shape, recipe_.subnet_rules);
  stub_subnets_.seed = job_.seed();
  stub_subnets_.workers = static_cast<int>(job_.cluster().workers());
  stub_subnets_.servers = static_cast<int>(job_.cluster().servers().count());
  stub_subnets_.arrays = stub_.get();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Learner>> Simulation::MakeLearner(Rank rank, Exchange first,
                                                                 const LayerEnds& ends) {
  // Real replicas share one backend, as one runs at a time.
  if (stub_ == nullptr) {
    return MakeReplica(job_, recipe_, rank, first, backend_.get(), input_, {}, ends);
  }
  if (stub_halves_ != nullptr) {
    return std::make_unique<StubHalfLearner>(stub_halves_.get(), rank, ends);
  }
  if (recipe_.core) {
    ExchangeKeys::Options keys{shape_,
                               static_cast<int>(job_.cluster().servers().count()),
                               *recipe_.core,
                               job_.seed(),
                               rank,
                               first,
                               recipe_.lockstep};
    return std::make_unique<StubLearner>(stub_.get(), std::make_unique<ExchangeKeys>(keys));
  }
  if (recipe_.fragments) {
    return std::make_unique<StubLearner>(
        stub_.get(), nullptr,
        std::make_unique<FragmentKeys>(shape_, static_cast<int>(job_.cluster().servers().count()),
                                       *recipe_.fragments, first));
  }
  if (!recipe_.subnets) return std::make_unique<StubLearner>(stub_.get());
  return std::make_unique<StubSubnetLearner>(&stub_subnets_, rank, first);
}

absl::Status Simulation::BuildServers(const ModelShape& shape) {
  const int count = static_cast<int>(job_.cluster().servers().count());
  const Sharding sharding = ShardingOf(recipe_, count);
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const InitialFile> initial_file,
                           OpenInitialFile(job_.model(), InitialFactors(job_, recipe_, shape)));
  for (int rank = 0; rank < count; ++rank) {
    SimulatedServer::Options options;
    options.shard.shape = shape;
    options.rank = ShardId(rank);
    // Where placement is replicated all servers hold shard 0.
    options.shard.shard = ShardId(sharding.count > 1 ? rank : 0);
    options.shard.sharding = sharding;
    options.shard.placement = recipe_.placement;
    options.shard.seed = job_.seed();
    options.shard.initial_file = initial_file;
    options.shard.kind = static_cast<int>(recipe_.payload);
    options.shard.codecs = recipe_.codecs;
    options.shard.policy = recipe_.make_policy();
    options.shard.rule = recipe_.make_rule();
    options.shard.schedule = recipe_.schedule;
    options.shard.core = recipe_.core;
    if (recipe_.split) options.shard.cut = recipe_.split->cut;
    if (recipe_.fragments) options.shard.fragments = recipe_.fragments->count;
    if (recipe_.subnets) options.shard.groups = GroupsOf(shape, recipe_.subnet_rules);
    if (recipe_.tail_steps > 0) {
      options.shard.whole_kind = static_cast<int>(TailOf(recipe_).payload);
    }
    options.machine = MachineOfServer(rank);
    options.rate = options_.server_rate;
    options.counters_interval = std::min(kCountersInterval, job_.cluster().lease_timeout() / 4);
    servers_.push_back(
        std::make_unique<SimulatedServer>(std::move(options), world_.get(), coordinator_.get()));
  }
  for (const auto& server : servers_) server->Start();
  return absl::OkStatus();
}

absl::Status Simulation::AddWorker(Rank rank, uint64_t life) {
  const uint64_t k = rank.value();
  SimulatedWorker::Options options;
  options.rank = rank;
  options.machine = MachineOf(static_cast<int>(k), first_worker_machine());
  options.pace.seed = job_.seed();
  options.pace.worker = k;
  options.pace.step_time =
      StepTimeOf(job_.seed(), k, options_.step_time, {options_.speed_spread, options_.slow_worker});
  options.pace.share = &*step_share_;
  if (recipe_.split) options.pace.half = HalfPaceOf(*step_share_, *recipe_.split, rank);
  options.pace.jitter = options_.step_jitter;
  options.pace.evaluates = !options_.stub_gradients;
  options.pace.batch_size = job_.train().batch_size();
  options.description = absl::StrCat("simulated worker ", k);
  if (options_.fail_rate > 0) {
    // The time to a crash is exponential, as crashes come independently of what was before.
    const double hours =
        ExponentialChance(job_.seed(), kChanceFailure, k, life) / options_.fail_rate;
    // What is further off than any simulation goes is never.
    constexpr double kHoursMax = 24 * 365;
    if (hours < kHoursMax) {
      options.crashes_after = static_cast<SimNanos>(hours * 3600 * kNanosPerSecond);
    }
  }
  options.on_crash = [this, rank, life] { OnCrash(rank, life); };
  options.on_refused = [this, k](const absl::Status& why) {
    if (!failed_.ok()) return;
    // Without this rank the job cannot go on.
    failed_ =
        absl::AbortedError(absl::StrCat("simulation: worker ", k, " cannot join: ", why.message()));
  };
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<SimulatedWorker> worker,
                           SimulatedWorker::Create(std::move(options), &surroundings_));
  workers_.push_back(std::move(worker));
  world_->events.After(0, [started = workers_.back().get()] { started->Start(); });
  return absl::OkStatus();
}

void Simulation::OnCrash(Rank rank, uint64_t life) {
  if (!options_.restart_after.has_value()) return;
  world_->events.After(*options_.restart_after, [this, rank, life] {
    // A job that has ended needs nobody.
    if (coordinator().ended()) return;
    const absl::Status added = AddWorker(rank, life + 1);
    if (!added.ok() && failed_.ok()) failed_ = added;
  });
}

uint64_t Simulation::exchanges() const {
  uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->exchanges();
  return sum;
}

void Simulation::CheckProgress() {
  // Workers that have left count as well, since sums must not fall.
  uint64_t now = exchanges();
  for (const auto& worker : workers_) now += worker->steps();
  if (now == progress_seen_ && failed_.ok()) {
    failed_ = absl::DeadlineExceededError(
        absl::StrCat("simulation: no minibatch and no exchange within ",
                     ToSeconds(progress_interval_), " simulated seconds; the job stands still"));
  }
  progress_seen_ = now;
  world_->events.After(progress_interval_, [this] { CheckProgress(); });
}

bool Simulation::Run(int64_t events) {
  for (int64_t i = 0; i < events; ++i) {
    if (coordinator().ended() || !failed_.ok()) return true;
    if (world_->events.now() >= kSimEnd) {
      failed_ = absl::OutOfRangeError(
          absl::StrCat("simulation: the job has not ended after ", kSimEnd / kRestartMax,
                       " simulated years, and no time goes on after that; bandwidth, server rate "
                       "or cores are too little for it"));
      return true;
    }
    // The coordinator's timer goes off until the job has ended, so that there is a next event.
    TESSERA_CHECK(world_->events.RunNext());
  }
  return coordinator().ended() || !failed_.ok();
}

void Simulation::Drain(absl::string_view reason) {
  coordinator_->state().Drain(reason, world_->time());
  coordinator_->Deliver();
}

v1::JobStatus Simulation::Status() const { return coordinator().Status(world_->time()); }

absl::Status Simulation::outcome() const {
  return failed_.ok() ? coordinator().outcome() : failed_;
}

std::string Simulation::Report() const {
  v1::JobStatus status = Status();
  // The coordinator knows nothing of what the simulation alone has found.
  if (!failed_.ok()) {
    status.set_failure(std::string(failed_.message()));
    status.set_report_json(ReportJson(status));
  }
  int64_t link_bytes = 0;
  for (int machine = 0; machine < world_->network.machines(); ++machine) {
    link_bytes += world_->network.sent_bytes(machine);
  }
  return SimulationReport(status, options_, link_bytes);
}

}  // namespace tessera
