#include "server/rpc/push_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/selective_codec.h"
#include "common/rpc/chunk.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/rpc/windows.h"

namespace tessera {
namespace {

// A push of small chunks: so many, and one more for each so many bytes.
constexpr int64_t kSmallChunksMax = 1024;
constexpr int64_t kChunkBytesLeast = 1024;

}  // namespace

void PushCall::Start() {
  where_ = "push";
  // Until its header has come a push is anybody's, and takes place among the few that a host may have in this state.
  planes_->half_open_pushes().Add(host_, shared_from_this());
  stream_->Read(&message_);
}

bool PushCall::EndHalfOpen() {
  if (!was_half_open_) return true;
  was_half_open_ = false;
  planes_->half_open_pushes().Remove(host_, this);
  // The call may have been given up by GiveWay, on another thread, just before.
  absl::MutexLock lock(&mutex_);
  half_open_ = false;
  return !gave_way_;
}

void PushCall::GiveWay() {
  bool is_half_open = false;
  {
    absl::MutexLock lock(&mutex_);
    is_half_open = half_open_;
    if (is_half_open) {
      half_open_ = false;
      gave_way_ = true;
    }
  }
  if (!is_half_open) {
    // One whose header has come makes place for a later one of its member: reading fails. The stream goes
    // once OnDone has returned, though this object may still be held.
    absl::MutexLock lock(&stream_mutex_);
    if (!done_) stream_->Cancel();
    return;
  }
  stream_->End(absl::ResourceExhaustedError(
      absl::StrCat("push from ", stream_->peer(), ": header has not come, and ",
                   planes_->half_open_pushes().most(),
                   " later pushes of this host wait for theirs, want at most ",
                   planes_->half_open_pushes().most())));
}

void PushCall::OnReadDone(bool ok) {
  if (!EndHalfOpen()) return;
  if (!ok) {
    const absl::Status status = CheckEnd();
    if (!status.ok()) return Fail(status);
    return Deliver();
  }
  const absl::Status status = TakeChunk();
  message_.Clear();
  if (!status.ok()) return Fail(status);
  if (needs_keys_) return AskForKeys();
  // To check what is packed takes long: it is not done before the push is known to be a member's.
  const SelectiveCodec* const selective = push_.codec->selective();
  const bool is_packed = selective != nullptr && selective->packed();
  // The place is asked for once, before the second chunk: then the payload's size is known and checked.
  if (!asked_ && (received() < declared_bytes_ || is_packed)) return AskForPlace();
  stream_->Read(&message_);
}

absl::Status PushCall::TakeChunk() {
  v1::PushChunk head;
  Payload payload;
  const absl::Status read = ReadChunk(message_, &head, &payload);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        has_header_ ? where_ : absl::StrCat("push from ", stream_->peer()), ": ", read.message()));
  }
  if (head.has_header() == has_header_) {
    return absl::InvalidArgumentError(
        has_header_ ? absl::StrCat(where_, ": has a second header, want one")
                    : absl::StrCat("push from ", stream_->peer(),
                                   ": header is absent, want it in the first chunk"));
  }
  if (head.has_header()) TESSERA_RETURN_IF_ERROR(TakeHeader(head.header()));
  if (head.has_shared()) {
    const absl::Status shared = TakeShared(head.shared(), &payload);
    if (!shared.ok()) {
      return absl::Status(shared.code(), absl::StrCat(where_, ": ", shared.message()));
    }
  }
  if (received() + payload.size() > declared_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": payload is at least ",
                                                   received() + payload.size(),
                                                   " bytes, want the declared ", declared_bytes_));
  }
  // Each chunk takes memory beside its bytes.
  arrived_bytes_ += payload.size();
  if (++chunks_ > kSmallChunksMax + arrived_bytes_ / kChunkBytesLeast) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", chunks_, " chunks have ",
                                                   arrived_bytes_, " bytes, want at least ",
                                                   kChunkBytesLeast, " bytes a chunk"));
  }
  // What lies in memory counts as if it were in the message: counts do not depend on who is on which machine.
  const int64_t shared_bytes = head.has_shared() ? payload.size() : 0;
  const int64_t wire_bytes = WireBytes(static_cast<int64_t>(message_.Length()) + shared_bytes);
  wire_bytes_ += wire_bytes;
  plane_->CountPush(payload.size(), wire_bytes);
  if (needs_keys_) return absl::OkStatus();
  // The keys of a core come in front of the values.
  if (core() != nullptr && core()->keys) payload = TakeCoreKeys(std::move(payload));
  for (const Payload::Piece& piece : payload.pieces()) {
    if (!check_ || !check_->Feed(piece.data, piece.size)) break;
  }
  const auto chunk = std::make_shared<const Payload>(std::move(payload));
  for (const Payload::Piece& piece : chunk->pieces()) push_.payload.Append(piece, chunk);
  return absl::OkStatus();
}

