#include "server/rpc/attach_link.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"
#include "common/base/wakeup.h"
#include "common/metrics/process_memory.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

// Removed members that an acknowledgement repeats, newest last.
constexpr size_t kRemovedMax = 256;
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);
constexpr absl::Duration kWaitingLogInterval = absl::Seconds(10);

using Stream = grpc::ClientReaderWriter<v1::ShardMessage, v1::PlanMessage>;

}  // namespace

// Shared with the callbacks that the shard's thread may still hold when the link goes.
struct AttachLink::State : std::enable_shared_from_this<AttachLink::State> {
  explicit State(Options o) : options(std::move(o)) {
    std::random_device device;
    hello.set_life((uint64_t{device()} << 32) | device() | 1);
    hello.set_rank(options.rank);
    hello.set_lead_term(options.lead_term);
    hello.set_job_digest(options.job_digest);
    hello.set_address(options.address);
    hello.set_layout_hash(options.shard->layout_hash());
    hello.set_parameter_bytes(options.shard->slices().bytes());
  }

  void Read();
  void Write();
  void Handle(const v1::PlanMessage& message);
  void HandlePlan(const v1::Plan& message);
  void HandlePropose(const v1::Proposal& proposal);
  void HandleWithdraw(uint64_t last);
  void HandleCheckpoint(const v1::CheckpointOrder& order);
  void HandleRestore(const v1::RestoreOrder& order);
  // Asks the shard for counters; they are sent when they come.
  void Inspect(bool closing);
  void Queue(v1::ShardMessage message) {
    {
      absl::MutexLock lock(&mutex);
      if (connected) queue.push_back(std::move(message));
    }
    write.Notify();
  }
  // Both threads have to look whether this is the end.
  void Wake() {
    pause.Notify();
    write.Notify();
  }
  void End(absl::Status status);
  bool Stopping() {
    absl::MutexLock lock(&mutex);
    return stopping || ended;
  }

  const Options options;
  v1::ServerHello hello;  // constant
  Wakeup pause;  // of the thread that reads
  Wakeup write;  // there is something to write
  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  bool connected ABSL_GUARDED_BY(mutex) = false;
  bool writing ABSL_GUARDED_BY(mutex) = false;
  bool heard_once ABSL_GUARDED_BY(mutex) = false;
  absl::Time last_heard ABSL_GUARDED_BY(mutex) = SteadyNow();
  grpc::ClientContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  Stream* stream ABSL_GUARDED_BY(mutex) = nullptr;
  std::deque<v1::ShardMessage> queue ABSL_GUARDED_BY(mutex);
  bool inspecting ABSL_GUARDED_BY(mutex) = false;
  bool draining ABSL_GUARDED_BY(mutex) = false;
  bool leaving ABSL_GUARDED_BY(mutex) = false;
  std::string job_failure ABSL_GUARDED_BY(mutex);
  Plan plan ABSL_GUARDED_BY(mutex);
  std::vector<v1::PlanApplied::Removed> removed ABSL_GUARDED_BY(mutex);
  uint64_t last_proposal ABSL_GUARDED_BY(mutex) = 0;
  v1::ShardMessage last_answer ABSL_GUARDED_BY(mutex);
  v1::ServerCounters counters ABSL_GUARDED_BY(mutex);
  v1::ShardMessage last_part ABSL_GUARDED_BY(mutex);
  uint64_t restoring ABSL_GUARDED_BY(mutex) = 0;  // generations
  uint64_t restored ABSL_GUARDED_BY(mutex) = 0;
};

void AttachLink::State::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex);
    if (ended || stopping) return;
    ended = true;
    if (context != nullptr && !status.ok()) context->TryCancel();
  }
  Wake();
  if (options.on_end) options.on_end(std::move(status));
}

