// Calls of the data plane that come over gRPC.
#ifndef TESSERA_SERVER_RPC_GRPC_STREAMS_H_
#define TESSERA_SERVER_RPC_GRPC_STREAMS_H_

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "common/base/check.h"
#include "common/rpc/status.h"
#include "server/rpc/call_stream.h"

namespace tessera {

// `Reactor` is one of gRPC's. Deletes itself behind OnDone.
template <typename Reactor>
class GrpcStream : public Reactor, public CallStream {
 public:
  // The call that this is the stream of. Before anything else.
  void Serve(std::shared_ptr<StreamEvents> call) { call_ = std::move(call); }

  std::string peer() const override { return context_->peer(); }
  // gRPC's own checks of certificate and token have let the caller in.
  absl::Status CheckCaller(const v1::Caller&) const override { return absl::OkStatus(); }
  bool wants_one_message() const override { return false; }
  void End(const absl::Status& status) override { Reactor::Finish(ToGrpc(status)); }
  void Cancel() override { context_->TryCancel(); }

  void OnCancel() override { call_->OnCancel(); }
  void OnDone() override {
    call_->OnDone();
    delete this;
  }

 protected:
  explicit GrpcStream(grpc::CallbackServerContext* context) : context_(context) {}
  StreamEvents& call() { return *call_; }

 private:
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<StreamEvents> call_;
};

// The caller streams, and is answered with one message.
class GrpcReadStream final : public GrpcStream<grpc::ServerReadReactor<grpc::ByteBuffer>> {
 public:
  GrpcReadStream(grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : GrpcStream(context), reply_(reply) {}

  void Read(grpc::ByteBuffer* message) override { StartRead(message); }
  // The one message is the last one.
  void Write(const grpc::ByteBuffer*) override { TESSERA_CHECK(false); }
  void WriteLast(const grpc::ByteBuffer* message) override {
    *reply_ = *message;
    Finish(grpc::Status());
  }
  void OnReadDone(bool ok) override { call().OnReadDone(ok); }

 private:
  grpc::ByteBuffer* const reply_;
};

// The caller has said all, and is answered with a stream.
class GrpcWriteStream final : public GrpcStream<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  explicit GrpcWriteStream(grpc::CallbackServerContext* context) : GrpcStream(context) {}

  // The one message has come with the call.
  void Read(grpc::ByteBuffer*) override { TESSERA_CHECK(false); }
  void Write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void WriteLast(const grpc::ByteBuffer* message) override {
    StartWriteAndFinish(message, grpc::WriteOptions(), grpc::Status());
  }
  void OnWriteDone(bool ok) override { call().OnWriteDone(ok); }
};

// A further connection of a striped call (striped_calls.h), on which messages go one way or the other.
class GrpcStripeStream final
    : public GrpcStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  explicit GrpcStripeStream(grpc::CallbackServerContext* context) : GrpcStream(context) {}

  void Read(grpc::ByteBuffer* message) override { StartRead(message); }
  void Write(const grpc::ByteBuffer* message) override { StartWrite(message); }
  void WriteLast(const grpc::ByteBuffer* message) override {
    StartWriteAndFinish(message, grpc::WriteOptions(), grpc::Status());
  }
  void OnReadDone(bool ok) override { call().OnReadDone(ok); }
  void OnWriteDone(bool ok) override { call().OnWriteDone(ok); }
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_GRPC_STREAMS_H_
