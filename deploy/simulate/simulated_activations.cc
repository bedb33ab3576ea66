#include "deploy/simulate/simulated_activations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/payload.h"
#include "deploy/simulate/exchange_sizes.h"

namespace tessera {
namespace {

// The pauses of worker/rpc/activation_client.cc.
constexpr SimNanos kPauseMin = kNanosPerSecond / 50;
constexpr SimNanos kPauseMax = kNanosPerSecond;

int MachineAt(const std::string& address) {
  int machine = 0;
  TESSERA_CHECK(absl::SimpleAtoi(address, &machine));
  return machine;
}

template <typename T>
int64_t BytesOf(absl::Span<const T> values) {
  return static_cast<int64_t>(values.size() * sizeof(T));
}

template <typename T>
void Append(absl::Span<const T> values, Payload* payload) {
  if (!values.empty()) {
    payload->Append({reinterpret_cast<const char*>(values.data()), BytesOf(values)}, nullptr);
  }
}

}  // namespace

std::string SimulatedAddress(int machine) { return absl::StrCat(machine); }

int64_t SimulatedSender::label_bytes() const {
  return BytesOf(batch_->classes) + BytesOf(batch_->targets);
}

int64_t SimulatedSender::activation_bytes() const { return BytesOf(batch_->activations); }

void SimulatedSender::SetWorkers(const v1::WorkerList& list) {
  if (Generation(list.generation()) < workers_.generation()) return;
  workers_ = LayerWorkers(list, options_.split);
  if (batch_ == nullptr) return;
  const std::optional<LayerWorker> now = Target();
  // The batch is with the right worker already.
  if (now && target_ && now->member == target_->member) return;
  // Answers to the call that went elsewhere are not taken.
  ++call_;
  process_.Wake(ticket_);
}

std::optional<LayerWorker> SimulatedSender::Target() const {
  if (workers_.generation() < batch_->plan) return std::nullopt;
  return workers_.LinearOf(options_.member, batch_->step);
}

bool SimulatedSender::Wait() {
  // Taken before it waits: whoever wakes it names this wait.
  ticket_ = process_.Ticket();
  return process_.WaitInterruptibly();
}

absl::StatusOr<ActivationAnswer> SimulatedSender::Exchange(const ActivationBatch& batch) {
  batch_ = &batch;
  SimNanos pause = kPauseMin;
  bool goes_on = true;
  // No plan: the list is asked for, as the worker itself does.
  if (workers_.generation() < batch.plan) options_.on_no_plan();
  for (has_answer_ = false; goes_on && !has_answer_;) {
    ++call_;
    refused_ = absl::OkStatus();
    target_ = Target();
    if (workers_.generation() >= batch.plan && workers_.LinearComesLater(batch.step)) {
      // A later step only comes when this one is over.
      auto dropped = std::make_shared<GradientAnswer>();
      dropped->too_late = true;
      answer_ = std::move(dropped);
      has_answer_ = true;
      break;
    }
    // Where there is no target the coordinator ends the job.
    if (target_) Send();
    // Woken by the answer, a refusal, a list, or the end.
    goes_on = Wait();
    if (absl::IsInvalidArgument(refused_)) break;
    if (!goes_on || refused_.ok()) continue;
    // An answer to the refused call may still be on its way.
    ++call_;
    const uint64_t ticket = process_.Ticket();
    world_.events.After(pause, [this, ticket] { process_.Wake(ticket); });
    pause = std::min(2 * pause, kPauseMax);
    goes_on = Wait();
  }
  ++call_;
  // As the worker counts: what was sent and what came.
  const int64_t sent = label_bytes() + activation_bytes();
  batch_ = nullptr;
  if (!has_answer_) return goes_on ? refused_ : absl::CancelledError("activations: cancelled");
  payload_bytes_ += sent + BytesOf(absl::MakeConstSpan(answer_->gradient));
  ActivationAnswer answer;
  answer.too_late = answer_->too_late;
  answer.loss = answer_->loss;
  if (!answer.too_late) answer.gradient = answer_->gradient;
  return answer;
}

void SimulatedSender::Send() {
  const v1::Caller caller = CallerOf(options_.member, options_.job_digest);
  world_.network.Send(options_.machine, MachineAt(target_->address),
                      ActivationWireBytes(caller, label_bytes(), activation_bytes()),
                      [this, call = call_] { Arrive(call); });
}

void SimulatedSender::Arrive(uint64_t call) {
  // What a process that crashed had not sent to the end is lost.
  if (call != call_ || process_.crashed()) return;
  const auto inbox = inboxes_.find(target_->member);
  // The other worker is no member yet, or none any more.
  if (inbox == inboxes_.end()) {
    return Refused(MachineAt(target_->address), call,
                   absl::UnavailableError("activations: this worker takes none"));
  }
  ComingBatch facts;
  facts.member = options_.member;
  facts.step = batch_->step;
  facts.rows = static_cast<uint64_t>(batch_->rows);
  facts.has_classes = !batch_->classes.empty();
  facts.payload_bytes = static_cast<uint64_t>(label_bytes() + activation_bytes());
  inbox->second->Take(this, call, facts, *batch_);
}

void SimulatedSender::Answered(int machine, uint64_t call,
                               std::shared_ptr<const GradientAnswer> answer) {
  if (call != call_) return;
  // The answer is on its way for a while; nobody looks at it before it has come.
  answer_ = std::move(answer);
  world_.network.Send(machine, options_.machine,
                      GradientWireBytes(BytesOf(absl::MakeConstSpan(answer_->gradient))),
                      [this, call] {
                        if (call != call_) return;
                        has_answer_ = true;
                        process_.Wake(ticket_);
                      });
}

void SimulatedSender::Refused(int machine, uint64_t call, absl::Status why) {
  if (call != call_) return;
  refused_ = std::move(why);
  world_.network.Signal(machine, options_.machine, [this, call] {
    if (call == call_) process_.Wake(ticket_);
  });
}

void SimulatedInbox::SetWorkers(const v1::WorkerList& list) {
  queue_.SetWorkers(list);
  Wake();
}

void SimulatedInbox::Wake() {
  if (is_waiting_) process_.Wake(ticket_);
}

// Unpacks a batch as the bytes of a call are unpacked; where nobody looks at them there are none.
absl::StatusOr<std::unique_ptr<ActivationQueue::Waiting>> SimulatedInbox::Unpack(
    const ComingBatch& facts, const ActivationBatch& batch, Answered answered) const {
  // Stub learners have no values: a batch is its facts.
  if (!options_.moves_values) {
    auto waiting = std::make_unique<ActivationQueue::Waiting>();
    waiting->facts = facts;
    waiting->batch.step = batch.step;
    waiting->batch.rows = batch.rows;
    waiting->answered = std::move(answered);
    return waiting;
  }
  Payload payload;
  Append(batch.classes, &payload);
  Append(batch.targets, &payload);
  Append(batch.activations, &payload);
  return ActivationQueue::Unpack(options_.queue, facts, payload, std::move(answered));
}

void SimulatedInbox::Take(SimulatedSender* sender, uint64_t call, const ComingBatch& facts,
                          const ActivationBatch& batch) {
  // A process that crashed takes nothing, and says nothing.
  if (process_.crashed()) return;
  if (const absl::Status wrong = queue_.Check(facts); !wrong.ok()) {
    return sender->Refused(options_.machine, call, wrong);
  }
  auto waiting = Unpack(
      facts, batch,
      [sender, call, machine = options_.machine](std::shared_ptr<const GradientAnswer> answer) {
        sender->Answered(machine, call, std::move(answer));
      });
  if (!waiting.ok()) return sender->Refused(options_.machine, call, waiting.status());
  queue_.Deliver(*std::move(waiting)).Send();
  Wake();
}

absl::StatusOr<const ActivationReceiver::Batch*> SimulatedInbox::Next(uint64_t step,
                                                                      Generation plan) {
  bool has_asked = false;
  while (!is_over_) {
    const ActivationQueue::Turn turn = queue_.Take(step, plan);
    if (turn == ActivationQueue::Turn::kBatch) return &queue_.batch();
    if (turn == ActivationQueue::Turn::kOver) {
      for (const DueAnswer& due : queue_.TakeLate()) due.Send();
      return nullptr;
    }
    if (turn == ActivationQueue::Turn::kNoPlan && !std::exchange(has_asked, true)) {
      options_.on_no_plan();
    }
    ticket_ = process_.Ticket();
    is_waiting_ = true;
    is_over_ = !process_.WaitInterruptibly();
    is_waiting_ = false;
  }
  return absl::CancelledError("activations: cancelled");
}

void SimulatedInbox::Answer(double loss, absl::Span<const float> gradient) {
  // The answer goes out when the time of the computation is over.
  is_over_ = !work_.Train(queue_.batch().step, work_.pace().half->answer).ok();
  if (!is_over_) queue_.Answer(loss, gradient).Send();
}

}  // namespace tessera
