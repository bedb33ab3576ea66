#include "server/rpc/attach_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/core/core_messages.h"
#include "server/rpc/attach_link_state.h"
#include "server/rpc/coordinator_wait.h"

namespace tessera {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

}  // namespace

// One connection after another.
void AttachLink::State::Read() {
  std::unique_ptr<v1::Coordinator::Stub> stub;
  std::string connected_to;
  CoordinatorWait wait;
  while (!Stopping()) {
    const std::string at = options.find_coordinator ? options.find_coordinator() : options.coordinator;
    if (!at.empty() && at != connected_to) {
      stub = v1::Coordinator::NewStub(OpenControlChannel(at));
      connected_to = at;
      absl::MutexLock lock(&mutex);
      address = at;
    }
    if (stub == nullptr) {
      pause.WaitFor(kRetryPause);
      continue;
    }
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
      if (!Heed(message)) {
        call.TryCancel();
        continue;
      }
      if (!message.refuse().empty()) {
        refusal = absl::StrCat("coordinator at ", connected_to, " refused this server: ", message.refuse());
      } else if (BeginsAnew(message)) {
        refusal = absl::StrCat("checkpoint.restore: \"", options.begins_from, "\" here, and the coordinator at ",
                               connected_to, " begins the job anew; set it for server 0 too, or for nobody");
      }
      if (refusal.empty()) {
        Handle(message);
      } else {
        call.TryCancel();
      }
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
      End(absl::FailedPreconditionError(refusal));
    } else if (was_draining) {
      End(job_outcome);
    }
    {
      absl::MutexLock lock(&mutex);
      never_heard = !heard_once;
    }
    if (never_heard) wait.Tell(connected_to, status);
    pause.WaitFor(kRetryPause);
  }
}

// Sends what is queued, asks for counters when it is time, and watches the lease.
void AttachLink::State::Write() {
  const absl::Duration interval = std::min(kCountersInterval, options.lease_timeout / 4);
  absl::Time next_counters = SteadyNow() + interval;
  bool has_more = false;
  while (true) {
    if (!has_more) write.WaitUntil(next_counters);
    v1::ShardMessage message;
    Stream* to = nullptr;
    bool inspect = false, lost = false;
    absl::Duration silence, waited;
    std::string at;
    {
      absl::MutexLock lock(&mutex);
      if (stopping || ended) return;
      silence = heard_once ? SteadyNow() - last_heard : absl::ZeroDuration();
      waited = patience();
      lost = silence > waited;
      at = address;
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
    if (silence > options.lease_timeout) SetAway(true, silence);
    if (silence > options.lease_timeout / 2) LookElsewhere();
    if (lost) {
      End(absl::UnavailableError(
          absl::StrCat("coordinator at ", at, " is lost: not heard for ",
                       waited == options.lease_timeout ? "the lease of " : "",
                       absl::FormatDuration(waited))));
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
  v1::CoordinatorStatus& coordinator = *status.mutable_coordinator();
  coordinator.set_address(state_->address);
  coordinator.set_term(state_->word.term());
  const absl::Duration silence = SteadyNow() - state_->last_heard;
  coordinator.set_silent_seconds(absl::ToDoubleSeconds(silence));
  coordinator.set_is_away(state_->is_away);
  if (state_->is_away) {
    coordinator.set_waits_seconds(
        absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), state_->patience() - silence)));
    status.set_state("waiting");
    status.clear_waiting_for();
    status.add_waiting_for(absl::StrCat("the coordinator at ", state_->address));
  }
  return status;
}

v1::CoordinatorWord AttachLink::word() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->word;
}

std::string AttachLink::coordinator() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->address;
}

}  // namespace tessera
