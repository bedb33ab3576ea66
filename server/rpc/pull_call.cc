#include "server/rpc/pull_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/checkpoint/manifest.h"
#include "common/rpc/chunk.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

// The first of several chunks. An answer of up to twice this is one chunk.
constexpr int64_t kFirstChunkBytes = int64_t{64} << 10;

// No job counts further, as no checkpoint could be read with it again.
absl::Status CheckNumber(absl::string_view where, absl::string_view what, uint64_t number) {
  if (number < kSavedNumberEnd) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", what, " is ", number, ", want below ", kSavedNumberEnd));
}

// Blocks that a caller reads where they lie. It may be slow, as any reader.
class LentSnapshot final : public LentMemory {
 public:
  explicit LentSnapshot(std::shared_ptr<const Snapshot> snapshot)
      : snapshot_(std::move(snapshot)) {}
  bool is_revoked() const override { return snapshot_->revoked(); }

 private:
  const std::shared_ptr<const Snapshot> snapshot_;
};

}  // namespace

void PullCall::Start(const grpc::ByteBuffer& request) {
  const absl::Status status = AskPull(request);
  if (!status.ok()) stream_->End(status);
}

void PullCall::StartFetch(const grpc::ByteBuffer& request) {
  const absl::Status status = AskFetch(request);
  if (!status.ok()) stream_->End(status);
}

template <typename Result, typename... Args>
void PullCall::Answer(absl::StatusOr<Result> result, const Args&... args) {
  if (!result.ok()) return stream_->End(result.status());
  answer_ = AnswerOf(*std::move(result), args..., plane_->shard().traits());
  BeginAnswer();
}

absl::Status PullCall::AskPull(const grpc::ByteBuffer& bytes) {
  v1::PullRequest request;
  const absl::Status read = ReadMessage(bytes, &request);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull from ", stream_->peer(), ": ", read.message()));
  }
  if (request.copies_replica()) return AskCopy(request);
  const MemberId member(request.caller().member());
  where_ = absl::StrCat("pull from member ", member.value(), " after exchange ",
                        request.after_exchange());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(stream_->CheckCaller(request.caller()));
  link_ = planes_->FindLink(request.caller());
  TESSERA_RETURN_IF_ERROR(CheckNumber(where_, "after_exchange", request.after_exchange()));
  TESSERA_RETURN_IF_ERROR(CheckNumber(where_, "rest", request.rest()));
  // Values outside an exchange are read as they are, by evaluations and by people.
  outside_exchange_ = request.outside_exchange();
  if (request.has_core_wanted()) {
    AskCore(member, request.core_wanted());
    return absl::OkStatus();
  }
  absl::StatusOr<NamedKeys> keys = KeysOf(request.keys());
  const absl::Status status = keys.ok() ? CheckKeys(*keys) : keys.status();
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", status.message()));
  }
  TESSERA_RETURN_IF_ERROR(TakeCodec(request.codec()));
  // Checks that need no queue come before this, so that a wrong call costs the shard's thread nothing.
  AskValues(member, Exchange(request.after_exchange()), {request.rest(), request.rests()},
            *std::move(keys));
  return absl::OkStatus();
}

absl::Status PullCall::CheckKeys(const NamedKeys& keys) {
  const bool is_of_exchange = std::holds_alternative<NamedCore>(keys) && !outside_exchange_;
  // Which entries a core has is the shard's to know, when the exchange has come.
  if (is_of_exchange) return absl::OkStatus();
  if (std::holds_alternative<RowRange>(keys) && !outside_exchange_) {
    return absl::InvalidArgumentError(
        "keys are rows, want dense; rows are read outside an exchange");
  }
  TESSERA_ASSIGN_OR_RETURN(entries_, plane_->shard().traits().keys->OfRead(keys));
  return absl::OkStatus();
}

