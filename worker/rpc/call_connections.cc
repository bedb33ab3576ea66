#include "worker/rpc/call_connections.h"

#include "common/base/steady_clock.h"
#include "common/rpc/status.h"
#include "common/rpc/striping/striping.h"

namespace tessera {
namespace {

const std::string& StripeMethod() {
  static const auto* const name = new std::string("/tessera.v1.ParameterServer/Stripe");
  return *name;
}

}  // namespace

// A connection behind the first one: what comes of its reads and writes is the call's.
class CallConnections::Other final : public Reactor {
 public:
  Other(CallConnections* call, size_t number, grpc::GenericStub* stub)
      : call_(call), number_(number), stub_(stub) {}

  void Prepare(const std::string& name) {
    context_.AddMetadata(kStripeKey, name);
    stub_->PrepareBidiStreamingCall(&context_, StripeMethod(), {}, this);
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override { call_->OnReadDone(ok); }
  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnDone(const grpc::Status& status) override {
    call_->OnConnectionDone(number_, FromGrpc(status));
  }

 private:
  CallConnections* const call_;
  const size_t number_;
  grpc::GenericStub* const stub_;
  grpc::ClientContext context_;
};

CallConnections::CallConnections() = default;

CallConnections::~CallConnections() = default;

void CallConnections::StripeOver(const std::vector<grpc::GenericStub*>& stubs) {
  for (grpc::GenericStub* const stub : stubs) {
    others_.push_back(std::make_unique<Other>(this, others_.size() + 1, stub));
  }
  is_striped_ = !others_.empty();
  absl::MutexLock lock(&mutex_);
  open_ = 1 + others_.size();
}

void CallConnections::Prepare(grpc::GenericStub* stub, const std::string& method, bool is_held) {
  if (is_striped()) {
    StripeName name;
    name.call = NewStripedCall();
    name.count = static_cast<int>(1 + others_.size());
    context_->AddMetadata(kStripeKey, ToMetadata(name));
    for (const auto& other : others_) {
      ++name.number;
      other->Prepare(ToMetadata(name));
    }
  }
  // gRPC's generic calls leave it to the server whether a method streams at all.
  stub->PrepareBidiStreamingCall(context_.get(), method, {}, this);
  if (!is_held && !is_striped()) return;
  // Without a hold gRPC may end a connection on which nothing is under way, while the next message is another one's.
  is_held_.store(true, std::memory_order_relaxed);
  AddHold();
  for (const auto& other : others_) other->AddHold();
}

void CallConnections::StartAll() {
  StartCall();
  for (const auto& other : others_) other->StartCall();
}

CallConnections::Reactor& CallConnections::InTurn() {
  // The server counts the same messages (server/rpc/striped_calls.cc).
  const size_t number = turn_++ % (1 + others_.size());
  if (number == 0) return *this;
  return *others_[number - 1];
}

// No connection is read before its turn, so that no message is there too early: gRPC takes in a window by itself.
void CallConnections::ReadInTurn(grpc::ByteBuffer* message) { InTurn().StartRead(message); }

void CallConnections::WriteInTurn(const grpc::ByteBuffer* message) { InTurn().StartWrite(message); }

void CallConnections::WriteLastInTurn(const grpc::ByteBuffer* message) {
  Reactor& last = InTurn();
  // The server sees the end of the messages on the connection whose turn would be next.
  if (&last != this) StartWritesDone();
  for (const auto& other : others_) {
    if (other.get() != &last) other->StartWritesDone();
  }
  last.StartWriteLast(message, grpc::WriteOptions());
}

void CallConnections::EndOtherWrites() {
  for (const auto& other : others_) other->StartWritesDone();
}

void CallConnections::LeaveOthers() {
  for (const auto& other : others_) other->Cancel();
}

void CallConnections::DropHold() {
  if (!is_held_.exchange(false, std::memory_order_acq_rel)) return;
  // The call may end with the last of these.
  for (const auto& other : others_) other->RemoveHold();
  RemoveHold();
}

void CallConnections::CancelAll() {
  for (const auto& other : others_) other->Cancel();
  context_->TryCancel();
}

void CallConnections::LetGo() {
  // A context's end is that of gRPC's call.
  context_.reset();
  others_.clear();
}

absl::Time CallConnections::EndOthers(absl::Time now, absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  // Where values are still to come the call waits for them as for any.
  if (open_ == 0 || first_done_ == absl::InfiniteFuture() || !is_complete()) {
    return absl::InfiniteFuture();
  }
  if (now < first_done_ + time) return first_done_ + time;
  LeaveOthers();
  return absl::InfiniteFuture();
}

void CallConnections::OnDone(const grpc::Status& status) { OnConnectionDone(0, FromGrpc(status)); }

void CallConnections::OnConnectionDone(size_t number, const absl::Status& status) {
  absl::Status all;
  {
    absl::MutexLock lock(&mutex_);
    if (number == 0) {
      first_done_ = SteadyNow();
      first_status_ = status;
    } else if (other_status_.ok()) {
      other_status_ = status;
    }
    // What one connection has lost the others would wait for. Where all has come the server ends them, and they say
    // nothing any more.
    const bool is_lost = !status.ok() && (number == 0 || !is_complete());
    if (--open_ > 0) {
      if (is_lost) CancelAll();
      if (number == 0) OnFirstDone();
      return;
    }
    // A call that was cancelled for another connection's sake has that one's status.
    const bool is_first = is_complete() || other_status_.ok() ||
                          (!first_status_.ok() && !absl::IsCancelled(first_status_));
    all = is_first ? first_status_ : other_status_;
  }
  OnAllDone(all);
}

}  // namespace tessera
