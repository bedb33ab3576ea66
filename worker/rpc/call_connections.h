// The connections of one call as gRPC has them: one, or for a large call several, which carry its messages in turn
// (common/rpc/striping/striping.h).
//
// What gRPC tells of any of them comes to the same OnReadDone and OnWriteDone, one at a time, as one message is read or
// written at a time; which connection is asked for the next one is decided here. The call has ended when all
// connections have.
#ifndef TESSERA_WORKER_RPC_CALL_CONNECTIONS_H_
#define TESSERA_WORKER_RPC_CALL_CONNECTIONS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// The first connection is this itself.
class CallConnections : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  CallConnections();
  ~CallConnections() override;

  // Before the start: the call's messages go on its own connection and on these, in turn.
  void StripeOver(const std::vector<grpc::GenericStub*>& stubs);
  bool is_striped() const { return is_striped_; }
  // A call that has ended well on its own connection waits for the end of the others for so long and no longer: one may
  // have been lost without a word. Cancels them, or returns when to look again. The thread that has started the call,
  // as LetGo is called by.
  absl::Time EndOthers(absl::Time now, absl::Duration time);
  // Once all have ended: drops gRPC's calls, which hold on to the memory of a write that was cut off.
  void LetGo();

  void OnDone(const grpc::Status& status) override;

 protected:
  // Names the call on all its connections. `is_held`: gRPC keeps it until DropHold, as it goes on from other threads
  // than gRPC's; a striped call is held always.
  void Prepare(grpc::GenericStub* stub, const std::string& method, bool is_held);
  // Behind the first reads and writes.
  void StartAll();
  // Reads and writes of messages that the call's connections carry in turn. A message lives until it is done.
  void ReadInTurn(grpc::ByteBuffer* message);
  void WriteInTurn(const grpc::ByteBuffer* message);
  void WriteLastInTurn(const grpc::ByteBuffer* message);
  // Nothing is written on the connections behind the first one.
  void EndOtherWrites();
  // Whether each connection has carried a message, or been asked for one.
  bool all_have_carried() const { return turn_ > others_.size(); }
  // Ends the others, which the server may not know of.
  void LeaveOthers();
  // gRPC may end the call: it goes on by gRPC's threads alone, or not at all.
  void DropHold();
  // Ends what is under way on all connections; any thread before the call has ended.
  void CancelAll();
  bool has_let_go() const { return context_ == nullptr; }
  // All that the other connections are for has come: however they end now says nothing.
  void SetComplete() { is_complete_.store(true, std::memory_order_release); }
  int64_t count() const { return static_cast<int64_t>(1 + others_.size()); }

  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();

 private:
  class Other;
  using Reactor = grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // The call's own connection has ended, and others have not.
  virtual void OnFirstDone() = 0;
  // All have ended: this may go.
  virtual void OnAllDone(const absl::Status& status) = 0;

  Reactor& InTurn();
  void OnConnectionDone(size_t number, const absl::Status& status);
  bool is_complete() const { return is_complete_.load(std::memory_order_acquire); }

  std::vector<std::unique_ptr<Other>> others_;
  bool is_striped_ = false;
  size_t turn_ = 0;  // messages so far
  std::atomic<bool> is_complete_{false};
  std::atomic<bool> is_held_{false};
  absl::Mutex mutex_;
  size_t open_ ABSL_GUARDED_BY(mutex_) = 1;  // connections
  absl::Time first_done_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Status first_status_ ABSL_GUARDED_BY(mutex_);
  absl::Status other_status_ ABSL_GUARDED_BY(mutex_);  // the first of the others that failed
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_CALL_CONNECTIONS_H_
