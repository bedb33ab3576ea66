#include "worker/rpc/activation_client.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"
#include "common/codec/payload.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "proto/activations.pb.h"
#include "worker/rpc/retry.h"
#include "worker/rpc/server_call.h"

namespace tessera {
namespace {

// For gRPC to drop what a call that is over was sending.
constexpr absl::Duration kLetGoTime = absl::Seconds(1);
// A connection that is dead is found to be so within this time, also one that was made anew meanwhile: two rounds of
// keepalive, and 5 s to spare.
constexpr absl::Duration kDeadConnectionMax =
    absl::Milliseconds(2 * (kKeepaliveTimeMs + kKeepaliveTimeoutMs) + 5000);
constexpr absl::Duration kTellEvery = absl::Seconds(10);

template <typename T>
absl::Span<const char> BytesOf(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

absl::Status Named(const LayerWorker& target, const absl::Status& status,
                   absl::string_view between) {
  return absl::Status(status.code(),
                      absl::StrCat("activations: worker ", target.rank.value(), " at ",
                                   target.address, between, status.message()));
}

const std::string& Method() {
  static const auto* const name = new std::string("/tessera.v1.Activations/Exchange");
  return *name;
}

}  // namespace

// One attempt. The batch's memory is read, and `gradient` written, until it has ended.
class ActivationClient::Call final : public ServerCall {
 public:
  Call(CallBoard* board, const v1::ActivationHeader& header, const ActivationBatch& batch,
       absl::Span<float> gradient)
      : ServerCall(board), gradient_(BytesToWrite(gradient)) {
    *head_.mutable_header() = header;
    parts_[0] = batch.classes.empty() ? BytesOf(batch.targets) : BytesOf(batch.classes);
    parts_[1] = BytesOf(batch.activations);
    // gRPC holds the batch's bytes until they have left this machine.
    HoldMemory();
  }

  void Start(grpc::GenericStub* stub) {
    // A generic stub sends chunks whose bytes are borrowed, which generated stubs would copy.
    stub->PrepareBidiStreamingCall(context_.get(), Method(), {}, this);
    StartRead(&incoming_);
    WriteNext();
    StartCall();
  }

  // Once ended.
  const v1::GradientHeader& header() const { return answer_; }

  void OnWriteDone(bool ok) override {
    if (ok && left() > 0) WriteNext();
  }

  // No more chunks: OnDone says why.
  void OnReadDone(bool ok) override {
    if (!ok) return;
    broken_ = TakeChunk();
    incoming_.Clear();
    // The answer cannot be used. The call's own status will say CANCELLED, and Conclude says what was wrong.
    if (!broken_.ok()) return context_->TryCancel();
    StartRead(&incoming_);
  }

 private:
  absl::Status Conclude(absl::Status status) override {
    outgoing_.Clear();
    if (!broken_.ok()) return broken_;
    // An answer may be cut off between two chunks, without an error.
    if (!status.ok() || (has_answer_ && received_ == answer_.payload_bytes())) return status;
    return absl::InternalError(absl::StrCat("activations: answer ended after ", received_, " of ",
                                            answer_.payload_bytes(), " bytes"));
  }

  static absl::Span<char> BytesToWrite(absl::Span<float> values) {
    return {reinterpret_cast<char*>(values.data()), values.size() * sizeof(float)};
  }

  size_t left() const { return parts_[0].size() + parts_[1].size() - sent_; }

  // A part at a time: a chunk has one slice.
  // Classes or targets first, then activations.
  void WriteNext() {
    const bool is_first_part = sent_ < parts_[0].size();
    const absl::Span<const char> part = parts_[is_first_part ? 0 : 1];
    const size_t begin = is_first_part ? sent_ : sent_ - parts_[0].size();
    const absl::Span<const char> run = part.subspan(begin, kChunkBytes);
    sent_ += run.size();
    const grpc::Slice slice = BorrowSlice(run.data(), static_cast<int64_t>(run.size()), memory());
    outgoing_ = WriteChunk(head_, absl::MakeConstSpan(&slice, 1));
    head_.Clear();
    if (left() > 0) {
      StartWrite(&outgoing_);
    } else {
      StartWriteLast(&outgoing_, grpc::WriteOptions());
    }
  }

