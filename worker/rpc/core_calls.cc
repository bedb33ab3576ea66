#include "worker/rpc/core_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/rpc/chunk.h"
#include "common/rpc/key_set_message.h"
#include "common/rpc/transport.h"

namespace tessera {
namespace {

const std::string& PullMethod() {
  static const auto* const name = new std::string("/tessera.v1.ParameterServer/Pull");
  return *name;
}

}  // namespace

CoreFromServer::CoreFromServer(CallBoard* board, const v1::PullRequest& request,
                               uint64_t layout_hash, int64_t entries)
    : ServerCall(board),
      layout_hash_(layout_hash),
      entries_(entries),
      message_(WriteMessage(request)) {}

void CoreFromServer::Start(grpc::GenericStub* stub) {
  wire_bytes_ += kCallWireBytes + WireBytes(message_.Length());
  stub->PrepareBidiStreamingCall(context_.get(), PullMethod(), {}, this);
  // The next message is read into this one's place.
  const grpc::ByteBuffer request = std::exchange(message_, grpc::ByteBuffer());
  // gRPC takes references to the request's bytes before this returns.
  StartWriteLast(&request, grpc::WriteOptions());
  StartRead(&message_);
  StartCall();
}

void CoreFromServer::OnReadDone(bool ok) {
  if (!ok) return;
  broken_ = TakeChunk();
  message_.Clear();
  if (!broken_.ok()) return context_->TryCancel();
  StartRead(&message_);
}

absl::Status CoreFromServer::TakeChunk() {
  v1::Chunk head;
  Payload payload;
  TESSERA_RETURN_IF_ERROR(ReadChunk(message_, &head, &payload));
  if (head.has_header() == has_header_) {
    // A second header might name another core than the keys are of.
    return absl::InternalError("core: answer has no header or two, want one in the first chunk");
  }
  if (head.has_header()) {
    has_header_ = true;
    if (head.header().layout_hash() != layout_hash_) {
      return absl::InvalidArgumentError(
          absl::StrCat("core: layout_hash is ", absl::Hex(head.header().layout_hash()), ", want ",
                       absl::Hex(layout_hash_), "; the model or the number of servers differs"));
    }
    named_ = head.header().core();
  }
  payload_bytes_ += payload.size();
  wire_bytes_ += WireBytes(message_.Length());
  // Before it is kept: the keys of so many entries cannot be longer.
  const int64_t size = static_cast<int64_t>(keys_.size()) + payload.size();
  if (size > KeyBytesMax(entries_)) {
    return absl::InternalError(absl::StrCat("core: keys are at least ", size,
                                            " bytes, want at most ", KeyBytesMax(entries_)));
  }
  for (const Payload::Piece& piece : payload.pieces()) keys_.append(piece.data, piece.size);
  return absl::OkStatus();
}

absl::Status CoreFromServer::Conclude(absl::Status status) {
  if (!broken_.ok()) return broken_;
  if (!status.ok()) return status;
  TESSERA_ASSIGN_OR_RETURN(const CoreName name, CoreOf(named_));
  TESSERA_ASSIGN_OR_RETURN(EntrySet keys,
                           DecodeKeys(static_cast<int>(named_.key_form()), keys_, entries_));
  // The name has a hash of the keys: a mixture of two cores is found out.
  if (SignatureOf(layout_hash_, name.number, keys) != name.signature) {
    return absl::InternalError(
        absl::StrCat("core: keys of core ", name.number, " are not those that it is named by"));
  }
  core_ = std::make_shared<const Core>(Core{name, std::move(keys)});
  return absl::OkStatus();
}

CoreCalls::CoreCalls(Options options) : options_(std::move(options)) {
  *request_.mutable_caller() = options_.caller;
}

CoreCalls::~CoreCalls() { End(); }

void CoreCalls::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  board_.Notify();
}

void CoreCalls::SetAway(bool away) {
  away_.store(away, std::memory_order_release);
  board_.Notify();
}

void CoreCalls::Start(size_t server) {
  if (options_.names_shards) {
    // With standbys a request says which shard it is for.
    request_.mutable_caller()->set_shard(static_cast<uint32_t>(server));
  }
  asked_[server].call = std::make_unique<CoreFromServer>(&board_, request_, options_.layout_hash,
                                                         options_.entries[server]);
  asked_[server].call->Start(options_.stub(server));
}

void CoreCalls::Ask(uint64_t number) {
  // The answers to an earlier question are of another core.
  End();
  request_.set_core_wanted(number);
  const MemberId caller(options_.caller.member());
  for (size_t server = 0; server < options_.entries.size(); ++server) {
    asked_.push_back({nullptr, Retry(ServerRetry(options_.retry_time), caller, server)});
  }
  // Where the coordinator is away servers may have been replaced without anybody's knowing.
  for (size_t server = 0; server < asked_.size() && !away_.load(std::memory_order_acquire);
       ++server) {
    Start(server);
  }
}

void CoreCalls::Repeat(size_t server) {
  if (server >= asked_.size()) return;
  Asked& asked = asked_[server];
  // The server is another one now, which may answer what the one before could not.
  asked.retry.Restart();
  if (asked.call != nullptr) asked.call->Cancel();
}

absl::StatusOr<Cores> CoreCalls::Take(Traffic* traffic) {
  Cores cores(asked_.size());
  absl::Status failed;
  // One server after the other is waited for, while all are asked at once.
  for (size_t server = 0; server < asked_.size() && failed.ok();) {
    if (cancelled_.load(std::memory_order_acquire)) {
      failed = absl::CancelledError("parameter client: cancelled");
      break;
    }
    // Servers may have moved to other addresses.
    if (options_.look_around) options_.look_around();
    Asked& asked = asked_[server];
    const bool is_away = away_.load(std::memory_order_acquire);
    // What has failed meanwhile is tried anew, for the whole time.
    if (is_away) asked.retry.Forgive();
    if (asked.call == nullptr) {
      const absl::Time start = is_away ? absl::InfiniteFuture() : asked.retry.due();
      if (start > SteadyNow()) {
        board_.WaitUntil(start);
      } else {
        Start(server);
      }
    } else if (!asked.call->ended()) {
      board_.WaitUntil(absl::InfiniteFuture());
    } else {
      const std::unique_ptr<CoreFromServer> call = std::move(asked.call);
      Count(*call);
      // The next server's answer may be there already.
      if (call->status().ok()) {
        cores[server++] = call->core();
      } else {
        failed = Collect(server, call->status());
      }
    }
  }
  End();
  *traffic += std::exchange(came_, Traffic());
  if (!failed.ok()) return failed;
  return cores;
}

void CoreCalls::Count(const CoreFromServer& call) {
  came_.pull_payload_bytes += call.payload_bytes();
  came_.pull_wire_bytes += call.wire_bytes();
}

absl::Status CoreCalls::Collect(size_t server, const absl::Status& status) {
  const Retry::Verdict verdict = asked_[server].retry.OnFailure(status.code(), SteadyNow());
  if (verdict == Retry::Verdict::kAgain) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("server ", server, ": ", status.message()));
}

void CoreCalls::End() {
  // All are cancelled before any is waited for.
  for (const Asked& asked : asked_) {
    if (asked.call != nullptr && !asked.call->ended()) asked.call->Cancel();
  }
  for (const Asked& asked : asked_) {
    if (asked.call == nullptr) continue;
    while (!asked.call->ended()) board_.WaitUntil(absl::InfiniteFuture());
    Count(*asked.call);
  }
  asked_.clear();
}

}  // namespace tessera
