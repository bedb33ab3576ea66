// One call of the data plane as its stream of messages, whichever way they come: over gRPC (grpc_streams.h), or in
// packets from a process of this machine (local_calls.h).
#ifndef TESSERA_SERVER_RPC_CALL_STREAM_H_
#define TESSERA_SERVER_RPC_CALL_STREAM_H_

#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

// What a call is told of its stream. One thread at a time, but for OnCancel, which may come at any moment until OnDone.
// All of it may come from within the stream's functions.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  // The message of Read is there. False: there will be no more.
  virtual void OnReadDone(bool ok) { static_cast<void>(ok); }
  // The message of Write is on its way, and may change. False: the caller has gone.
  virtual void OnWriteDone(bool ok) { static_cast<void>(ok); }
  // The caller has gone, or Cancel was called. The call is still to end the stream.
  virtual void OnCancel() = 0;
  // The stream has ended: nothing more is told, and the stream is not there any more once this has returned.
  virtual void OnDone() = 0;
};

// The call's side. One function at a time, but for Cancel. Keeps the call alive until OnDone has returned.
class CallStream {
 public:
  virtual ~CallStream() = default;
  // Where the caller is, as gRPC has it.
  virtual std::string peer() const = 0;
  // Whether a caller who says this of itself may be at the other end. kPermissionDenied: another one is.
  virtual absl::Status CheckCaller(const v1::Caller& caller) const = 0;
  // Whether each message is an effort of its own, so that an answer had better be one.
  virtual bool wants_one_message() const = 0;

  // `message` lives until OnReadDone.
  virtual void Read(grpc::ByteBuffer* message) = 0;
  // `message` lives until OnWriteDone.
  virtual void Write(const grpc::ByteBuffer* message) = 0;
  // The last message of a call that has ended well. It lives until OnDone.
  virtual void WriteLast(const grpc::ByteBuffer* message) = 0;
  // Ends a call without another message, which is an error or the end of a call that had one.
  virtual void End(const absl::Status& status) = 0;
  // Has OnCancel come, not from within this function, and reads and writes that are under way fail. Any thread.
  virtual void Cancel() = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_CALL_STREAM_H_
