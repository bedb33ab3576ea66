#include "server/rpc/attach_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"
#include "common/consistency/plan.h"
#include "server/core/core_messages.h"
#include "server/rpc/coordinator_wait.h"
#include "server/shard/shard_messages.h"

namespace tessera {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

// The longest time between two reports of counters.
constexpr absl::Duration kCountersInterval = absl::Milliseconds(250);

v1::ServerHello HelloOf(const AttachOptions& options) {
  std::random_device device;
  v1::ServerHello hello;
  // A number that no other start of this process has; 0 would say that there is none.
  hello.set_life(options.life != 0 ? options.life : (uint64_t{device()} << 32) | device() | 1);
  hello.set_rank(options.rank);
  hello.set_lead_term(options.lead_term);
  hello.set_job_digest(options.job_digest);
  hello.set_job_text(options.job_text);
  hello.set_initial_sum(options.initial_sum);
  hello.set_address(options.address);
  hello.set_layout_hash(options.shard->traits().layout_hash);
  hello.set_parameter_bytes(options.shard->traits().slices.bytes());
  return hello;
}

}  // namespace

AttachLink::AttachLink(Options options)
    : options_(std::move(options)),
      hello_(HelloOf(options_)),
      answers_(std::make_shared<AnswerQueue>()),
      orders_(std::make_shared<ShardOrders>(options_, answers_)),
      contact_(options_.lease_timeout, options_.on_away),
      stream_(options_.coordinator, options_.find_coordinator, options_.open_channel) {
  // What is said before there is a connection is said again with the counters.
  options_.shard->Post([answers = answers_](ServedShard& served) {
    served.SetCoreListener([answers](const CoreReport& report) {
      v1::ShardMessage message;
      *message.mutable_core_report() = ToMessage(report);
      answers->Push(std::move(message));
    });
  });
  reader_ = std::thread([this] { Read(); });
  writer_ = std::thread([this] { Write(); });
}

AttachLink::~AttachLink() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  // Reading and writing threads may both be inside of gRPC: cutting the stream ends either.
  stream_.Stop();
  Wake();
  // The listener holds the queue, which outlives this object; a report would otherwise go nowhere.
  options_.shard->Post([](ServedShard& served) { served.SetCoreListener(nullptr); });
  reader_.join();
  writer_.join();
}

void AttachLink::Leave() {
  {
    absl::MutexLock lock(&mutex_);
    leaving_ = true;
  }
  v1::ShardMessage message;
  message.set_leaves(true);
  answers_->Push(std::move(message));
}

void AttachLink::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    // Only the first end counts; the caller must hear of one reason.
    if (phase_ == Phase::kEnded || stopping_) return;
    phase_ = Phase::kEnded;
  }
  stream_.Stop();
  Wake();
  if (options_.on_end) options_.on_end(std::move(status));
}

void AttachLink::Read() {
  CoordinatorWait wait;
  while (!IsStopping()) {
    absl::Status status = stream_.Open();
    if (status.ok()) status = Converse();
    // Before the first word it is normal that nobody answers; the log tells it now and then.
    if (!contact_.has_heard()) wait.Tell(stream_.address(), status);
    pause_.WaitFor(kRetryPause);
  }
}

// One connection, from hello to its end. Answers are queued by other threads all the while: the queue is open only for
// as long as the connection stands, so that none is sent in front of the hello.
absl::Status AttachLink::Converse() {
  v1::ShardMessage first;
  *first.mutable_hello() = hello_;
  {
    absl::MutexLock lock(&mutex_);
    // A server that was about to leave says so on every connection until it is answered.
    if (leaving_) first.set_leaves(true);
  }
  answers_->Open(std::move(first));
  stream_.MayWrite();
  answers_->Wake();
  v1::PlanMessage message;
  std::string refusal;
  while (stream_.stream().Read(&message)) {
    // The word is from a coordinator that was replaced: the connection is of no use.
    if (!Heed(message)) {
      stream_.Cut();
      continue;
    }
    // What comes behind a refusal is read and dropped, as gRPC ends the stream only once it has been.
    if (refusal.empty()) refusal = WhyToEnd(message);
    if (refusal.empty()) {
      Handle(message);
    } else {
      stream_.Cut();
    }
    message.Clear();
  }
  answers_->Close();
  const absl::Status status = stream_.Finish();
  AfterConnection(refusal);
  return status;
}

// A server that was leaving and is refused has been removed: it may end as if it had been told so.
void AttachLink::AfterConnection(const std::string& refusal) {
  bool was_leaving, is_done;
  absl::Status job_outcome;
  {
    absl::MutexLock lock(&mutex_);
    was_leaving = leaving_;
    is_done = phase_ == Phase::kReported;
    if (!job_failure_.empty()) {
      job_outcome = absl::AbortedError("the job has failed: " + job_failure_);
    }
  }
  if (!refusal.empty() && was_leaving && options_.on_leave) {
    v1::LeaveAnswer removed;
    removed.set_may_end(true);
    options_.on_leave(removed);
  }
  if (!refusal.empty()) {
    End(was_leaving ? absl::OkStatus() : absl::FailedPreconditionError(refusal));
  } else if (is_done) {
    End(job_outcome);
  }
}