void AttachLink::State::HandlePlan(const v1::Plan& message) {
  Plan wanted = ToPlan(message);
  {
    absl::MutexLock lock(&mutex);
    if (wanted.generation > plan.generation) plan = wanted;
  }
  auto self = shared_from_this();
  const uint64_t generation = message.generation();
  options.shard->SetPlan(std::move(wanted), [self, generation](std::vector<Shard::Removed> gone) {
    v1::ShardMessage answer;
    answer.mutable_applied()->set_generation(generation);
    {
      absl::MutexLock lock(&self->mutex);
      for (const Shard::Removed& r : gone) {
        v1::PlanApplied::Removed entry;
        entry.set_member(r.member.value());
        entry.set_last_exchange(r.last_exchange.value());
        self->removed.push_back(std::move(entry));
        if (self->removed.size() > kRemovedMax) self->removed.erase(self->removed.begin());
      }
      for (const auto& entry : self->removed) *answer.mutable_applied()->add_removed() = entry;
    }
    self->Queue(std::move(answer));
  });
}

void AttachLink::State::HandlePropose(const v1::Proposal& proposal) {
  const uint64_t number = proposal.proposal();
  {
    absl::MutexLock lock(&mutex);
    if (number == last_proposal) {
      // The connection was made anew. An answer that is not there yet comes by itself.
      if (last_answer.has_proposal_reply()) queue.push_back(last_answer);
      write.Notify();
      return;
    }
    last_proposal = number;
    last_answer.Clear();
  }
  auto self = shared_from_this();
  options.shard->Propose(number, Exchange(proposal.member().first_exchange()),
                         [self, number](Exchange promised) {
                           v1::ShardMessage answer;
                           answer.mutable_proposal_reply()->set_proposal(number);
                           answer.mutable_proposal_reply()->set_first_exchange(promised.value());
                           {
                             absl::MutexLock lock(&self->mutex);
                             if (self->last_proposal == number) self->last_answer = answer;
                           }
                           self->Queue(std::move(answer));
                         });
}

void AttachLink::State::HandleWithdraw(uint64_t last) {
  // Also those that the shard knows from the one that it followed.
  options.shard->Withdraw(last);
}

void AttachLink::State::HandleCheckpoint(const v1::CheckpointOrder& order) {
  {
    absl::MutexLock lock(&mutex);
    if (last_part.part().number() == order.mark().number()) {
      queue.push_back(last_part);  // The connection was made anew.
      write.Notify();
      return;
    }
  }
  auto self = shared_from_this();
  const auto done = [self](v1::CheckpointPart part) {
    v1::ShardMessage answer;
    *answer.mutable_part() = std::move(part);
    {
      absl::MutexLock lock(&self->mutex);
      self->last_part = answer;
    }
    self->Queue(std::move(answer));
  };
  if (options.save) return options.save(order, done);
  v1::CheckpointPart refusal;
  refusal.set_number(order.mark().number());
  refusal.set_error("checkpoint.directory is not set here");
  done(std::move(refusal));
}

void AttachLink::State::HandleRestore(const v1::RestoreOrder& order) {
  auto self = shared_from_this();
  const uint64_t generation = order.generation();
  const auto done = [self, generation](absl::Status status) {
    v1::ShardMessage answer;
    answer.mutable_restored()->set_generation(generation);
    answer.mutable_restored()->set_error(std::string(status.message()));
    {
      absl::MutexLock lock(&self->mutex);
      if (status.ok()) self->restored = std::max(self->restored, generation);
    }
    self->Queue(std::move(answer));
  };
  bool is_done = false;
  {
    absl::MutexLock lock(&mutex);
    is_done = restored >= generation;
    if (!is_done && restoring >= generation) return;  // Its answer comes by itself.
    restoring = std::max(restoring, generation);
    removed.clear();
  }
  if (is_done) return done(absl::OkStatus());
  if (options.restore) return options.restore(order, done);
  done(absl::FailedPreconditionError("it has no way to read checkpoints"));
}

