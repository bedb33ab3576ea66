#include "worker/rpc/server_call.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/codec/payload.h"
#include "common/rpc/chunk.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

// How soon a push that waits for a buffer looks again. The server returns one of 1 MiB after about 100 us.
constexpr absl::Duration kPauseMin = absl::Microseconds(30);
constexpr absl::Duration kPauseMax = absl::Milliseconds(5);

const std::string& PushMethod() {
  static const auto* const name = new std::string("/tessera.v1.ParameterServer/Push");
  return *name;
}

const std::string& PullMethod() {
  static const auto* const name = new std::string("/tessera.v1.ParameterServer/Pull");
  return *name;
}

const std::string& FetchMethod() {
  static const auto* const name = new std::string("/tessera.v1.ParameterServer/FetchSubnet");
  return *name;
}

}  // namespace

void ServerCall::Cancel() {
  if (local_ != nullptr) return local_->Cancel(local_number_);
  if (!has_let_go()) CancelAll();
}

void ServerCall::Answered(const absl::Status& status) {
  end_time_ = SteadyNow();
  // Behind this the waiting thread may read all that the call has.
  status_ = Conclude(status);
  memory_.reset();
  // Release: whoever sees `answered` sees what was written before.
  answered_.store(true, std::memory_order_release);
  DropHolder();
}

void ServerCall::HoldMemory() {
  holders_.fetch_add(1, std::memory_order_relaxed);
  // Each slice that gRPC holds has a copy of the pointer. Its deleter runs with the last one.
  memory_ = std::shared_ptr<const void>(this, [](ServerCall* call) { call->DropHolder(); });
}

void ServerCall::DropHolder() {
  // Once the last holder is gone, the waiting thread may delete this at any moment, and then the board.
  CallBoard* const board = board_;
  // The board's lock is held while the count goes down.
  board->NotifyAfter([this] { holders_.fetch_sub(1, std::memory_order_acq_rel); });
}

PushToServer::PushToServer(CallBoard* board, const v1::PushHeader& header, UpdatePayload* payload,
                           std::shared_ptr<MemoryLink> link)
    : ServerCall(board), link_(std::move(link)), payload_(payload) {
  *head_.mutable_header() = header;
  HoldMemory();
}

void PushToServer::Start(grpc::GenericStub* stub) {
  wire_bytes_ += kCallWireBytes * count();
  // Continue writes from a thread that is not gRPC's.
  Prepare(stub, PushMethod(), /*is_held=*/link_ != nullptr);
  StartRead(&reply_);
  WriteNext();
  StartAll();
}

void PushToServer::StartBy(std::shared_ptr<LocalCaller> caller) {
  wire_bytes_ += kCallWireBytes;
  local_ = std::move(caller);
  TESSERA_CHECK(payload_->left() <= kLocalPayloadBytesMax);
  // The system has copied the packet when this returns, so that nothing of the caller's memory is held.
  local_number_ = local_->Begin(PacketKind::kPush, NextMessage(/*is_last=*/true), this);
}

bool PushToServer::OnMessage(grpc::ByteBuffer message) {
  reply_ = std::move(message);
  replied_ = true;
  return true;
}

bool PushToServer::Stall() {
  {
    absl::MutexLock lock(&mutex_);
    // Nobody will read: the next write fails, and says why.
    if (is_over_) return false;
    stalled_ = SteadyNow();
  }
  Moved();
  return true;
}

absl::Time PushToServer::Continue(absl::Time now) {
  {
    absl::MutexLock lock(&mutex_);
    if (stalled_ == absl::InfiniteFuture()) return absl::InfiniteFuture();
    if (!link_->HasBuffer()) {
      // The server is about to return one, or it stands still.
      return now + std::clamp((now - stalled_) / 4, kPauseMin, kPauseMax);
    }
    stalled_ = absl::InfiniteFuture();
  }
  WriteNext();
  return absl::InfiniteFuture();
}

void PushToServer::WriteNext() {
  const bool by_memory = link_ != nullptr && payload_->left() >= kSharedBytesMin;
  if (by_memory && !link_->HasBuffer() && Stall()) return;
  message_ = NextMessage(/*is_last=*/false);
  if (payload_->left() > 0) {
    WriteInTurn(&message_);
  } else {
    WriteLastInTurn(&message_);
    DropHold();
  }
}