void PullCall::AskValues(MemberId member, Exchange after, IdleNotice word, NamedKeys keys) {
  const std::shared_ptr<PullCall> self = shared_from_this();
  if (outside_exchange_) {
    plane_->shard().Ask(
        [member, after, word](ServedShard& served, auto done) {
          served.ReadOutside(member, after, word, SteadyNow(), std::move(done));
        },
        [self, keys = std::move(keys)](absl::StatusOr<ReadResult> read) {
          if (read.ok()) read->entries = self->entries_;
          self->Answer(std::move(read), keys, self->codec_);
        });
    return;
  }
  CancelWhenGone(plane_->shard().Read<ReadResult>(
      member, after, word,
      [member, after, keys](Shard& shard) { return shard.Read(member, after, keys); },
      [self, keys](absl::StatusOr<ReadResult> read) {
        self->Answer(std::move(read), keys, self->codec_);
      }));
}

void PullCall::AskCore(MemberId member, uint64_t number) {
  using Keys = std::shared_ptr<const Core>;
  CancelWhenGone(plane_->shard().Read<Keys>(
      member, Exchange(0), IdleNotice(),
      [member, number](Shard& shard) { return shard.ReadCore(member, number); },
      [self = shared_from_this()](const absl::StatusOr<Keys>& core) {
        if (!core.ok()) return self->stream_->End(core.status());
        self->answer_ = AnswerOf(**core, self->plane_->shard().traits());
        self->BeginAnswer();
      }));
}

absl::Status PullCall::AskCopy(const v1::PullRequest& request) {
  where_ = absl::StrCat("copy for ", stream_->peer());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckJob(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(stream_->CheckCaller(request.caller()));
  // A copy of a replica goes to servers only, which show the key of this run.
  if (request.server_key() != planes_->server_key()) {
    return absl::FailedPreconditionError(
        absl::StrCat(where_, ": is not for a server of this run, whose server_key it would have"));
  }
  outside_exchange_ = true;
  copies_ = true;
  plane_->shard().Ask(
      [](ServedShard& served, auto done) { done(served.shard().replica().MakeCopy(SteadyNow())); },
      [self = shared_from_this()](absl::StatusOr<ReplicaCopy> copy) {
        self->Answer(std::move(copy));
      });
  return absl::OkStatus();
}

absl::Status PullCall::TakeCodec(absl::string_view name) {
  // Outside an exchange values are exact, as evaluation would otherwise differ from training.
  const Codec own = outside_exchange_ ? Codec() : plane_->shard().traits().codecs.pull;
  absl::StatusOr<Codec> codec = NamedCodec(name, own);
  if (!codec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where_, ": ", codec.status().message(), outside_exchange_ ? " outside an exchange" : ""));
  }
  codec_ = *codec;
  return absl::OkStatus();
}

absl::Status PullCall::AskFetch(const grpc::ByteBuffer& bytes) {
  v1::SubnetRequest request;
  const absl::Status read = ReadMessage(bytes, &request);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fetch from ", stream_->peer(), ": ", read.message()));
  }
  const MemberId member(request.caller().member());
  where_ = absl::StrCat("fetch from member ", member.value(), " round ", request.round());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, request.caller()));
  TESSERA_RETURN_IF_ERROR(stream_->CheckCaller(request.caller()));
  link_ = planes_->FindLink(request.caller());
  absl::StatusOr<SubnetPlace> asked = AskedPlace(request);
  if (!asked.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", asked.status().message()));
  }
  TESSERA_RETURN_IF_ERROR(TakeCodec(request.codec()));
  waits_only_ = request.waits_only();
  AskValues(member, Exchange(request.round() - 1), IdleNotice(), *std::move(asked));
  return absl::OkStatus();
}

void PullCall::CancelWhenGone(uint64_t read) {
  absl::MutexLock lock(&mutex_);
  read_ = read;
  // The client may have gone before the shard's number of the read was known here.
  if (gone_) plane_->shard().CancelRead(read_);
}

void PullCall::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  // A read that was answered already is unknown to the shard by now.
  if (read_ != 0) plane_->shard().CancelRead(read_);
}

void PullCall::BeginAnswer() {
  // Whoever only waits for a round has no use for its values.
  if (waits_only_) answer_.payload.reset();
  bytes_ = answer_.left();
  answer_.header.set_payload_bytes(bytes_);
  answer_.header.set_generation(plane_->generation().value());
  if (CurrentStripes() > 1) {
    answer_.header.set_connections(static_cast<uint32_t>(CurrentStripes()));
  }
  // Only an answer of several chunks can hold a snapshot for long, and is worth being revoked.
  if (bytes_ > kFirstChunkBytes) {
    is_reader_ = true;
    plane_->AddReader(this);
  }
  SendNext();
}

