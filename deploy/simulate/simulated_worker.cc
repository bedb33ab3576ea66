#include "deploy/simulate/simulated_worker.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/control_protocol.h"
#include "worker/train/worker_report.h"

namespace tessera {
namespace {

// The intervals of worker/rpc/coordinator_client.cc.
constexpr SimNanos kJoinInterval = kNanosPerSecond / 20;
constexpr SimNanos kRenewInterval = kNanosPerSecond;

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedWorker>> SimulatedWorker::Create(
    Options options, const WorkerSurroundings* surroundings) {
  auto worker = absl::WrapUnique(new SimulatedWorker(std::move(options), surroundings));
  SimulatedWorker* const self = worker.get();
  TESSERA_ASSIGN_OR_RETURN(worker->process_,
                           SimulatedProcess::Create([self] { self->outcome_ = self->Live(); },
                                                    surroundings->stack_bytes));
  worker->renew_interval_ =
      std::min(kRenewInterval, surroundings->job->cluster().lease_timeout() / 4);
  return worker;
}

absl::Status SimulatedWorker::Live() {
  const absl::StatusOr<v1::JoinReply> admission = Join();
  if (!admission.ok()) {
    // A job that is about to end, or closed to joiners, is to be left alone.
    const bool goes_on_without =
        absl::IsFailedPrecondition(admission.status()) || absl::IsCancelled(admission.status());
    if (!goes_on_without && options_.on_refused) options_.on_refused(admission.status());
    return admission.status();
  }
  member_ = MemberId(admission->member());
  absl::Status status = Train(*admission);
  if (!lost_.ok()) status = lost_;
  renewing_ = false;
  // Nobody may send to it any more.
  if (around_.recipe->split) around_.inboxes->erase(member_);
  const absl::Status left = Leave(status);
  return status.ok() ? left : status;
}

absl::StatusOr<v1::JoinReply> SimulatedWorker::Join() {
  v1::JoinRequest request;
  request.set_job_digest(around_.job_digest);
  request.set_layout_hash(around_.coordinator->state().facts().layout_hash);
  request.set_protocol(kControlProtocol);
  request.set_description(options_.description);
  request.set_rows(around_.data->train.rows());
  request.set_rank(options_.rank.value());
  if (around_.recipe->split) request.set_address(SimulatedAddress(options_.machine));
  const SimNanos interval = std::min(kJoinInterval, around_.job->cluster().lease_timeout() / 4);
  while (true) {
    absl::StatusOr<v1::JoinReply> reply = around_.coordinator->Ask(
        process_.get(), options_.machine, [&request](Coordinator& coordinator, absl::Time now) {
          return coordinator.Join(request, now);
        });
    // The one that crashed holds the rank until its lease is over. A supervisor would start this one again and again.
    // A rank that is held is asked for less often.
    const bool is_held = absl::IsAlreadyExists(reply.status());
    if (!is_held) {
      if (!reply.ok() || reply->admitted()) return reply;
      request.set_member(reply->member());
    }
    // Before the event is put in, which names this wait.
    const uint64_t ticket = process_->Ticket();
    around_.world->events.After(is_held ? renew_interval_ : interval,
                                [this, ticket] { process_->Wake(ticket); });
    if (!process_->Wait()) return absl::CancelledError("cancelled");
  }
}

absl::Status SimulatedWorker::Train(const v1::JoinReply& admission) {
  SimulatedWorld& world = *around_.world;
  if (options_.crashes_after.has_value()) {
    world.events.After(*options_.crashes_after, [this] { Crash(); });
  }
  coordination_ = std::make_unique<SimulatedCoordination>(around_.coordinator, process_.get(),
                                                          &world, options_.machine, member_);
  // Renewals begin with the membership.
  renewing_ = true;
  servers_known_ = admission.server_list().generation();
  RenewAfter(renew_interval_);

  SimulatedClientOptions data;
  data.machine = options_.machine;
  data.member = member_;
  data.kind = static_cast<int>(around_.recipe->payload);
  data.codecs = around_.recipe->codecs;
  data.seed = around_.job->seed();
  data.rank = Rank(admission.rank());
  if (around_.recipe->split) data.layers = around_.recipe->split->range(data.rank);
  data.job_digest = around_.job_digest;
  data.placement = around_.recipe->placement;
  data.home = admission.rank();
  data.moves_values = around_.moves_values;
  client_ =
      std::make_unique<SimulatedClient>(std::move(data), &world, process_.get(), around_.servers);
  work_ = std::make_unique<PacedWork>(options_.pace, &world, options_.machine, process_.get());
  LayerEnds ends;
  if (around_.recipe->split) ends = BeginLayers(admission);
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<Learner> inner,
      around_.make_learner(Rank(admission.rank()), Exchange(admission.first_exchange()), ends));
  learner_ = std::make_unique<SimulatedLearner>(std::move(inner), work_.get());
  TrainLoop::Options options;
  options.job = *around_.job;
  options.recipe = *around_.recipe;
  options.rank = Rank(admission.rank());
  options.first_exchange = Exchange(admission.first_exchange());
  options.first_step = admission.first_step();
  options.first_epoch = admission.epoch();
  options.clock = [&world] { return absl::Nanoseconds(world.events.now()); };
  options.orders = around_.orders;
  loop_ = std::make_unique<TrainLoop>(std::move(options), around_.data, learner_.get(),
                                      client_.get(), coordination_.get());
  // The membership was lost while the worker was made.
  if (!lost_.ok()) loop_->Stop();
  return loop_->Run();
}

LayerEnds SimulatedWorker::BeginLayers(const v1::JoinReply& admission) {
  const LayerSplit& split = *around_.recipe->split;
  if (!split.is_linear(Rank(admission.rank()))) {
    sender_ = std::make_unique<SimulatedSender>(
        SimulatedSender::Options{member_, options_.machine, around_.job_digest, split,
                                 [this] { RenewSoon(); }},
        around_.world, process_.get(), around_.inboxes);
  } else {
    // A linear worker receives, a front one sends.
    SimulatedInbox::Options inbox;
    inbox.queue.member = member_;
    inbox.queue.split = split;
    inbox.queue.rows_max = around_.job->train().batch_size();
    inbox.queue.features = around_.shape->widths[static_cast<size_t>(split.cut.layer)];
    inbox.queue.outputs = around_.shape->outputs();
    inbox.queue.has_classes = around_.data->train.has_classes();
    inbox.machine = options_.machine;
    inbox.moves_values = around_.moves_values;
    inbox.on_no_plan = [this] { RenewSoon(); };
    inbox_ = std::make_unique<SimulatedInbox>(std::move(inbox), around_.world, process_.get(),
                                              work_.get());
    around_.inboxes->emplace(member_, inbox_.get());
  }
  SetWorkers(admission.worker_list());
  return {sender_.get(), inbox_.get()};
}

void SimulatedWorker::SetWorkers(const v1::WorkerList& list) {
  workers_known_ = list.generation();
  if (inbox_ != nullptr) inbox_->SetWorkers(list);
  if (sender_ != nullptr) sender_->SetWorkers(list);
}

v1::WorkerReport SimulatedWorker::Report() const {
  v1::WorkerReport report;
  if (loop_ != nullptr) report = ReportOf(*loop_);
  report.set_rank(options_.rank.value());
  report.set_backend("simulated");
  return report;
}

absl::Status SimulatedWorker::Leave(const absl::Status& why) {
  v1::LeaveRequest request;
  request.set_member(member_.value());
  *request.mutable_report() = Report();
  request.set_error(std::string(why.message()));
  return around_.coordinator->Ask(process_.get(), options_.machine,
                                  [&request](Coordinator& coordinator, absl::Time now) {
                                    return coordinator.Leave(request, now);
                                  });
}

void SimulatedWorker::RenewAfter(SimNanos time) {
  // A renewal that is asked for at once takes the place of the next one.
  around_.world->events.After(time, [this, renewal = ++next_renewal_] {
    if (renewal == next_renewal_) Renew();
  });
}

void SimulatedWorker::RenewSoon() { RenewAfter(0); }

// Its answer comes in OnRenewed.
void SimulatedWorker::Renew() {
  if (!renewing_) return;
  around_.coordinator->Tell(options_.machine, [this] { AskToRenew(); });
}

// Runs at the coordinator.
void SimulatedWorker::AskToRenew() {
  v1::RenewRequest request;
  request.set_member(member_.value());
  *request.mutable_progress() = ToProto(coordination_->progress());
  request.set_drain_seen(drain_seen_);
  request.set_workers_known(workers_known_);
  request.set_servers_known(servers_known_);
  renewed_ = around_.coordinator->state().Renew(request, around_.world->time());
  around_.coordinator->Deliver();
  around_.world->network.Signal(around_.coordinator->machine(), options_.machine,
                                [this] { OnRenewed(); });
}

void SimulatedWorker::OnRenewed() {
  if (!renewing_) return;
  if (!renewed_.ok()) {
    // Why the loop ends is told when it has.
    lost_ = renewed_.status();
    if (loop_ != nullptr) loop_->Stop();
    process_->Interrupt();
    return;
  }
  coordination_->OnRenewed(*renewed_);
  // Servers do not come and go here, so that the list is of no use.
  if (renewed_->has_server_list()) servers_known_ = renewed_->server_list().generation();
  // A drain is acknowledged at once: all members wait for it.
  const bool told = drain_seen_ == renewed_->drain_exchange();
  drain_seen_ = renewed_->drain_exchange();
  RenewAfter(told ? renew_interval_ : 0);
  // Last: whoever waits for another worker may go on at once.
  if (renewed_->has_worker_list()) SetWorkers(renewed_->worker_list());
}

void SimulatedWorker::Crash() {
  if (process_->ended()) return;
  process_->Crash();
  renewing_ = false;
  if (options_.on_crash) options_.on_crash();
}

}  // namespace tessera