  absl::Status TakeChunk() {
    v1::GradientChunk head;
    Payload payload;
    TESSERA_RETURN_IF_ERROR(ReadChunk(incoming_, &head, &payload));
    if (head.has_header() == has_answer_) {
      return absl::InternalError(
          has_answer_ ? "activations: answer has a second header, want one"
                      : "activations: answer has no header, want it in the first chunk");
    }
    if (head.has_header()) {
      has_answer_ = true;
      answer_ = head.header();
      // Only an answer that came too late is without a gradient.
      const uint64_t wanted = answer_.too_late() ? 0 : gradient_.size();
      if (answer_.payload_bytes() != wanted) {
        return absl::InternalError(absl::StrCat("activations: answer is ", answer_.payload_bytes(),
                                                " bytes, want ", wanted));
      }
    }
    if (received_ + static_cast<uint64_t>(payload.size()) > answer_.payload_bytes()) {
      return absl::InternalError(absl::StrCat("activations: answer is longer than the declared ",
                                              answer_.payload_bytes(), " bytes"));
    }
    // The caller does not look at the gradient before the call has ended.
    for (const Payload::Piece& piece : payload.pieces()) {
      std::memcpy(gradient_.data() + received_, piece.data, static_cast<size_t>(piece.size));
      received_ += static_cast<uint64_t>(piece.size);
    }
    return absl::OkStatus();
  }