// Bytes are counted as they are handed on, not when they are acknowledged.
grpc::ByteBuffer PushToServer::NextMessage(bool is_last) {
  const int64_t left_before = payload_->left();
  const int64_t shared_before = shared_bytes_;
  std::vector<grpc::Slice> slices = payload_->Next(kChunkBytes, memory());
  while (is_last && payload_->left() > 0) {
    // A core's keys, for one, come before its entries.
    std::vector<grpc::Slice> more = payload_->Next(kChunkBytes, memory());
    slices.insert(slices.end(), more.begin(), more.end());
  }
  if (link_ != nullptr && left_before - payload_->left() >= kSharedBytesMin) {
    std::optional<v1::SharedBytes> shared = link_->Stage(slices);
    if (shared.has_value()) {
      *head_.mutable_shared() = *std::move(shared);
      slices.clear();
      shared_bytes_ += left_before - payload_->left();
    }
  }
  grpc::ByteBuffer message = WriteChunk(head_, slices);
  head_.Clear();
  payload_bytes_ += left_before - payload_->left();
  wire_bytes_ += WireBytes(static_cast<int64_t>(message.Length()) + shared_bytes_ - shared_before);
  return message;
}

void PushToServer::OnWriteDone(bool ok) {
  // Where a write fails gRPC ends the call, and OnDone has the reason.
  if (!ok) return DropHold();
  if (payload_->left() > 0) WriteNext();
}

void PushToServer::OnReadDone(bool ok) {
  replied_ = ok;
  if (ok) SetComplete();
  v1::PushReply reply;
  // The server has not read on, and does not know of connections that come now.
  if (ok && is_striped() && (!ReadMessage(reply_, &reply).ok() || reply.need_keys())) LeaveOthers();
  bool was_stalled = false;
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    was_stalled = std::exchange(stalled_, absl::InfiniteFuture()) != absl::InfiniteFuture();
  }
  // A write that is under way fails by itself, but on another connection.
  if (!ok && is_striped()) CancelAll();
  if (was_stalled) DropHold();
}

absl::Status PushToServer::Conclude(absl::Status status) {
  message_.Clear();
  if (!status.ok()) return status;
  v1::PushReply reply;
  // OK without a reply comes from something that is no parameter server.
  if (!replied_) return absl::InternalError("push: the server sent no reply, want one");
  TESSERA_RETURN_IF_ERROR(ReadMessage(reply_, &reply));
  need_keys_ = reply.need_keys();
  connections_ = static_cast<int>(reply.connections());
  return absl::OkStatus();
}

PullFromServer::PullFromServer(CallBoard* board, const v1::PullRequest& request,
                               uint64_t layout_hash, ValueWriter values)
    : ServerCall(board),
      asks_core_(request.keys().has_sparse()),
      layout_hash_(layout_hash),
      values_(std::move(values)),
      message_(WriteMessage(request)) {}

PullFromServer::PullFromServer(CallBoard* board, const v1::SubnetRequest& request,
                               const SubnetPlace& asked, uint64_t layout_hash, ValueWriter values)
    : ServerCall(board),
      asked_(asked),
      layout_hash_(layout_hash),
      values_(std::move(values)),
      message_(WriteMessage(request)) {}

void PullFromServer::Start(grpc::GenericStub* stub) {
  wire_bytes_ += kCallWireBytes * count() + WireBytes(message_.Length());
  Prepare(stub, asked_.has_value() ? FetchMethod() : PullMethod(), /*is_held=*/false);
  const grpc::ByteBuffer request = std::exchange(message_, grpc::ByteBuffer());
  // gRPC takes references to the request's bytes before this returns.
  StartWriteLast(&request, grpc::WriteOptions());
  EndOtherWrites();
  ReadInTurn(&message_);
  StartAll();
}

void PullFromServer::StartBy(std::shared_ptr<LocalCaller> caller) {
  wire_bytes_ += kCallWireBytes + WireBytes(message_.Length());
  local_ = std::move(caller);
  const grpc::ByteBuffer request = std::exchange(message_, grpc::ByteBuffer());
  const PacketKind kind = asked_.has_value() ? PacketKind::kFetch : PacketKind::kPull;
  local_number_ = local_->Begin(kind, request, this);
}

void PullFromServer::OnReadDone(bool ok) {
  // Where the connection whose turn it is has no more, none has.
  if (!ok) return DropHold();
  if (!TakeMessage()) {
    CancelAll();
    return DropHold();
  }
  if (is_striped() && has_all()) {
    SetComplete();
    // The server may not have seen all connections of a short answer, and would not end those.
    if (!all_have_carried()) LeaveOthers();
    return StartRead(&message_);
  }
  ReadInTurn(&message_);
}

bool PullFromServer::OnMessage(grpc::ByteBuffer message) {
  message_ = std::move(message);
  return TakeMessage();
}

bool PullFromServer::TakeMessage() {
  // The first byte tells how long the server waited for other workers.
  if (first_byte_time_ == absl::InfinitePast()) first_byte_time_ = SteadyNow();
  broken_ = TakeChunk();
  message_.Clear();
  if (!broken_.ok()) return false;
  // Behind the write: who reads the number finds the values.
  written_.store(values_.bytes() - values_.left(), std::memory_order_release);
  if (tells_written_) Moved();
  return true;
}

