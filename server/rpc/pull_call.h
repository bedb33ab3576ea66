// One answer to Pull or to FetchSubnet.
//
//   1. The request is read and its caller checked.
//   2. The shard is asked; the answer may wait for other workers. A client that goes is forgotten.
//   3. Chunks are sent one after the other (pull_answer.h). Entries that are one run reference the snapshot's blocks;
//      others, as a subnet's, are gathered from the blocks into the memory that is sent, one copy. The first chunk is
//      sent by the shard's thread, so of several it is a short one, and of what is gathered it has the header alone;
//      gRPC's threads do the rest. A caller that has a link gets references to the blocks in place of their bytes: they
//      are lent beyond the end of the call, until it has copied them, or the snapshot is revoked.
// A reader that is too slow loses its snapshot and ends with ABORTED, or with CANCELLED if its
// network stands still.
#ifndef TESSERA_SERVER_RPC_PULL_CALL_H_
#define TESSERA_SERVER_RPC_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/codec/codec.h"
#include "common/keyset/named_keys.h"
#include "proto/parameter_server.pb.h"
#include "common/rpc/call_limit.h"
#include "server/rpc/call_stream.h"
#include "server/rpc/data_plane.h"
#include "server/rpc/pull_answer.h"

namespace tessera {

// Its stream and the shard keep it alive.
class PullCall final : public StreamEvents,
                       public ActiveReader,
                       public LimitedCall,
                       public std::enable_shared_from_this<PullCall> {
 public:
  // `stream` serves this, and is not there any more behind OnDone.
  PullCall(DataPlanes* planes, CallStream* stream)
      : planes_(planes), stream_(stream), host_(NumberOfHost(stream->peer())) {}
  // `request`: a PullRequest.
  void Start(const grpc::ByteBuffer& request);
  // `request`: a SubnetRequest.
  void StartFetch(const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void CutOffIfRevoked() override;
  // Its reader does not take what was made for it, and others' answers need the memory.
  void GiveWay() override;

 private:
  absl::Status AskPull(const grpc::ByteBuffer& request);
  absl::Status AskFetch(const grpc::ByteBuffer& request);
  absl::Status AskCopy(const v1::PullRequest& request);
  void AskCore(MemberId member, uint64_t number);
  // The values of `keys` for a member that has made exchange `after`: at once where it is outside an exchange.
  void AskValues(MemberId member, Exchange after, IdleNotice word, NamedKeys keys);
  // Checks what can be told without the shard. kInvalidArgument: nobody reads such keys here.
  absl::Status CheckKeys(const NamedKeys& keys);
  absl::Status TakeCodec(absl::string_view name);
  // `read`: the shard's number for what was asked.
  void CancelWhenGone(uint64_t read);
  // Ends the call where there is none, else begins to send it.
  template <typename Result, typename... Args>
  void Answer(absl::StatusOr<Result> result, const Args&... args);
  void BeginAnswer();
  void SendNext();
  DataPlanes* const planes_;
  DataPlane* plane_ = nullptr;  // once the caller has named the shard
  CallStream* const stream_;
  const uint64_t host_;
  std::shared_ptr<MemoryLink> link_;  // nullptr: the caller has named none that stands
  // The stream goes once OnDone has returned, though this object may still be held.
  absl::Mutex stream_mutex_;
  bool done_ ABSL_GUARDED_BY(stream_mutex_) = false;
  std::string where_;
  bool outside_exchange_ = false;
  bool waits_only_ = false;  // a fetch that wants no values
  bool copies_ = false;      // another server's, for its replica
  // What a read outside an exchange is of.
  std::shared_ptr<const ExchangedEntries> entries_;
  Codec codec_;

  absl::Mutex mutex_;
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;

  // Set once by Answer. Then one thread at a time, as the stream calls OnWriteDone.
  PullAnswer answer_;
  bool is_reader_ = false;
  bool is_unread_ = false;  // the message that is being written is this call's alone
  bool has_begun_ = false;  // the header was sent
  int64_t bytes_ = 0;       // of the answer
  grpc::ByteBuffer message_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PULL_CALL_H_
