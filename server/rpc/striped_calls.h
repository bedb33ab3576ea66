// Calls that go on several connections (common/rpc/striping/striping.h), on the server's side: the connections of each
// of them come in any order and find each other here, and the call has them as one stream.
#ifndef TESSERA_SERVER_RPC_STRIPED_CALLS_H_
#define TESSERA_SERVER_RPC_STRIPED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/striping/striping.h"
#include "server/rpc/call_stream.h"

namespace tessera {

class StripedCalls;

// The messages that go on several connections.
enum class Striped { kReads, kWrites };

// The connections of one call as its stream. Its stripes keep it alive.
class StripedStream final : public CallStream {
 public:
  // `first`: the call's own connection.
  StripedStream(StripedCalls* calls, StripeName name, Striped striped, CallStream* first);
  // The call that this is the stream of. Before anything else.
  void Serve(std::shared_ptr<StreamEvents> call) { call_ = std::move(call); }

  std::string peer() const override { return first_->peer(); }
  // gRPC's own checks of certificate and token have let the caller in.
  absl::Status CheckCaller(const v1::Caller&) const override { return absl::OkStatus(); }
  bool wants_one_message() const override { return false; }
  void Read(grpc::ByteBuffer* message) override;
  void Write(const grpc::ByteBuffer* message) override;
  void WriteLast(const grpc::ByteBuffer* message) override;
  void End(const absl::Status& status) override;
  void Cancel() override;

  const StripeName& name() const { return name_; }

  // --- what the stripes say ---
  // A further connection has come. kInvalidArgument: its number is there, or is of a call with more or less of them;
  // nothing more is heard of it then.
  absl::Status Add(const StripeName& name, CallStream* stream);
  void OnReadDone(bool ok) { call_->OnReadDone(ok); }
  void OnWriteDone(bool ok) { call_->OnWriteDone(ok); }
  void OnCancel();
  void OnDone(int number);

 private:
  enum class Kind { kRead, kWrite, kWriteLast };
  // What is asked of one connection.
  struct Effort {
    Kind kind = Kind::kRead;
    int stripe = 0;
    grpc::ByteBuffer* read = nullptr;
    const grpc::ByteBuffer* write = nullptr;
  };

  // The connection of the next message that goes this way.
  int TurnOf(Striped way) { return way == striped_ ? turn_++ % name_.count : 0; }
  // Asks a connection for it, when it has come.
  void Begin(const Effort& effort);
  void Ask(const Effort& effort, CallStream* stream);
  // It comes to nothing, as the caller has gone.
  void Fail(const Effort& effort);
  // Ends all connections but `but` with this status, and those that have yet to come.
  void EndAll(const absl::Status& status, std::optional<int> but);

  StripedCalls* const calls_;
  const StripeName name_;
  const Striped striped_;
  CallStream* const first_;
  std::shared_ptr<StreamEvents> call_;
  int turn_ = 0;  // messages so far

  absl::Mutex mutex_;
  // nullptr: it has not come, or is over.
  std::vector<CallStream*> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> has_come_ ABSL_GUARDED_BY(mutex_);
  int open_ ABSL_GUARDED_BY(mutex_) = 0;
  // What is asked of a connection that has not come.
  std::optional<Effort> waiting_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool is_done_ ABSL_GUARDED_BY(mutex_) = false;
};

// One connection, as its stream's events come. Its stream keeps it alive.
class Stripe final : public StreamEvents,
                     public LimitedCall,
                     public std::enable_shared_from_this<Stripe> {
 public:
  // `call`: nullptr for one that is to find its call.
  Stripe(StripedCalls* calls, StripeName name, CallStream* stream,
         std::shared_ptr<StripedStream> call);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  // Its call has not come, and others wait, too.
  void GiveWay() override;

 private:
  friend class StripedCalls;

  std::shared_ptr<StripedStream> call() const;
  void SetCall(std::shared_ptr<StripedStream> call);
  // Outside of StripedCalls' mutex, behind SetCall.
  void Join();

  StripedCalls* const calls_;
  const StripeName name_;
  CallStream* const stream_;
  const uint64_t host_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<StripedStream> call_ ABSL_GUARDED_BY(mutex_);  // nullptr: it waits for one
};

// Any thread.
class StripedCalls {
 public:
  // How many connections of one host may wait for their call. The oldest gives way to another one.
  explicit StripedCalls(size_t waiting_per_host) : waiting_limit_(waiting_per_host) {}

  // A call has come, by its own connection. The connections that came before it join it, and those that come after.
  // kInvalidArgument: there is such a call
  absl::Status Open(const std::shared_ptr<StripedStream>& call);
  // A further connection has come. Where there is no such call it ends, or waits.
  void Join(const std::shared_ptr<Stripe>& stripe);
  // The call has ended: no connection joins it any more.
  void Close(const StripedStream& call);
  // The connections that wait.
  size_t waiting() const;
  size_t waiting_per_host() const { return waiting_limit_.most(); }

 private:
  friend class Stripe;

  // Whether it still waited.
  bool StopWaiting(const Stripe* stripe);

  CallLimit waiting_limit_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<StripedStream>> open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<std::shared_ptr<Stripe>>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_STRIPED_CALLS_H_
