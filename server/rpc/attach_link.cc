#include "server/rpc/attach_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/consistency/plan.h"
#include "server/core/core_messages.h"
#include "server/rpc/attach_link_state.h"
#include "server/rpc/coordinator_wait.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

}  // namespace

std::string AttachLink::State::WhyToEnd(const v1::PlanMessage& message) {
  if (!message.refuse().empty()) {
    return absl::StrCat("coordinator at ", stream.address(),
                        " refused this server: ", message.refuse());
  }
  if (BeginsAnew(message)) {
    return absl::StrCat("checkpoint.restore: \"", options.begins_from,
                        "\" here, and the coordinator at ", stream.address(),
                        " begins the job anew; set it for server 0 too, or for nobody");
  }
  if (!message.has_plan()) return "";
  const absl::Status checked = CheckPlan(ToPlan(message.plan()));
  if (checked.ok()) return "";
  return absl::StrCat("coordinator at ", stream.address(), " sent a ", checked.message(),
                      "; all must run the same build");
}

// One connection after another.
void AttachLink::State::Read() {
  CoordinatorWait wait;
  while (!Stopping()) {
    absl::Status status = stream.Open();
    if (status.ok()) status = Converse();
    bool has_heard = false;
    {
      absl::MutexLock lock(&mutex);
      has_heard = contact.has_heard();
    }
    if (!has_heard) wait.Tell(stream.address(), status);
    pause.WaitFor(kRetryPause);
  }
}

absl::Status AttachLink::State::Converse() {
  {
    absl::MutexLock lock(&mutex);
    queue.clear();
    queue.emplace_back();
    *queue.back().mutable_hello() = hello;
    if (leaving) queue.back().set_leaves(true);
    connected = true;
  }
  stream.MayWrite();
  write.Notify();
  v1::PlanMessage message;
  std::string refusal;
  while (stream.stream().Read(&message)) {
    if (!Heed(message)) {
      stream.Cut();
      continue;
    }
    if (refusal.empty()) refusal = WhyToEnd(message);
    if (refusal.empty()) {
      Handle(message);
    } else {
      stream.Cut();
    }
    message.Clear();
  }
  {
    absl::MutexLock lock(&mutex);
    connected = false;
  }
  const absl::Status status = stream.Finish();
  bool was_leaving, is_done;
  absl::Status job_outcome;
  {
    absl::MutexLock lock(&mutex);
    was_leaving = leaving;
    is_done = has_closed;
    if (!job_failure.empty()) {
      job_outcome = absl::AbortedError("the job has failed: " + job_failure);
    }
  }
  if (!refusal.empty() && was_leaving && options.on_leave) {
    v1::LeaveAnswer removed;
    removed.set_may_end(true);
    options.on_leave(removed);
  }
  if (!refusal.empty()) {
    End(was_leaving ? absl::OkStatus() : absl::FailedPreconditionError(refusal));
  } else if (is_done) {
    End(job_outcome);
  }
  return status;
}

bool AttachLink::State::WriteNext(Stream::Stream* to) {
  v1::ShardMessage message;
  bool has_more = false;
  {
    absl::MutexLock lock(&mutex);
    if (queue.empty()) return false;
    message = std::move(queue.front());
    queue.pop_front();
    has_more = !queue.empty();
  }
  if (to->Write(message) && message.counters().closing()) {
    to->WritesDone();
    absl::MutexLock lock(&mutex);
    has_closed = true;
  }
  return has_more;
}

// Sends what is queued, asks for counters when it is time, and watches the lease.
void AttachLink::State::Write() {
  const absl::Duration interval = std::min(kCountersInterval, options.lease_timeout / 4);
  absl::Time next_counters = SteadyNow() + interval;
  bool has_more = false;
  while (true) {
    if (!has_more) write.WaitUntil(next_counters);
    if (Stopping()) return;
    has_more = false;
    stream.Write([&](Stream::Stream* to) { has_more = WriteNext(to); });
    bool inspect = false;
    absl::Duration silence, waited;
    {
      absl::MutexLock lock(&mutex);
      const absl::Time now = SteadyNow();
      silence = contact.Silence(now);
      waited = patience();
      if (now >= next_counters) {
        next_counters = now + interval;
        inspect = !inspecting && !draining;
        inspecting = inspecting || inspect;
      }
    }
    if (inspect) Inspect(false);
    if (silence > options.lease_timeout) SetAway(true, silence);
    if (silence > options.lease_timeout / 2) stream.LookElsewhere();
    if (silence > waited) {
      End(absl::UnavailableError(absl::StrCat(
          "coordinator at ", stream.address(), " is lost: not heard for ",
          waited == options.lease_timeout ? "the lease of " : "", absl::FormatDuration(waited))));
    }
  }
}

AttachLink::AttachLink(Options options) : state_(std::make_shared<State>(std::move(options))) {
  // What is said before there is a connection is said again with the counters.
  state_->options.shard->Post([state = state_](ServedShard& served) {
    served.SetCoreListener([state](const CoreReport& report) {
      v1::ShardMessage message;
      *message.mutable_core_report() = ToMessage(report);
      state->Queue(std::move(message));
    });
  });
  reader_ = std::thread([state = state_] { state->Read(); });
  writer_ = std::thread([state = state_] { state->Write(); });
}

AttachLink::~AttachLink() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  state_->stream.Stop();
  state_->Wake();
  state_->options.shard->Post([](ServedShard& served) { served.SetCoreListener(nullptr); });
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
  coordinator.set_address(state_->stream.address());
  coordinator.set_term(state_->contact.word().term());
  const absl::Duration silence = SteadyNow() - state_->contact.last_heard();
  coordinator.set_silent_seconds(absl::ToDoubleSeconds(silence));
  coordinator.set_is_away(state_->is_away);
  if (state_->is_away) {
    coordinator.set_waits_seconds(
        absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), state_->patience() - silence)));
    status.set_state("waiting");
    status.clear_waiting_for();
    status.add_waiting_for(absl::StrCat("the coordinator at ", state_->stream.address()));
  }
  return status;
}

v1::CoordinatorWord AttachLink::word() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->contact.word();
}

std::string AttachLink::coordinator() const { return state_->stream.address(); }

}  // namespace tessera