void PullCall::SendNext() {
  v1::Chunk head;
  const bool is_borrowed = answer_.payload != nullptr && answer_.payload->is_borrowed();
  const bool by_memory = link_ != nullptr && answer_.left() >= kSharedBytesMin;
  // What is only referred to takes no memory of the message.
  int64_t room = by_memory && is_borrowed ? kChunkBytesMax : kChunkBytes;
  if (!has_begun_) {
    has_begun_ = true;
    *head.mutable_header() = answer_.header;
    // A short first chunk: the worker learns early that its wait is over, and prepares for the rest.
    if (!by_memory) {
      room = answer_.left() > 2 * kFirstChunkBytes ? kFirstChunkBytes : answer_.left();
    }
    // What has to be made first does not hold up the word that the answer has begun.
    if (answer_.payload != nullptr && !is_borrowed && !stream_->wants_one_message()) room = 0;
  }
  const int64_t left_before = answer_.left();
  std::vector<grpc::Slice> slices;
  if (room > 0) slices = answer_.payload->Next(room);
  const int64_t sent = left_before - answer_.left();
  int64_t shared_bytes = 0;
  if (by_memory && sent >= kSharedBytesMin) {
    // A short answer is copied, which takes less than to look after a loan.
    std::optional<v1::SharedBytes> shared =
        is_borrowed && !stream_->wants_one_message()
            ? link_->Lend(slices, std::make_shared<LentSnapshot>(answer_.snapshot))
            : link_->Stage(slices);
    // Where nothing could be lent the bytes go in the message.
    if (shared.has_value()) {
      *head.mutable_shared() = *std::move(shared);
      slices.clear();
      shared_bytes = sent;
    }
  }
  message_ = WriteChunk(head, slices);
  if (copies_) {
    plane_->CountCopied(sent);
  } else {
    plane_->CountPull(sent, WireBytes(static_cast<int64_t>(message_.Length()) + shared_bytes),
                      outside_exchange_);
  }
  // What is sent from the snapshot is nobody's alone, and is taken back where it is in the way.
  is_unread_ = !slices.empty() && !is_borrowed;
  if (is_unread_) {
    planes_->unread_answers().Add(host_, shared_from_this(),
                                  static_cast<int64_t>(message_.Length()), nullptr);
  }
  if (answer_.left() == 0) {
    stream_->WriteLast(&message_);
  } else {
    stream_->Write(&message_);
  }
}

void PullCall::OnWriteDone(bool ok) {
  // After WriteLast only OnDone matters.
  if (answer_.left() == 0) return;
  if (is_unread_) planes_->unread_answers().Remove(this);
  if (answer_.snapshot->revoked()) {
    plane_->CountCutOff();
    return stream_->End(
        absl::AbortedError(absl::StrCat(where_, ": reader too slow, ", answer_.left(), " of ",
                                        bytes_, " bytes were left; pull again")));
  }
  if (!ok) {
    return stream_->End(absl::CancelledError(absl::StrCat(where_, ": the client has gone")));
  }
  SendNext();
}

void PullCall::CutOffIfRevoked() {
  // The write that waits for the client ends; OnWriteDone then sees why.
  if (answer_.snapshot->revoked()) stream_->Cancel();
}

void PullCall::GiveWay() {
  planes_->TellUnread(where_);
  absl::MutexLock lock(&stream_mutex_);
  if (!done_) stream_->Cancel();
}

void PullCall::OnDone() {
  if (is_unread_) planes_->unread_answers().Remove(this);
  {
    absl::MutexLock lock(&stream_mutex_);
    done_ = true;
  }
  if (is_reader_) plane_->RemoveReader(this);
  // The stream has come back from OnCancel by now: said here, so that a checker sees it.
  mutex_.Lock();
  mutex_.Unlock();
}

}  // namespace tessera