// The next hello says what was heard last: a coordinator that has not kept as much learns that it is behind.
bool AttachLink::Heed(const v1::PlanMessage& message) {
  if (!contact_.Hear(message.has_word() ? &message.word() : nullptr)) return false;
  const v1::CoordinatorWord word = contact_.word();
  hello_.set_run(word.run());
  hello_.set_term(word.term());
  hello_.set_changes(word.changes());
  // The coordinator gave this server a key that it did not have; whoever keeps it hears of it.
  if (word.server_key() != 0 && word.server_key() != hello_.server_key() &&
      options_.on_server_key) {
    options_.on_server_key(word.server_key());
  }
  hello_.set_server_key(word.server_key());
  return true;
}

std::string AttachLink::WhyToEnd(const v1::PlanMessage& message) const {
  if (!message.refuse().empty()) {
    return absl::StrCat("coordinator at ", stream_.address(),
                        " refused this server: ", message.refuse());
  }
  if (orders_->BeginsAnew(message)) {
    return absl::StrCat("checkpoint.restore: \"", options_.begins_from,
                        "\" here, and the coordinator at ", stream_.address(),
                        " begins the job anew; set it for server 0 too, or for nobody");
  }
  if (!message.has_plan()) return "";
  // A plan that cannot be is a sign of another build; training by it would go wrong later and elsewhere.
  const absl::Status checked = CheckPlan(ToPlan(message.plan()));
  if (checked.ok()) return "";
  return absl::StrCat("coordinator at ", stream_.address(), " sent a ", checked.message(),
                      "; all must run the same build");
}

void AttachLink::Handle(const v1::PlanMessage& message) {
  orders_->Follow(message);
  if (message.has_leave()) {
    // The job cannot do without this server, which serves until the job, now drained, has ended.
    if (!message.leave().instead().empty()) {
      absl::MutexLock lock(&mutex_);
      leaving_ = false;
    }
    if (options_.on_leave) options_.on_leave(message.leave());
    if (message.leave().may_end()) End(absl::OkStatus());
  }
  if (!message.drain()) return;
  {
    absl::MutexLock lock(&mutex_);
    phase_ = std::max(phase_, Phase::kDraining);
    job_failure_ = message.failure();
  }
  contact_.SetClosing();
  orders_->Report(/*is_last=*/true);
}

bool AttachLink::WriteNext(Stream::Stream* to) {
  v1::ShardMessage message;
  bool has_more = false;
  if (!answers_->Pop(&message, &has_more)) return false;
  // The closing counters are the last word: the coordinator ends the connection once it has them.
  if (to->Write(message) && message.counters().closing()) {
    to->WritesDone();
    absl::MutexLock lock(&mutex_);
    phase_ = std::max(phase_, Phase::kReported);
  }
  return has_more;
}

void AttachLink::Write() {
  // Counters are heartbeats, too: four per lease, and never fewer than four per second.
  const absl::Duration interval = std::min(kCountersInterval, options_.lease_timeout / 4);
  absl::Time next_counters = SteadyNow() + interval;
  bool has_more = false;
  while (true) {
    // Answers are written at once; without any the thread sleeps until the counters are due.
    if (!has_more) answers_->WaitUntil(next_counters);
    if (IsStopping()) return;
    has_more = false;
    stream_.Write([&](Stream::Stream* to) { has_more = WriteNext(to); });
    if (const absl::Time now = SteadyNow(); now >= next_counters) {
      next_counters = now + interval;
      orders_->Report(/*is_last=*/false);
    }
    const auto [silence, patience] = contact_.Look();
    // Half of a lease without a word: another server may be the coordinator by now.
    if (silence > options_.lease_timeout / 2) stream_.LookElsewhere();
    if (silence > patience) {
      End(absl::UnavailableError(
          absl::StrCat("coordinator at ", stream_.address(), " is lost: not heard for ",
                       patience == options_.lease_timeout ? "the lease of " : "",
                       absl::FormatDuration(patience))));
    }
  }
}

v1::JobStatus AttachLink::OwnStatus() const {
  v1::JobStatus status;
  status.set_job_digest(hello_.job_digest());
  status.set_layout_hash(hello_.layout_hash());
  const Generation generation = orders_->generation();
  {
    absl::MutexLock lock(&mutex_);
    status.set_state(phase_ == Phase::kEnded      ? "done"
                     : phase_ != Phase::kRunning  ? "draining"
                     : generation == Generation() ? "waiting"
                                                  : "training");
  }
  status.set_generation(generation.value());
  v1::ServerStatus& server = *status.add_servers();
  server.set_rank(hello_.rank());
  server.set_address(hello_.address());
  *server.mutable_counters() = orders_->counters();
  for (uint32_t rank : server.counters().waits_for_ranks()) {
    status.add_waiting_for(absl::StrCat("worker ", rank));
  }
  v1::CoordinatorStatus& coordinator = *status.mutable_coordinator();
  coordinator.set_address(stream_.address());
  contact_.Fill(&coordinator);
  // Nobody trains on without the coordinator for long, whatever this shard still waits for.
  if (coordinator.is_away()) {
    status.set_state("waiting");
    status.clear_waiting_for();
    status.add_waiting_for(absl::StrCat("the coordinator at ", stream_.address()));
  }
  return status;
}

v1::CoordinatorWord AttachLink::word() const { return contact_.word(); }

std::string AttachLink::coordinator() const { return stream_.address(); }

}  // namespace tessera
