// AttachLink: what is done with the coordinator's messages.
#include "server/rpc/attach_link_state.h"

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/metrics/process_memory.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {

void AttachLink::State::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex);
    if (ended || stopping) return;
    ended = true;
  }
  stream.Stop();
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
  options.shard->PostOfPlan([self, generation, wanted = std::move(wanted)](ServedShard& served) {
    v1::ShardMessage answer;
    answer.mutable_applied()->set_generation(generation);
    for (const Shard::Removed& r : served.SetPlan(wanted)) {
      v1::PlanApplied::Removed& entry = *answer.mutable_applied()->add_removed();
      entry.set_member(r.member.value());
      entry.set_last_exchange(r.last_exchange.value());
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
  const Exchange first(proposal.member().first_exchange());
  options.shard->PostOfPlan([self, number, first](ServedShard& served) {
    v1::ShardMessage answer;
    answer.mutable_proposal_reply()->set_proposal(number);
    answer.mutable_proposal_reply()->set_first_exchange(served.Propose(number, first).value());
    {
      absl::MutexLock lock(&self->mutex);
      if (self->last_proposal == number) self->last_answer = answer;
    }
    self->Queue(std::move(answer));
  });
}

void AttachLink::State::HandleLeave(const v1::LeaveAnswer& answer) {
  {
    absl::MutexLock lock(&mutex);
    if (!answer.instead().empty()) leaving = false;
  }
  if (options.on_leave) options.on_leave(answer);
  if (answer.may_end()) End(absl::OkStatus());
}

void AttachLink::State::HandleWithdraw(uint64_t last) {
  // Also those that the shard knows from the one that it followed.
  options.shard->PostOfPlan([last](ServedShard& served) { served.Withdraw(last); });
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
    answer.mutable_restored()->set_error(ToUtf8(status.message()));
    {
      absl::MutexLock lock(&self->mutex);
      self->last_restored = answer;
    }
    self->Queue(std::move(answer));
  };
  {
    absl::MutexLock lock(&mutex);
    if (last_restored.restored().generation() >= generation) {
      queue.push_back(
          last_restored);  // The connection was made anew, and the answer may be lost, whatever it was.
      write.Notify();
      return;
    }
    if (restoring >= generation) return;  // Its answer comes by itself.
    restoring = generation;
  }
  if (options.restore) return options.restore(order, done);
  done(absl::FailedPreconditionError("it has no way to read checkpoints"));
}

bool AttachLink::State::Heed(const v1::PlanMessage& message) {
  bool was_away = false;
  absl::Duration silence;
  {
    absl::MutexLock lock(&mutex);
    const absl::Time now = SteadyNow();
    silence = contact.Silence(now);
    if (!contact.Hear(message.has_word() ? &message.word() : nullptr, now)) return false;
    hello.set_run(contact.word().run());
    hello.set_term(contact.word().term());
    hello.set_changes(contact.word().changes());
    was_away = is_away;
  }
  if (was_away) SetAway(false, silence);
  return true;
}

void AttachLink::State::SetAway(bool away, absl::Duration silence) {
  {
    absl::MutexLock lock(&mutex);
    if (is_away == away) return;
    // It may have been heard just now, by the other thread.
    if (away && contact.Silence(SteadyNow()) <= contact.lease()) return;
    is_away = away;
    silence_then = silence;
  }
  TellAway();
}

void AttachLink::State::TellAway() {
  absl::MutexLock teller(&telling);
  bool away = false;
  absl::Duration silence, waited;
  {
    absl::MutexLock lock(&mutex);
    // The other thread may have told it, or have changed it back.
    if (is_away == told_away) return;
    away = told_away = is_away;
    silence = silence_then;
    waited = patience();
  }
  LogCoordinatorAway("server", "nothing is trained", away, silence, waited);
  if (options.on_away) options.on_away(away);
}

bool AttachLink::State::BeginsAnew(const v1::PlanMessage& message) {
  if (options.begins_from.empty() || !message.has_plan() || message.has_restore()) return false;
  absl::MutexLock lock(&mutex);
  return restoring == 0;
}

void AttachLink::State::Handle(const v1::PlanMessage& message) {
  if (message.has_restore()) HandleRestore(message.restore());
  if (!message.copy_from().empty()) {
    options.shard->Post([](ServedShard& served) { served.shard().AwaitCopy(); });
    if (options.copy_from) options.copy_from(message.copy_from());
  }
  if (message.has_plan()) HandlePlan(message.plan());
  if (message.has_checkpoint()) HandleCheckpoint(message.checkpoint());
  if (message.has_propose()) HandlePropose(message.propose());
  if (message.withdraw() != 0) HandleWithdraw(message.withdraw());
  if (options.on_begun && (message.has_plan() || message.has_restore())) options.on_begun();
  if (message.has_leave()) HandleLeave(message.leave());
  if (message.has_core_question()) {
    options.shard->PostOfPlan([question = FromMessage(message.core_question())](
                                  ServedShard& served) { served.AskCore(question); });
  }
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

}  // namespace tessera
