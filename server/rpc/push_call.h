// One Push: its bytes stay in the memory that the network gave them, and go to the shard whole.
//
//   1. The first message carries the header: caller and declared size are checked before more
//      is read. Until it has come the call is half open, and there are only so many (data_plane.h).
//   2. A payload that is not complete by then, or is packed, waits for a place in staging, which only
//      members get; until it is granted nothing is read, so the network's flow control holds the sender.
//   3. Each chunk is checked for infinities and NaN while it is warm.
//   4. When the stream has ended at the declared size, the shard accepts or refuses.
// A granted place is given back exactly once: by the shard when it accepts, by this call otherwise.
#ifndef TESSERA_SERVER_RPC_PUSH_CALL_H_
#define TESSERA_SERVER_RPC_PUSH_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"
#include "common/rpc/call_limit.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/call_stream.h"
#include "server/rpc/data_plane.h"

namespace tessera {

// Its stream and the shard keep it alive. All but OnCancel and GiveWay runs in sequence.
class PushCall final : public StreamEvents,
                       public LimitedCall,
                       public std::enable_shared_from_this<PushCall> {
 public:
  // `stream` serves this, and is not there any more behind OnDone.
  PushCall(DataPlanes* planes, CallStream* stream)
      : planes_(planes), stream_(stream), host_(NumberOfHost(stream->peer())) {}
  void Start();

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void GiveWay() override;

 private:
  // Where the call stands with the shard's staging.
  enum class Place { kNone, kAsked, kGranted, kAbandoned };

  // The first message is here: this call gives way to others no more. False: it has.
  bool EndHalfOpen();
  absl::Status TakeChunk();
  absl::Status TakeHeader(const v1::PushHeader& header);
  // Copies the bytes of a chunk that lie in the sender's memory, as the sender may change what it has lent.
  absl::Status TakeShared(const v1::SharedBytes& shared, Payload* payload);
  absl::Status TakeCodec(const v1::PushHeader& header);
  absl::Status TakeKeys(const v1::PushHeader& header);
  absl::Status TakeCore(uint64_t keys_bytes);
  // Takes a core's keys off a payload that begins with them.
  Payload TakeCoreKeys(Payload payload);
  void AskForKeys();
  // The core that the push names; nullptr: it names none.
  NamedCore* core() { return std::get_if<NamedCore>(&push_.keys); }
  const NamedCore* core() const { return std::get_if<NamedCore>(&push_.keys); }
  int64_t received() const;  // bytes of the payload
  absl::Status CheckSize(uint64_t bytes);
  absl::Status CheckEnd() const;
  void AskForPlace();
  void OnPlace(const absl::Status& status, ShardThread& shard);
  void Deliver();
  void OnAccepted(const absl::StatusOr<PushAccepted>& accepted);
  absl::Status Gone() const;
  void GiveBackPlace();
  void Fail(const absl::Status& status);
  void Reply(const v1::PushReply& reply);
  // The stream is about to end: no later push of the member wants this one's place.
  void LeavePlane();

  DataPlanes* const planes_;
  DataPlane* plane_ = nullptr;  // once the caller has named the shard
  CallStream* const stream_;
  std::shared_ptr<MemoryLink> link_;  // nullptr: the caller has named none that stands
  const uint64_t host_;
  grpc::ByteBuffer message_;  // that is read, and in the end the reply
  std::string where_;
  bool was_half_open_ = true;
  bool has_header_ = false;
  // What has come so far.
  int64_t chunks_ = 0;
  int64_t arrived_bytes_ = 0;
  bool asked_ = false;  // for a place
  int64_t declared_bytes_ = 0;
  int64_t wire_bytes_ = 0;
  int64_t key_bytes_ = 0;  // of these, a core's keys, which come first
  bool needs_keys_ = false;
  // The form of a payload that is checked while it arrives. Coded entries that are no run are not: the shard knows
  // their buckets.
  std::optional<CodedKeys> plain_keys_;
  std::optional<ArrivalCheck> check_;
  // What the payload has, or, where that depends on the exchange, what it has some of.
  std::shared_ptr<const ExchangedEntries> entries_;
  bool is_exact_ = false;  // the former
  ReceivedPush push_;

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Place place_ ABSL_GUARDED_BY(mutex_) = Place::kNone;
  bool half_open_ ABSL_GUARDED_BY(mutex_) = true;
  bool gave_way_ ABSL_GUARDED_BY(mutex_) = false;  // and is finished

  absl::Mutex stream_mutex_;
  bool done_ ABSL_GUARDED_BY(stream_mutex_) = false;  // the stream is about to go
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PUSH_CALL_H_
