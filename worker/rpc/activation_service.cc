#include "worker/rpc/activation_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <grpcpp/support/server_callback.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "common/rpc/control_protocol.h"
#include "common/rpc/status.h"
#include "proto/activations.grpc.pb.h"

namespace tessera {
namespace {

// The chunks that a batch may have, and one more for each kChunkBytesLeast bytes.
// Chunks of a few bytes would cost the receiver more than they cost the sender.
constexpr int64_t kSmallChunksMax = 64;
constexpr int64_t kChunkBytesLeast = 1024;

// Keeps itself alive until gRPC and the inbox are done with it. Reads, then waits for the answer, then writes.
class ActivationCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public LimitedCall,
                             public std::enable_shared_from_this<ActivationCall> {
 public:
  static grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      ActivationService* service, grpc::CallbackServerContext* context) {
    const std::shared_ptr<ActivationCall> call(new ActivationCall(service, context));
    // gRPC calls this object until OnDone, which drops the reference.
    call->self_ = call;
    service->half_open().Add(call->host_, call);
    call->StartRead(&call->message_);
    return call.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return End(absl::InvalidArgumentError(absl::StrCat(
          "activations: ended after ", payload_.size(), " of ", coming_.payload_bytes, " bytes")));
    }
    const absl::Status status = TakeChunk();
    message_.Clear();
    if (!status.ok()) return End(status);
    if (payload_.size() < static_cast<int64_t>(coming_.payload_bytes)) return StartRead(&message_);
    // A cancel that came while reading has not finished the call, and OnCancel comes once.
    bool is_gone = false;
    {
      absl::MutexLock lock(&mutex_);
      is_gone = is_cancelled_;
      stage_ = is_gone ? Stage::kEnded : Stage::kWaiting;
    }
    if (is_gone) return Finish(ToGrpc(Gone()));
    // The inbox may answer later than OnDone.
    const std::shared_ptr<ActivationCall> self = shared_from_this();
    const absl::Status taken =
        inbox_->Deliver(coming_, payload_, [self](std::shared_ptr<const GradientAnswer> answer) {
          self->OnAnswer(std::move(answer));
        });
    // The inbox has its own copy.
    payload_ = Payload();
    if (!taken.ok()) End(taken);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(Gone());
    if (sent_ < bytes()) return WriteNext();
    End(absl::OkStatus());
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      is_cancelled_ = true;
      // A stage is finished by whoever first sets kEnded: Finish must be called once.
      // Elsewhere the read or write that is under way fails.
      if (stage_ != Stage::kWaiting) return;
      stage_ = Stage::kEnded;
    }
    Finish(ToGrpc(Gone()));
  }

  // What reads or writes fails then; what waits is told by OnCancel. The context goes once OnDone has returned,
  // though this object may still be held.
  void GiveWay() override {
    absl::MutexLock lock(&context_mutex_);
    if (!is_done_) context_->TryCancel();
  }

  void OnDone() override {
    service_.half_open().Remove(host_, this);
    if (has_header_) service_.senders().Remove(coming_.member.value(), this);
    {
      absl::MutexLock lock(&context_mutex_);
      is_done_ = true;
    }
    // gRPC has come back from OnCancel by now: said here, so that a checker sees it.
    mutex_.Lock();
    mutex_.Unlock();
    const std::shared_ptr<ActivationCall> self = std::move(self_);
  }

 private:
  enum class Stage { kReading, kWaiting, kWriting, kEnded };

  ActivationCall(ActivationService* service, grpc::CallbackServerContext* context)
      : service_(*service),
        context_(context),
        host_(NumberOfHost(context->peer())),
        inbox_(service->inbox()) {}

  absl::Status TakeChunk() {
    v1::ActivationChunk head;
    Payload payload;
    TESSERA_RETURN_IF_ERROR(ReadChunk(message_, &head, &payload));
    if (head.has_header() == has_header_) {
      return absl::InvalidArgumentError(has_header_
                                            ? "activations: a second header, want one"
                                            : "activations: no header, want it in the first chunk");
    }
    if (head.has_header()) TESSERA_RETURN_IF_ERROR(TakeHeader(head.header()));
    // Before it is kept: a sender may not send more than it has declared.
    const int64_t received = payload_.size() + payload.size();
    if (received > static_cast<int64_t>(coming_.payload_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("activations: payload is at least ", received,
                                                     " bytes, want the declared ",
                                                     coming_.payload_bytes));
    }
    if (++chunks_ > kSmallChunksMax + received / kChunkBytesLeast) {
      return absl::InvalidArgumentError(absl::StrCat("activations: ", chunks_, " chunks have ",
                                                     received, " bytes, want at least ",
                                                     kChunkBytesLeast, " bytes a chunk"));
    }
    // Pieces stay in gRPC's slices, whose owner is shared by them.
    const auto owner = std::make_shared<const Payload>(std::move(payload));
    for (const Payload::Piece& piece : owner->pieces()) payload_.Append(piece, owner);
    return absl::OkStatus();
  }

  absl::Status TakeHeader(const v1::ActivationHeader& header) {
    has_header_ = true;
    // From here on the call counts for its sender, not for its host.
    service_.half_open().Remove(host_, this);
    if (header.job_digest() != service_.job_digest()) {
      // The sender's own may be gone, and this one have its port.
      return absl::FailedPreconditionError(absl::StrCat(
          "activations: job digest is \"", header.job_digest().substr(0, kDigestQuoted),
          "\", want \"", service_.job_digest(), "\""));
    }
    if (inbox_ == nullptr) {
      // The sender tries again: it may have been told of this worker's membership sooner than this worker.
      return absl::UnavailableError(
          "activations: this worker is no linear worker, or no member at present");
    }
    coming_ = {MemberId(header.member()), header.step(), header.rows(), header.has_classes(),
               header.payload_bytes()};
    // A sender's earlier call is given up where it has too many.
    service_.senders().Add(coming_.member.value(), shared_from_this());
    return inbox_->Check(coming_);
  }

  // On the thread that has the answer, once.
  void OnAnswer(std::shared_ptr<const GradientAnswer> answer) {
    {
      absl::MutexLock lock(&mutex_);
      // The sender has gone, and nobody waits for the answer.
      if (stage_ != Stage::kWaiting) return;
      stage_ = answer == nullptr ? Stage::kEnded : Stage::kWriting;
    }
    if (answer == nullptr) {
      return Finish(ToGrpc(absl::CancelledError(
          "activations: a later call of this member has taken the place, or this worker ends")));
    }
    answer_ = std::move(answer);
    WriteNext();
  }

  int64_t bytes() const { return static_cast<int64_t>(answer_->gradient.size() * sizeof(float)); }

  void WriteNext() {
    v1::GradientChunk head;
    if (sent_ == 0) {
      head.mutable_header()->set_too_late(answer_->too_late);
      head.mutable_header()->set_loss(answer_->loss);
      head.mutable_header()->set_payload_bytes(static_cast<uint64_t>(bytes()));
    }
    const int64_t count = std::min(kChunkBytes, bytes() - sent_);
    const auto* const begin = reinterpret_cast<const char*>(answer_->gradient.data()) + sent_;
    sent_ += count;
    // The answer's memory is written from, and lives until gRPC has let go of the slice.
    const grpc::Slice slice = BorrowSlice(begin, count, answer_);
    message_ = WriteChunk(head, absl::MakeConstSpan(&slice, count > 0 ? 1 : 0));
    StartWrite(&message_);
  }

  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (stage_ == Stage::kEnded) return;
      stage_ = Stage::kEnded;
    }
    Finish(ToGrpc(status));
  }

  absl::Status Gone() const { return absl::CancelledError("activations: the sender has gone"); }

  ActivationService& service_;
  grpc::CallbackServerContext* const context_;
  const uint64_t host_;
  const std::shared_ptr<ActivationInbox> inbox_;
  std::shared_ptr<ActivationCall> self_;
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  int64_t chunks_ = 0;
  ComingBatch coming_;
  Payload payload_;
  std::shared_ptr<const GradientAnswer> answer_;
  int64_t sent_ = 0;

  absl::Mutex context_mutex_;
  bool is_done_ ABSL_GUARDED_BY(context_mutex_) = false;
  absl::Mutex mutex_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kReading;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

class ActivationService::Service final
    : public v1::Activations::WithRawCallbackMethod_Exchange<v1::Activations::Service> {
 public:
  explicit Service(ActivationService* owner) : owner_(owner) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override {
    return ActivationCall::Start(owner_, context);
  }

 private:
  ActivationService* const owner_;
};

ActivationService::ActivationService(std::string job_digest, size_t half_open_per_host)
    : job_digest_(std::move(job_digest)),
      half_open_(half_open_per_host),
      service_(std::make_unique<Service>(this)) {}

ActivationService::~ActivationService() = default;

void ActivationService::Serve(std::shared_ptr<ActivationInbox> inbox) {
  absl::MutexLock lock(&mutex_);
  inbox_ = std::move(inbox);
}

std::shared_ptr<ActivationInbox> ActivationService::inbox() const {
  absl::MutexLock lock(&mutex_);
  return inbox_;
}

grpc::Service* ActivationService::service() { return service_.get(); }

}  // namespace tessera