void AttachLink::State::Handle(const v1::PlanMessage& message) {
  {
    absl::MutexLock lock(&mutex);
    last_heard = SteadyNow();
    heard_once = true;
  }
  if (message.has_restore()) HandleRestore(message.restore());
  if (!message.copy_from().empty()) {
    options.shard->AwaitCopy();
    if (options.copy_from) options.copy_from(message.copy_from());
  }
  if (message.has_plan()) HandlePlan(message.plan());
  if (message.has_checkpoint()) HandleCheckpoint(message.checkpoint());
  if (message.has_propose()) HandlePropose(message.propose());
  if (message.withdraw() != 0) HandleWithdraw(message.withdraw());
  if (options.on_begun && (message.has_plan() || message.has_restore())) options.on_begun();
  if (message.has_core_question()) options.shard->AskCore(FromMessage(message.core_question()));
  if (message.drain()) {
    {
      absl::MutexLock lock(&mutex);
      draining = true;
      job_failure = message.failure();
    }
    Inspect(true);
  }
}

void AttachLink::State::Inspect(bool closing) {
  auto self = shared_from_this();
  options.shard->Inspect(closing, [self, closing](ShardThread::View view) {
    v1::ShardMessage message;
    if (view.core_report) *message.mutable_core_report() = ToMessage(*view.core_report);
    v1::ServerCounters& counters = *message.mutable_counters();
    counters = ToMessage(view.counters);
    counters.set_parked_pulls(view.parked_reads);
    counters.set_parameters_hash(view.parameters_hash);
    counters.set_rank(self->hello.rank());
    counters.set_closing(closing);
    counters.set_parameter_bytes(self->hello.parameter_bytes());
    const ProcessMemory memory = ReadProcessMemory();
    counters.set_rss_bytes(memory.rss_bytes);
    counters.set_peak_rss_bytes(memory.peak_rss_bytes);
    if (self->options.fill_counters) self->options.fill_counters(&counters);
    {
      absl::MutexLock lock(&self->mutex);
      for (MemberId member : view.waits_for) {
        const PlanMember* entry = self->plan.Find(member);
        if (entry != nullptr) counters.add_waits_for_ranks(entry->rank.value());
      }
      self->counters = counters;
      if (!closing) self->inspecting = false;
    }
    self->Queue(std::move(message));
  });
}

// One connection after another.
void AttachLink::State::Read() {
  auto stub = v1::Coordinator::NewStub(OpenControlChannel(options.coordinator));
  absl::Time next_log = SteadyNow() + kWaitingLogInterval;
  while (!Stopping()) {
    grpc::ClientContext call;
    {
      absl::MutexLock lock(&mutex);
      context = &call;
    }
    // Stopping() above and a stop here: the call is cancelled as soon as context is set.
    if (Stopping()) call.TryCancel();
    std::unique_ptr<Stream> opened = stub->Attach(&call);
    {
      absl::MutexLock lock(&mutex);
      queue.clear();
      queue.emplace_back();
      *queue.back().mutable_hello() = hello;
      if (leaving) queue.back().set_leaves(true);
      stream = opened.get();
      connected = true;
    }
    write.Notify();
    v1::PlanMessage message;
    std::string refusal;
    while (opened->Read(&message)) {
      if (!message.refuse().empty()) {
        refusal = message.refuse();
        call.TryCancel();
      }
      Handle(message);
      message.Clear();
    }
    bool was_draining, was_leaving, never_heard;
    absl::Status job_outcome;
    {
      absl::MutexLock lock(&mutex);
      connected = false;
      stream = nullptr;
      const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) { return !writing; };
      mutex.Await(absl::Condition(&idle));
      was_draining = draining && counters.closing();
      was_leaving = leaving;
      if (!job_failure.empty())
        job_outcome = absl::AbortedError("the job has failed: " + job_failure);
    }
    const absl::Status status = FromGrpc(opened->Finish());
    {
      absl::MutexLock lock(&mutex);
      context = nullptr;
    }
    if (!refusal.empty() && was_leaving) {
      End(absl::OkStatus());
    } else if (!refusal.empty()) {
      End(absl::FailedPreconditionError(
          absl::StrCat("coordinator at ", options.coordinator, " refused this server: ", refusal)));
    } else if (was_draining) {
      End(job_outcome);
    }
    {
      absl::MutexLock lock(&mutex);
      never_heard = !heard_once;
    }
    if (never_heard && SteadyNow() > next_log) {
      next_log = SteadyNow() + kWaitingLogInterval;
      Log(LogLevel::kInfo, absl::StrCat("control: waiting for the coordinator at=",
                                        options.coordinator, " why=\"", status.message(), "\""));
    }
    pause.WaitFor(kRetryPause);
  }
}