absl::Status PushCall::TakeShared(const v1::SharedBytes& shared, Payload* payload) {
  if (payload->size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk has shared bytes and a payload of ",
                                                   payload->size(), " bytes, want one of the two"));
  }
  // Links end with their connection, and the sender can have another one.
  if (link_ == nullptr) {
    return absl::AbortedError("shared bytes: the caller's link does not stand; send again");
  }
  TESSERA_ASSIGN_OR_RETURN(const int64_t size, link_->SizeOf(shared));
  if (size > kChunkBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared bytes: are ", size, ", want at most ", kChunkBytesMax));
  }
  const std::shared_ptr<char> bytes(new char[size], std::default_delete<char[]>());
  SharedReader reader(link_.get(), shared);
  TESSERA_RETURN_IF_ERROR(reader.Read(bytes.get(), size));
  TESSERA_RETURN_IF_ERROR(reader.Finish());
  payload->Append({bytes.get(), size}, bytes);
  return absl::OkStatus();
}

absl::Status PushCall::TakeHeader(const v1::PushHeader& header) {
  has_header_ = true;
  where_ =
      absl::StrCat("push from member ", header.caller().member(), " exchange ", header.exchange());
  TESSERA_ASSIGN_OR_RETURN(plane_, planes_->Find(where_, header.caller()));
  TESSERA_RETURN_IF_ERROR(plane_->CheckCaller(where_, header.caller()));
  TESSERA_RETURN_IF_ERROR(stream_->CheckCaller(header.caller()));
  link_ = planes_->FindLink(header.caller());
  TESSERA_RETURN_IF_ERROR(TakeCodec(header));
  TESSERA_RETURN_IF_ERROR(TakeKeys(header));
  TESSERA_RETURN_IF_ERROR(CheckSize(header.payload_bytes()));
  // A member has few pushes at a time: a later one lets the oldest go.
  plane_->member_pushes().Add(header.caller().member(), shared_from_this());
  declared_bytes_ = static_cast<int64_t>(header.payload_bytes());
  push_.member = MemberId(header.caller().member());
  push_.generation = Generation(header.caller().generation());
  push_.exchange = Exchange(header.exchange());
  push_.base = Version(header.base_version());
  push_.kind = header.kind();
  push_.layout_hash = header.layout_hash();
  push_.examples = header.examples();
  push_.whole_next = header.whole_next();
  push_.from_peer = header.from_peer();
  return absl::OkStatus();
}

absl::Status PushCall::TakeCodec(const v1::PushHeader& header) {
  absl::StatusOr<Codec> codec = NamedCodec(header.codec(), plane_->shard().traits().codecs.push);
  if (!codec.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", codec.status().message()));
  }
  push_.codec = *codec;
  return absl::OkStatus();
}

absl::Status PushCall::TakeKeys(const v1::PushHeader& header) {
  push_.summed = std::max<uint64_t>(1, header.summed());
  const JobKeys& keys = *plane_->shard().traits().keys;
  const auto take = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(push_.keys, KeysOf(header.keys()));
    TESSERA_ASSIGN_OR_RETURN(entries_, keys.OfPush(push_.keys, push_.summed));
    return core() == nullptr ? absl::OkStatus() : TakeCore(header.keys().sparse().keys_bytes());
  };
  const absl::Status status = take();
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", status.message()));
  }
  is_exact_ = entries_ != nullptr;
  // What a core's push has of entries is bounded by all, and counted by the shard.
  if (!is_exact_) entries_ = keys.dense();
  return absl::OkStatus();
}