absl::Status PullFromServer::TakeChunk() {
  v1::Chunk head;
  Payload payload;
  TESSERA_RETURN_IF_ERROR(ReadChunk(message_, &head, &payload));
  if (head.has_header() == has_header_) {
    return absl::InternalError(has_header_
                                   ? "pull: answer has a second header, want one"
                                   : "pull: answer has no header, want it in the first chunk");
  }
  if (head.has_header()) TESSERA_RETURN_IF_ERROR(TakeHeader(head.header()));
  int64_t size = payload.size();
  if (head.has_shared()) {
    if (link_ == nullptr || size > 0) {
      return absl::InternalError(absl::StrCat("pull: answer has shared bytes",
                                              size > 0 ? " and a payload" : " and no link is named",
                                              ", want them in the message"));
    }
    TESSERA_ASSIGN_OR_RETURN(size, link_->SizeOf(head.shared()));
  }
  // Values in place of which the header says something else.
  if (!answer_.has_values() && size > 0) {
    return absl::InternalError(absl::StrCat("pull: answer has ", size, " bytes of ",
                                            answer_.is_whole
                                                ? "the whole model, which was not asked for"
                                            : answer_.needs_all ? "a core that it says is not known"
                                                                : "another cut than was asked for",
                                            ", want none"));
  }
  // Before it is written: the replica has no room for more.
  if (size > values_.left()) {
    return absl::InternalError(absl::StrCat("pull: answer is at least ",
                                            values_.bytes() - values_.left() + size,
                                            " bytes, want ", values_.bytes()));
  }
  payload_bytes_ += size;
  const int64_t shared = head.has_shared() ? size : 0;
  shared_bytes_ += shared;
  wire_bytes_ += WireBytes(static_cast<int64_t>(message_.Length()) + shared);
  if (head.has_shared()) return TakeShared(head.shared(), size);
  for (const Payload::Piece& piece : payload.pieces()) values_.Write(piece.data, piece.size);
  return absl::OkStatus();
}

absl::Status PullFromServer::TakeShared(const v1::SharedBytes& shared, int64_t size) {
  SharedReader reader(link_.get(), shared);
  if (!values_.is_decoded()) {
    TESSERA_RETURN_IF_ERROR(
        values_.Fill(size, [&reader](char* to, int64_t count) { return reader.Read(to, count); }));
    // Only now do the values count: the server may have taken its blocks back meanwhile.
    return reader.Finish();
  }
  // A decoder is not to read what may change under it.
  std::vector<char> bytes(static_cast<size_t>(size));
  TESSERA_RETURN_IF_ERROR(reader.Read(bytes.data(), size));
  TESSERA_RETURN_IF_ERROR(reader.Finish());
  values_.Write(bytes.data(), size);
  return absl::OkStatus();
}

absl::Status PullFromServer::TakeHeader(const v1::ChunkHeader& header) {
  has_header_ = true;
  answer_.version = Version(header.version());
  answer_.job_examples = header.examples();
  answer_.plan = Generation(header.plan_generation());
  answer_.cores = header.cores();
  answer_.needs_all = header.need_keys();
  connections_ = static_cast<int>(header.connections());
  answer_.checkpoint_number = header.checkpoint_number();
  answer_.checkpoint_step = header.checkpoint_step();
  if (header.layout_hash() != layout_hash_) {
    return absl::InvalidArgumentError(
        absl::StrCat("pull: layout_hash is ", absl::Hex(header.layout_hash()), ", want ",
                     absl::Hex(layout_hash_), "; the model or the number of servers differs"));
  }
  if (answer_.needs_all && !asks_core_) {
    return absl::InternalError("pull: answer wants the keys of a core, and none was asked for");
  }
  return asked_.has_value() ? TakeCut(header) : absl::OkStatus();
}

absl::Status PullFromServer::TakeCut(const v1::ChunkHeader& header) {
  answer_.is_whole = header.whole_model();
  if (answer_.is_whole) return absl::OkStatus();
  if (!header.has_subnet()) {
    return absl::InternalError("pull: answer has no subnet, want how the round is cut");
  }
  TESSERA_ASSIGN_OR_RETURN(const SubnetPlace place, PlaceOf(header.subnet()));
  // Another round's subnet has other columns.
  if (place.round != asked_->round || place.seed != asked_->seed) {
    return absl::InternalError(absl::StrCat("pull: answer is of round ", place.round, " (seed ",
                                            place.seed, "), want round ", asked_->round, " (seed ",
                                            asked_->seed, ")"));
  }
  if (!(place == *asked_)) answer_.recut = place;
  return absl::OkStatus();
}

absl::Status PullFromServer::Conclude(absl::Status status) {
  if (!broken_.ok()) return broken_;
  if (!status.ok()) return status;
  // A stream may be cut off between chunks without an error.
  if (has_all()) return status;
  return absl::InternalError(absl::StrCat("pull: answer ended after ",
                                          values_.bytes() - values_.left(), " of ", values_.bytes(),
                                          " bytes"));
}

}  // namespace tessera