  v1::ActivationChunk head_;
  absl::Span<const char> parts_[2];
  size_t sent_ = 0;
  const absl::Span<char> gradient_;
  uint64_t received_ = 0;
  bool has_answer_ = false;
  v1::GradientHeader answer_;
  grpc::ByteBuffer outgoing_, incoming_;
  absl::Status broken_;
};

void ActivationClient::SetWorkers(const v1::WorkerList& list) {
  {
    absl::MutexLock lock(&mutex_);
    // Lists may overtake each other on their way from the coordinator and from servers.
    if (Generation(list.generation()) < workers_.generation()) return;
    workers_ = LayerWorkers(list, options_.split);
  }
  board_.Notify();
}

void ActivationClient::SetAway(bool away) {
  away_.store(away, std::memory_order_release);
  board_.Notify();
}

void ActivationClient::Leave() {
  leaves_.store(true, std::memory_order_release);
  board_.Notify();
}

void ActivationClient::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  board_.Notify();
}

bool ActivationClient::Has(Generation plan) const {
  absl::MutexLock lock(&mutex_);
  return workers_.generation() >= plan;
}

bool ActivationClient::LinearComesLater(uint64_t step) const {
  absl::MutexLock lock(&mutex_);
  return workers_.LinearComesLater(step);
}

absl::Status ActivationClient::AwaitPlan(const ActivationBatch& batch) {
  if (Has(batch.plan)) return absl::OkStatus();
  // The coordinator is asked at once, as no list of its own would come before the next renewal.
  options_.on_trouble();
  LongWait wait(SteadyNow(), kTellEvery);
  while (!Has(batch.plan)) {
    if (cancelled_.load(std::memory_order_acquire)) {
      return absl::CancelledError("activations: cancelled");
    }
    const absl::Time now = SteadyNow();
    if (wait.IsDue(now)) {
      Log(LogLevel::kInfo,
          absl::StrCat("worker: waits to be told by the coordinator who takes part in step ",
                       batch.step, " (plan ", batch.plan.value(), ") since ", wait.SoFar(now)));
    }
    board_.WaitUntil(wait.next());
  }
  return absl::OkStatus();
}

std::optional<LayerWorker> ActivationClient::Target(uint64_t step) const {
  absl::MutexLock lock(&mutex_);
  return workers_.LinearOf(options_.member, step);
}

absl::StatusOr<ActivationAnswer> ActivationClient::Once(const ActivationBatch& batch,
                                                        const LayerWorker& target) {
  // A connection stays with a worker, not with an address, which another worker may have taken.
  if (connected_ != target.member || stub_ == nullptr) {
    connected_ = target.member;
    stub_ = std::make_unique<grpc::GenericStub>(OpenChannel(target.address));
  }
  v1::ActivationHeader header;
  header.set_member(options_.member.value());
  // The digest tells a worker of another job, which the same address may have.
  header.set_job_digest(options_.job_digest);
  header.set_step(batch.step);
  header.set_rows(static_cast<uint64_t>(batch.rows));
  header.set_has_classes(!batch.classes.empty());
  const uint64_t sent = sizeof(float) * (batch.activations.size() + batch.targets.size()) +
                        sizeof(int32_t) * batch.classes.size();
  header.set_payload_bytes(sent);
  // The buffer is that of the last batch, as its gradient has been used.
  gradient_.resize(batch.activations.size());
  auto call = std::make_unique<Call>(&board_, header, batch, absl::MakeSpan(gradient_));
  call->Start(stub_.get());
  bool is_over = false;
  absl::Time let_go = absl::InfiniteFuture();
  LongWait wait(SteadyNow(), kTellEvery);
  while (!call->ended()) {
    const absl::Time now = SteadyNow();
    absl::Time look_again = absl::InfiniteFuture();
    if (call->answered()) {
      // What a write that was cut off holds is freed.
      call->LetGo();
      if (now >= let_go) stub_.reset();  // What the connection holds goes with it.
      if (let_go == absl::InfiniteFuture() || now >= let_go) let_go = now + kLetGoTime;
    } else if (!is_over) {
      const std::optional<LayerWorker> asked = Target(batch.step);
      // Whoever trains the linear layers of this step may have changed while the call was under way.
      is_over =
          cancelled_.load(std::memory_order_acquire) || !asked || asked->member != target.member;
      if (is_over) {
        call->Cancel();
      } else {
        if (wait.IsDue(now)) {
          Log(LogLevel::kInfo,
              absl::StrCat("worker: waits for worker ", target.rank.value(), " at ", target.address,
                           ", which has its activations, since ", wait.SoFar(now)));
        }
        look_again = wait.next();
      }
    }
    // The board is told when the call moves on, and when a list or a wish of the caller comes.
    board_.WaitUntil(std::min(let_go, look_again));
  }
  if (cancelled_.load(std::memory_order_acquire)) {
    return absl::CancelledError("activations: cancelled");
  }
  TESSERA_RETURN_IF_ERROR(call->status());
  ActivationAnswer answer;
  answer.too_late = call->header().too_late();
  answer.loss = call->header().loss();
  if (!answer.too_late) answer.gradient = gradient_;
  // Traffic of attempts that failed is not counted.
  payload_bytes_ += static_cast<int64_t>(sent + call->header().payload_bytes());
  return answer;
}

absl::StatusOr<ActivationAnswer> ActivationClient::Exchange(const ActivationBatch& batch) {
  TESSERA_RETURN_IF_ERROR(AwaitPlan(batch));
  Retry retry(LayerWorkerRetry(options_.retry_time), options_.member);
  MemberId asked;
  bool is_told = false;
  while (true) {
    const std::optional<LayerWorker> target = Target(batch.step);
    absl::Status failed = absl::UnavailableError("nobody trains the linear layers");
    if (target) {
      // Another worker is not to blame for the failures of the one before.
      if (target->member != asked) retry.Restart();
      asked = target->member;
      const absl::Time begin = SteadyNow();
      absl::StatusOr<ActivationAnswer> answer = Once(batch, *target);
      if (answer.ok()) return answer;
      failed = answer.status();
      // It was there for most of that time.
      if (SteadyNow() - begin > kDeadConnectionMax) retry.Forgive();
    } else if (LinearComesLater(batch.step) || leaves_.load(std::memory_order_acquire)) {
      // A later step only comes when this one is over.
      ActivationAnswer dropped;
      dropped.too_late = true;
      return dropped;
    }
    if (cancelled_.load(std::memory_order_acquire)) {
      return absl::CancelledError("activations: cancelled");
    }
    // Without any the coordinator ends the job.
    // While the coordinator is away nobody can say that the worker there has been replaced.
    if (!target || away_.load(std::memory_order_acquire)) retry.Forgive();
    const Retry::Verdict verdict = retry.OnFailure(failed.code(), SteadyNow());
    if (verdict == Retry::Verdict::kRefused) return Named(*target, failed, ": ");
    // The first time it may only have begun a little later than this worker.
    if (target && !is_told && retry.failures() > 1) {
      is_told = true;
      Log(LogLevel::kWarning,
          absl::StrCat("worker: activations not taken worker=", target->rank.value(), " address=",
                       target->address, " why=\"", failed.message(), "\"; trying again"));
    }
    if (verdict == Retry::Verdict::kLate) {
      return Named(
          *target, absl::UnavailableError(failed.message()),
          absl::StrCat(", which trains the linear layers, has not taken them for ",
                       absl::FormatDuration(options_.retry_time),
                       "; can this machine reach that address (tessera-worker --listen)? "));
    }
    options_.on_trouble();
    // The next attempt looks up the address anew.
    stub_.reset();
    connected_ = MemberId();
    board_.WaitUntil(retry.due());
  }
}

}  // namespace tessera