absl::Status PushCall::TakeCore(uint64_t keys_bytes) {
  const ShardThread& shard = plane_->shard();
  const int64_t limit = KeyBytesMax(shard.traits().slices.size);
  if (keys_bytes > static_cast<uint64_t>(limit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys are ", keys_bytes, " bytes, want at most ", limit));
  }
  key_bytes_ = static_cast<int64_t>(keys_bytes);
  // The shard may know the core by its name; otherwise the worker sends the push again with keys.
  needs_keys_ = key_bytes_ == 0 && shard.WantsKeysOf(core()->name);
  return absl::OkStatus();
}

int64_t PushCall::received() const {
  const bool has_keys = core() != nullptr && core()->keys;
  return push_.payload.size() + (has_keys ? static_cast<int64_t>(core()->keys->size()) : 0);
}

Payload PushCall::TakeCoreKeys(Payload payload) {
  std::string& keys = *core()->keys;
  if (static_cast<int64_t>(keys.size()) == key_bytes_) return payload;
  const auto owner = std::make_shared<const Payload>(std::move(payload));
  Payload rest;
  for (Payload::Piece piece : owner->pieces()) {
    const int64_t taken = std::min(piece.size, key_bytes_ - static_cast<int64_t>(keys.size()));
    keys.append(piece.data, static_cast<size_t>(taken));
    rest.Append({piece.data + taken, piece.size - taken}, owner);
  }
  return rest;
}

// Before any of the payload is staged.
void PushCall::AskForKeys() {
  GiveBackPlace();
  v1::PushReply reply;
  reply.set_need_keys(true);
  Reply(reply);
}

// What the shard owns bounds what is received. The exact size of what depends on the exchange is the shard's to know.
absl::Status PushCall::CheckSize(uint64_t bytes) {
  const CodedKeys* const coded = entries_->forms().Find(push_.codec);
  const auto refuse = [&](const std::string& wanted) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": payload is ", bytes, " bytes, want ",
                                                   wanted,
                                                   "; layouts differ, compare layout_hash in "
                                                   "status"));
  };
  if (coded == nullptr) {
    const int64_t limit =
        entries_->is_nothing() ? 0 : push_.codec->selective()->BytesMax(entries_->count());
    if (bytes <= static_cast<uint64_t>(limit)) return absl::OkStatus();
    return refuse(absl::StrCat("at most ", limit));
  }
  // The payload is keys and values.
  if (bytes < static_cast<uint64_t>(key_bytes_)) {
    return refuse(absl::StrCat("at least the ", key_bytes_, " of the keys"));
  }
  bytes -= static_cast<uint64_t>(key_bytes_);
  if (is_exact_) {
    if (bytes != static_cast<uint64_t>(coded->bytes())) {
      return refuse(absl::StrCat(coded->bytes(), " (", coded->entries(), " entries as ",
                                 push_.codec->name(), ")"));
    }
    check_.emplace(*coded);
    return absl::OkStatus();
  }
  if (!IsPlain(push_.codec)) {
    const int64_t limit = plane_->shard().traits().keys->coded_bytes_max(*coded);
    if (bytes <= static_cast<uint64_t>(limit)) return absl::OkStatus();
    return refuse(absl::StrCat("at most ", limit));
  }
  const auto entry_bytes = static_cast<uint64_t>(push_.codec->traits().entry_bytes);
  // A plain codec's payload can be checked as it arrives, as its size says how many entries it has.
  if (bytes > static_cast<uint64_t>(coded->bytes()) || bytes % entry_bytes != 0) {
    return refuse(absl::StrCat("a multiple of ", entry_bytes, " of at most ", coded->bytes()));
  }
  plain_keys_.emplace(CodedKeys::Plain(push_.codec, static_cast<int64_t>(bytes / entry_bytes)));
  check_.emplace(*plain_keys_);
  return absl::OkStatus();
}

absl::Status PushCall::CheckEnd() const {
  if (!has_header_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "push from ", stream_->peer(), ": ended before its header, want one in the first chunk"));
  }
  if (received() == declared_bytes_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where_, ": payload ended after ", received(),
                                                 " of ", declared_bytes_, " bytes"));
}

void PushCall::AskForPlace() {
  asked_ = true;
  // The call may be cancelled at this moment, on another thread.
  absl::ReleasableMutexLock lock(&mutex_);
  const bool cancelled = cancelled_;
  if (!cancelled) place_ = Place::kAsked;
  lock.Release();
  if (cancelled) return Fail(Gone());
  const std::shared_ptr<PushCall> self = shared_from_this();
  // The plane may be gone when the turn of a call comes that was cancelled.
  ShardThread& shard = plane_->shard();
  shard.Ask(
      [member = push_.member, bytes = declared_bytes_](ServedShard& served, auto granted) {
        served.Reserve(member, bytes, std::move(granted));
      },
      [self, &shard](const absl::Status& status) { self->OnPlace(status, shard); });
}

