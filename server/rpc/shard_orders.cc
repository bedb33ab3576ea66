#include "server/rpc/shard_orders.h"

#include <vector>

#include "common/base/utf8.h"
#include "common/metrics/process_memory.h"
#include "server/core/core_messages.h"
#include "server/shard/shard_messages.h"

namespace tessera {

// The parts of one message are carried out in the order in which they build on each other: parameters first, then who
// takes part, then what was promised to whom.
void ShardOrders::Follow(const v1::PlanMessage& message) {
  if (options_.on_servers && message.servers_size() > 0) {
    options_.on_servers({message.servers().begin(), message.servers().end()});
  }
  if (message.has_restore()) Restore(message.restore());
  if (!message.copy_from().empty()) {
    options_.shard->Post([](ServedShard& served) { served.shard().replica().AwaitCopy(); });
    if (options_.copy_from) options_.copy_from(message.copy_from());
  }
  if (message.has_plan()) FollowPlan(message.plan());
  if (message.has_checkpoint()) SaveCheckpoint(message.checkpoint());
  if (message.has_propose()) Promise(message.propose());
  // Proposals that the shard knows from the one that it followed end with it, too.
  if (const uint64_t last = message.withdraw(); last != 0) {
    options_.shard->PostOfPlan([last](ServedShard& served) { served.Withdraw(last); });
  }
  // From the first plan on this process is part of a job that trains.
  if (options_.on_begun && (message.has_plan() || message.has_restore())) options_.on_begun();
  if (message.has_core_question()) {
    options_.shard->PostOfPlan([question = FromMessage(message.core_question())](
                                   ServedShard& served) { served.AskCore(question); });
  }
}

bool ShardOrders::BeginsAnew(const v1::PlanMessage& message) const {
  if (options_.begins_from.empty() || !message.has_plan() || message.has_restore()) return false;
  absl::MutexLock lock(&mutex_);
  // A server with values of a checkpoint in a job that begins anew would train from values nobody else has.
  return restoring_ == 0;
}

void ShardOrders::FollowPlan(const v1::Plan& message) {
  Plan wanted = ToPlan(message);
  {
    absl::MutexLock lock(&mutex_);
    // Plans come in order from one coordinator, but a new one may repeat an old plan.
    if (wanted.generation > plan_.generation) plan_ = wanted;
  }
  const auto apply = [self = shared_from_this(), generation = message.generation(),
                      wanted = std::move(wanted)](ServedShard& served) {
    // Answered even where the plan is known: the last answer may have been lost.
    v1::ShardMessage answer;
    answer.mutable_applied()->set_generation(generation);
    for (const Shard::Removed& r : served.SetPlan(wanted)) {
      v1::PlanApplied::Removed& entry = *answer.mutable_applied()->add_removed();
      entry.set_member(r.member.value());
      entry.set_last_exchange(r.last_exchange.value());
    }
    self->answers_->Push(std::move(answer));
  };
  options_.shard->PostOfPlan(apply);
}

// A number is answered once, whatever connection it comes over: a second promise of the same proposal could be of
// another exchange.
void ShardOrders::Promise(const v1::Proposal& proposal) {
  const uint64_t number = proposal.proposal();
  {
    absl::MutexLock lock(&mutex_);
    if (number == last_proposal_) {
      // The connection was made anew. A promise that is not there yet comes by itself.
      if (last_promise_.has_proposal_reply()) answers_->Push(last_promise_);
      return;
    }
    last_proposal_ = number;
    last_promise_.Clear();
  }
  const Exchange first(proposal.member().first_exchange());
  const auto promise = [self = shared_from_this(), number, first](ServedShard& served) {
    v1::ShardMessage answer;
    answer.mutable_proposal_reply()->set_proposal(number);
    answer.mutable_proposal_reply()->set_first_exchange(served.Propose(number, first).value());
    {
      absl::MutexLock lock(&self->mutex_);
      if (self->last_proposal_ == number) self->last_promise_ = answer;
    }
    self->answers_->Push(std::move(answer));
  };
  options_.shard->PostOfPlan(promise);
}

void ShardOrders::SaveCheckpoint(const v1::CheckpointOrder& order) {
  {
    absl::MutexLock lock(&mutex_);
    // The connection was made anew.
    if (last_part_.part().number() == order.mark().number()) return answers_->Push(last_part_);
  }
  const auto done = [self = shared_from_this()](v1::CheckpointPart part) {
    v1::ShardMessage answer;
    *answer.mutable_part() = std::move(part);
    {
      absl::MutexLock lock(&self->mutex_);
      self->last_part_ = answer;
    }
    self->answers_->Push(std::move(answer));
  };
  // Without a folder the server says so, and the checkpoint fails with a reason.
  if (options_.save) return options_.save(order, done);
  v1::CheckpointPart refusal;
  refusal.set_number(order.mark().number());
  refusal.set_error("checkpoint.directory is not set here");
  done(std::move(refusal));
}

void ShardOrders::Restore(const v1::RestoreOrder& order) {
  const uint64_t generation = order.generation();
  {
    absl::MutexLock lock(&mutex_);
    // The connection was made anew, and the answer may be lost, whatever it was.
    if (last_restored_.restored().generation() >= generation) return answers_->Push(last_restored_);
    if (restoring_ >= generation) return;  // Its answer comes by itself.
    restoring_ = generation;
  }
  const auto done = [self = shared_from_this(), generation](absl::Status status) {
    v1::ShardMessage answer;
    answer.mutable_restored()->set_generation(generation);
    answer.mutable_restored()->set_error(ToUtf8(status.message()));
    {
      absl::MutexLock lock(&self->mutex_);
      self->last_restored_ = answer;
    }
    self->answers_->Push(std::move(answer));
  };
  if (options_.restore) return options_.restore(order, done);
  done(absl::FailedPreconditionError("it has no way to read checkpoints"));
}

// One report at a time: a shard that is busy for long would otherwise answer a queue of them. The last one, with the
// hash of all parameters, is made besides.
void ShardOrders::Report(bool is_last) {
  {
    absl::MutexLock lock(&mutex_);
    if (!is_last && (is_reporting_ || has_reported_last_)) return;
    (is_last ? has_reported_last_ : is_reporting_) = true;
  }
  const auto answer = [self = shared_from_this(), is_last](ShardThread::View view) {
    v1::ShardMessage message;
    if (view.core_report) *message.mutable_core_report() = ToMessage(*view.core_report);
    v1::ServerCounters& counters = *message.mutable_counters();
    counters = ToMessage(view.counters);
    counters.set_parked_pulls(view.parked_reads);
    counters.set_parameters_hash(view.parameters_hash);
    counters.set_rank(self->options_.rank);
    counters.set_closing(is_last);
    counters.set_parameter_bytes(self->options_.shard->traits().slices.bytes());
    const ProcessMemory memory = ReadProcessMemory();
    counters.set_rss_bytes(memory.rss_bytes);
    counters.set_peak_rss_bytes(memory.peak_rss_bytes);
    if (self->options_.fill_counters) self->options_.fill_counters(&counters);
    {
      absl::MutexLock lock(&self->mutex_);
      for (MemberId member : view.waits_for) {
        const PlanMember* entry = self->plan_.Find(member);
        // Workers are named by their ranks, as a person knows them.
        if (entry != nullptr) counters.add_waits_for_ranks(entry->rank.value());
      }
      self->counters_ = counters;
      if (!is_last) self->is_reporting_ = false;
    }
    self->answers_->Push(std::move(message));
  };
  options_.shard->Inspect(is_last, answer);
}

Generation ShardOrders::generation() const {
  absl::MutexLock lock(&mutex_);
  return plan_.generation;
}

v1::ServerCounters ShardOrders::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace tessera