// Sends what is queued, asks for counters when it is time, and watches the lease.
void AttachLink::State::Write() {
  const absl::Duration interval = std::min(kCountersInterval, options.lease_timeout / 4);
  absl::Time next_counters = SteadyNow() + interval;
  bool has_more = false;
  while (true) {
    v1::ShardMessage message;
    Stream* to = nullptr;
    bool inspect = false, lost = false;
    if (!has_more) write.WaitUntil(next_counters);
    {
      absl::MutexLock lock(&mutex);
      if (stopping || ended) return;
      lost = heard_once && SteadyNow() - last_heard > options.lease_timeout;
      if (stream != nullptr && !queue.empty()) {
        to = stream;
        message = std::move(queue.front());
        queue.pop_front();
        writing = true;
      }
      has_more = to != nullptr && !queue.empty();
      if (SteadyNow() >= next_counters) {
        next_counters = SteadyNow() + interval;
        inspect = !inspecting && !draining;
        inspecting = inspecting || inspect;
      }
    }
    if (to != nullptr) {
      bool sent = to->Write(message);
      if (sent && message.counters().closing()) to->WritesDone();
      absl::MutexLock lock(&mutex);
      writing = false;
    }
    if (inspect) Inspect(false);
    if (lost) {
      End(absl::UnavailableError(absl::StrCat("coordinator at ", options.coordinator,
                                              " is lost: not heard for the lease of ",
                                              absl::FormatDuration(options.lease_timeout))));
    }
  }
}

AttachLink::AttachLink(Options options) : state_(std::make_shared<State>(std::move(options))) {
  // What is said before there is a connection is said again with the counters.
  state_->options.shard->SetCoreListener([state = state_](const CoreReport& report) {
    v1::ShardMessage message;
    *message.mutable_core_report() = ToMessage(report);
    state->Queue(std::move(message));
  });
  reader_ = std::thread([state = state_] { state->Read(); });
  writer_ = std::thread([state = state_] { state->Write(); });
}

AttachLink::~AttachLink() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
    if (state_->context != nullptr) state_->context->TryCancel();
  }
  state_->Wake();
  state_->options.shard->SetCoreListener(nullptr);
  reader_.join();
  writer_.join();
}

void AttachLink::Leave() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->leaving = true;
  }
  v1::ShardMessage message;
  message.set_leaves(true);
  state_->Queue(std::move(message));
}

v1::JobStatus AttachLink::OwnStatus() const {
  v1::JobStatus status;
  status.set_job_digest(state_->hello.job_digest());
  status.set_layout_hash(state_->hello.layout_hash());
  absl::MutexLock lock(&state_->mutex);
  status.set_state(state_->ended                             ? "done"
                   : state_->draining                        ? "draining"
                   : state_->plan.generation == Generation() ? "waiting"
                                                             : "training");
  status.set_generation(state_->plan.generation.value());
  for (uint32_t rank : state_->counters.waits_for_ranks()) {
    status.add_waiting_for(absl::StrCat("worker ", rank));
  }
  v1::ServerStatus& server = *status.add_servers();
  server.set_rank(state_->hello.rank());
  server.set_address(state_->hello.address());
  *server.mutable_counters() = state_->counters;
  return status;
}

}  // namespace tessera