void PushCall::OnPlace(const absl::Status& status, ShardThread& shard) {
  bool abandoned = false;
  {
    absl::MutexLock lock(&mutex_);
    abandoned = place_ == Place::kAbandoned;
    if (!abandoned) place_ = status.ok() ? Place::kGranted : Place::kNone;
  }
  if (!abandoned) {
    if (!status.ok()) {
      return Fail(absl::Status(status.code(), absl::StrCat(where_, ": ", status.message())));
    }
    return stream_->Read(&message_);
  }
  // The call was cancelled while it waited: the place that came is nobody's.
  if (status.ok()) shard.Release(push_.member, declared_bytes_);
}

void PushCall::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    // A place that is still wanted is given back when it comes; any other state is dealt with by the next read.
    if (place_ != Place::kAsked) return;  // The next read fails.
    place_ = Place::kAbandoned;
  }
  stream_->End(Gone());
}

void PushCall::Deliver() {
  // What was received is checked entry by entry on gRPC's threads, not on the shard's.
  if (check_) push_.bad_entry = check_->bad_entry();
  {
    absl::MutexLock lock(&mutex_);
    if (place_ == Place::kGranted) push_.reserved_bytes = declared_bytes_;
  }
  const SelectiveCodec* const selective = push_.codec->selective();
  if (selective != nullptr && !entries_->is_nothing()) {
    const absl::Status status = selective->Check(push_.payload, entries_->count());
    if (!status.ok()) {
      return Fail(absl::Status(status.code(), absl::StrCat(where_, ": ", status.message())));
    }
  }
  // A commit copies the blocks that somebody still reads. Who has read them by now has only said so in its memory.
  if (planes_->door() != nullptr) planes_->door()->Sweep();
  const std::shared_ptr<PushCall> self = shared_from_this();
  plane_->shard().Ask(
      [push = std::move(push_)](ServedShard& served, auto done) mutable {
        served.Accept(std::move(push), std::move(done));
      },
      [self](const absl::StatusOr<PushAccepted>& accepted) { self->OnAccepted(accepted); });
}

void PushCall::OnAccepted(const absl::StatusOr<PushAccepted>& accepted) {
  if (!accepted.ok()) return Fail(accepted.status());
  if (accepted->need_keys) return AskForKeys();
  // A repeated push was dropped, and with it nothing of its place was used.
  if (accepted->duplicate) GiveBackPlace();
  v1::PushReply reply;
  reply.set_duplicate(accepted->duplicate);
  reply.set_version(accepted->version.value());
  if (CurrentStripes() > 1) reply.set_connections(static_cast<uint32_t>(CurrentStripes()));
  // Before the end: the plane may go once no call is left.
  // The update may have been committed: readers of old values may be in the way of the next one.
  plane_->CutOffRevoked();
  Reply(reply);
}

absl::Status PushCall::Gone() const {
  return absl::CancelledError(absl::StrCat(where_, ": the client has gone"));
}

void PushCall::GiveBackPlace() {
  absl::MutexLock lock(&mutex_);
  if (place_ != Place::kGranted) return;
  place_ = Place::kNone;
  plane_->shard().Release(push_.member, declared_bytes_);
}

void PushCall::Fail(const absl::Status& status) {
  GiveBackPlace();
  LeavePlane();
  stream_->End(status);
}

void PushCall::Reply(const v1::PushReply& reply) {
  message_ = WriteMessage(reply);
  LeavePlane();
  stream_->WriteLast(&message_);
}

void PushCall::LeavePlane() {
  if (plane_ != nullptr) plane_->member_pushes().Remove(push_.member.value(), this);
}

void PushCall::OnDone() {
  planes_->half_open_pushes().Remove(host_, this);
  LeavePlane();
  {
    absl::MutexLock lock(&stream_mutex_);
    done_ = true;
  }
  // The stream has come back from OnCancel by now: said here, so that a checker sees it.
  mutex_.Lock();
  mutex_.Unlock();
}

}  // namespace tessera
