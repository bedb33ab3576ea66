#include "server/rpc/pull_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/borrowed_slice.h"
#include "common/rpc/chunk.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

// The first of several chunks. An answer of up to twice this is one chunk.
constexpr int64_t kFirstChunkBytes = int64_t{64} << 10;

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* PullCall::Start(DataPlane* plane,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer& request) {
  const std::shared_ptr<PullCall> call(new PullCall(plane, context));
  call->self_ = call;
  const absl::Status status = call->Ask(request);
  if (!status.ok()) call->Finish(ToGrpc(status));
  return call.get();
}

absl::Status PullCall::Ask(const grpc::ByteBuffer& bytes) {
  v1::PullRequest request;
  const absl::Status read = ReadMessage(bytes, &request);
  if (!read.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("pull from ", context_->peer(), ": ", read.message()));
  const MemberId member(request.caller().member());
  where_ = absl::StrCat("pull from member ", member.value(), " after exchange ",
                        request.after_exchange());
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, request.caller()));
  if (!request.keys().has_dense()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where_, ": keys are absent or unknown, want dense"));
  }
  const RestWord word{request.rest(), request.rests()};
  outside_exchange_ = request.outside_exchange();
  const std::shared_ptr<PullCall> self = shared_from_this();
  if (outside_exchange_) {
    plane_->shard().ReadOutside(
        member, Exchange(request.after_exchange()), word,
        [self](ReadResult result) { self->Answer(std::move(result)); });
    return absl::OkStatus();
  }
  const uint64_t number = plane_->shard().Read(
      member, Exchange(request.after_exchange()), word,
      [self](absl::StatusOr<ReadResult> result) { self->Answer(std::move(result)); });
  absl::MutexLock lock(&mutex_);
  read_ = number;
  if (gone_) plane_->shard().CancelRead(read_);
  return absl::OkStatus();
}

void PullCall::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  // A read that was answered already is unknown to the shard by now.
  if (read_ != 0) plane_->shard().CancelRead(read_);
}

void PullCall::Answer(absl::StatusOr<ReadResult> result) {
  if (!result.ok()) return Finish(ToGrpc(result.status()));
  snapshot_ = std::move(result->snapshot);
  version_ = result->version;
  examples_ = result->examples;
  left_ = snapshot_->bytes();
  if (left_ > kFirstChunkBytes) {
    is_reader_ = true;
    plane_->AddReader(this);
  }
  SendNext();
}

void PullCall::SendNext() {
  v1::Chunk head;
  int64_t room = kChunkBytes;
  if (left_ == snapshot_->bytes()) {
    v1::ChunkHeader* header = head.mutable_header();
    header->set_version(version_.value());
    header->set_payload_bytes(left_);
    header->set_layout_hash(plane_->shard().layout_hash());
    header->set_generation(plane_->generation().value());
    header->set_examples(examples_);
    room = left_ > 2 * kFirstChunkBytes ? kFirstChunkBytes : left_;
  }
  std::vector<grpc::Slice> slices;
  int64_t payload_bytes = 0;
  while (payload_bytes < room && payload_bytes < left_) {
    const std::shared_ptr<const Block>& block = snapshot_->blocks()[block_];
    const int64_t block_bytes = block->size() * static_cast<int64_t>(sizeof(float));
    const int64_t run = std::min(room - payload_bytes, block_bytes - offset_);
    slices.push_back(
        BorrowSlice(reinterpret_cast<const char*>(block->data()) + offset_, run, block));
    payload_bytes += run;
    offset_ += run;
    if (offset_ == block_bytes) {
      ++block_;
      offset_ = 0;
    }
  }
  left_ -= payload_bytes;
  message_ = WriteChunk(head, slices);
  plane_->CountPull(payload_bytes, WireBytes(message_.Length()), outside_exchange_);
  if (left_ == 0) {
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status());
  } else {
    StartWrite(&message_);
  }
}

void PullCall::OnWriteDone(bool ok) {
  // After StartWriteAndFinish only OnDone matters.
  if (left_ == 0) return;
  if (snapshot_->revoked()) {
    plane_->CountCutOff();
    return Finish(ToGrpc(
        absl::AbortedError(absl::StrCat(where_, ": reader too slow, ", left_, " of ",
                                        snapshot_->bytes(), " bytes were left; pull again"))));
  }
  if (!ok)
    return Finish(ToGrpc(absl::CancelledError(absl::StrCat(where_, ": the client has gone"))));
  SendNext();
}

void PullCall::CutOffIfRevoked() {
  if (snapshot_->revoked()) context_->TryCancel();
}

void PullCall::OnDone() {
  if (is_reader_) plane_->RemoveReader(this);
  // Ends this object unless the shard still holds it.
  const std::shared_ptr<PullCall> self = std::move(self_);
}

}  // namespace tessera
