// One push to, or one pull from, one server: a single attempt. So are calls to other workers (activation_client.cc).
//
// The caller's thread starts calls; gRPC's threads run them, or, where both sides share memory and little is to be
// said, the caller's own as it reads the server's packets (local_caller.h). A pull writes received values straight
// into the replica as they arrive; a push sends the replica's own memory. A call has ended when
// gRPC has let go of that memory too, which is what the CallBoard tells.
#ifndef TESSERA_WORKER_RPC_SERVER_CALL_H_
#define TESSERA_WORKER_RPC_SERVER_CALL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/keyset/subnet.h"
#include "common/rpc/shared_memory/memory_link.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/exchange_answers.h"
#include "worker/rpc/call_board.h"
#include "worker/rpc/call_connections.h"
#include "worker/rpc/local_caller.h"
#include "worker/rpc/update_payload.h"
#include "worker/rpc/value_writer.h"

namespace tessera {

class ServerCall : public CallConnections {
 public:
  // `board` is told whenever the call has moved on.
  explicit ServerCall(CallBoard* board) : board_(board) {}

  // Ends the call before its time. Called by the thread that started it.
  void Cancel();
  // What the call's packets come by; nullptr: it goes over gRPC.
  LocalCaller* local() const { return local_.get(); }
  // The server's answer is known. What follows is valid from then on.
  bool answered() const { return answered_.load(std::memory_order_acquire); }
  // Whether the call is over and gRPC needs none of the caller's memory any more.
  bool ended() const { return holders_.load(std::memory_order_acquire) == 0; }

  const absl::Status& status() const { return status_; }
  absl::Time first_byte_time() const { return first_byte_time_; }
  absl::Time end_time() const { return end_time_; }
  int64_t payload_bytes() const { return payload_bytes_; }
  // Payloads in memory are counted in these as if they were in messages, and in the last one alone.
  int64_t wire_bytes() const { return wire_bytes_; }
  int64_t shared_bytes() const { return shared_bytes_; }
  // How many connections the server has said that a later call may go on. 0: it has not.
  int connections() const { return connections_; }

 protected:
  // The call has ended, over gRPC or by packets.
  void Answered(const absl::Status& status);
  // The call's status, now that gRPC's is known.
  virtual absl::Status Conclude(absl::Status status) = 0;
  void Moved() { board_->Notify(); }
  // Before Start, of a call that sends the caller's memory: what memory() returns goes with each slice of it, and the
  // call has not ended before gRPC has let go of all of them.
  void HoldMemory();
  const std::shared_ptr<const void>& memory() const { return memory_; }

  // Where the call goes by packets.
  std::shared_ptr<LocalCaller> local_;
  uint32_t local_number_ = 0;
  absl::Time first_byte_time_ = absl::InfinitePast();
  int64_t payload_bytes_ = 0;
  int64_t wire_bytes_ = 0;
  int64_t shared_bytes_ = 0;
  int connections_ = 0;

 private:
  void OnFirstDone() override { Moved(); }
  void OnAllDone(const absl::Status& status) override { Answered(status); }
  void DropHolder();

  CallBoard* const board_;
  std::shared_ptr<const void> memory_;  // its end says that gRPC holds no slice
  absl::Status status_;
  absl::Time end_time_;
  std::atomic<bool> answered_{false};
  std::atomic<int> holders_{1};
};

// Sends the payload of a push.
class PushToServer final : public ServerCall, private LocalAnswer {
 public:
  // `payload`, which is at its beginning, must outlive the call. `link`: the header names it, and the payload goes by
  // it; nullptr: in messages.
  PushToServer(CallBoard* board, const v1::PushHeader& header, UpdatePayload* payload,
               std::shared_ptr<MemoryLink> link);
  void Start(grpc::GenericStub* stub);
  // In place of Start, where the payload has at most kLocalPayloadBytesMax.
  void StartBy(std::shared_ptr<LocalCaller> caller);
  // The payload waits where all of the link's buffers are at the server. Goes on where one is free by now; otherwise
  // returns when to look again. The thread that has started it; the board tells that there is something to wait for.
  absl::Time Continue(absl::Time now);

  // Whether a successful push was not accepted because the core's keys are wanted with it.
  bool need_keys() const { return need_keys_; }

  void OnWriteDone(bool ok) override;
  void OnReadDone(bool ok) override;

 private:
  absl::Status Conclude(absl::Status status) override;
  bool OnMessage(grpc::ByteBuffer message) override;
  void OnEnd(const absl::Status& status) override { Answered(status); }
  void WriteNext();
  // The next message, with so many bytes of the payload as they come, or with all that are left.
  grpc::ByteBuffer NextMessage(bool is_last);
  // Whether the payload waits from now on.
  bool Stall();

  const std::shared_ptr<MemoryLink> link_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;                         // the server reads no more
  absl::Time stalled_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // since when
  v1::PushChunk head_;
  UpdatePayload* const payload_;
  grpc::ByteBuffer message_;
  grpc::ByteBuffer reply_;
  bool replied_ = false;
  bool need_keys_ = false;
};

// Writes the answer to a pull, or to the fetch of a subnet.
class PullFromServer final : public ServerCall, private LocalAnswer {
 public:
  // What `values` writes to must outlive the call; it is written until the call has ended. An answer
  // of another layout is refused, and one in place of values that was not asked for.
  PullFromServer(CallBoard* board, const v1::PullRequest& request, uint64_t layout_hash,
                 ValueWriter values);
  // Fetches the subnet that is at `asked`.
  PullFromServer(CallBoard* board, const v1::SubnetRequest& request, const SubnetPlace& asked,
                 uint64_t layout_hash, ValueWriter values);
  void Start(grpc::GenericStub* stub);
  // In place of Start, where the values have at most kLocalPayloadBytesMax.
  void StartBy(std::shared_ptr<LocalCaller> caller);
  // Before Start: the request names this link, and values may come by it.
  void ReadFrom(std::shared_ptr<MemoryLink> link) { link_ = std::move(link); }
  // Before Start: the board is told of each piece of the answer, too.
  void TellWritten() { tells_written_ = true; }
  // Bytes of values that are where they belong. Any thread.
  int64_t written() const { return written_.load(std::memory_order_acquire); }
  // The answer to a successful call. A subnet's fetch may say that the round is cut otherwise than was asked for, or
  // that exchanges are of the whole model by now; a pull of a core's entries that the core is not known.
  const ServerAnswer& answer() const { return answer_; }

  void OnReadDone(bool ok) override;

 private:
  absl::Status Conclude(absl::Status status) override;
  bool has_all() const { return has_header_ && (values_.left() == 0 || !answer_.has_values()); }
  bool OnMessage(grpc::ByteBuffer message) override;
  void OnEnd(const absl::Status& status) override { Answered(status); }
  // Takes message_. False: the answer is broken.
  bool TakeMessage();
  absl::Status TakeChunk();
  // Writes `size` bytes that lie in the server's memory.
  absl::Status TakeShared(const v1::SharedBytes& shared, int64_t size);
  absl::Status TakeHeader(const v1::ChunkHeader& header);
  absl::Status TakeCut(const v1::ChunkHeader& header);

  const std::optional<SubnetPlace> asked_;
  const bool asks_core_ = false;
  const uint64_t layout_hash_;
  std::shared_ptr<MemoryLink> link_;
  ValueWriter values_;
  bool tells_written_ = false;
  std::atomic<int64_t> written_{0};
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  ServerAnswer answer_;
  absl::Status broken_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_SERVER_CALL_H_
