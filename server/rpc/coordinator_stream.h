// A server's side of its standing connections to the coordinator: one stream after another, each to wherever the
// coordinator is by then.
//
//   Open, Read ..., Finish   one thread's, again and again
//   Write                    another one's, where a stream is open
//   Cut, Stop                anybody's
#ifndef TESSERA_SERVER_RPC_COORDINATOR_STREAM_H_
#define TESSERA_SERVER_RPC_COORDINATOR_STREAM_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/host_addresses.h"
#include "common/rpc/name_watch.h"
#include "common/rpc/status.h"

namespace tessera {

// `Service` has the method Attach, a stream of `Sent` and `Heard`.
template <typename Service, typename Sent, typename Heard>
class CoordinatorStream {
 public:
  using Stream = grpc::ClientReaderWriter<Sent, Heard>;

  using OpenChannel = std::function<std::shared_ptr<grpc::Channel>(const std::string& at)>;

  // `find`: where the coordinator is now, or why that is not known; empty: it stays at `address`.
  // `open`: the channel to it; empty: OpenControlChannel.
  CoordinatorStream(std::string address, std::function<absl::StatusOr<std::string>()> find,
                    OpenChannel open = nullptr)
      : fixed_address_(std::move(address)),
        find_(std::move(find)),
        open_(open ? std::move(open)
                   : [](const std::string& at) { return OpenControlChannel(at); }) {}

  // Begins a stream. Nothing is written to it before MayWrite.
  //   of `find`   nobody has said yet where the coordinator is
  //   kCancelled  Stop was called
  absl::Status Open() {
    const absl::StatusOr<std::string> at = Find();
    grpc::ClientContext* context = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      // Where nobody says it is most likely where it was.
      if (!at.ok() && stub_ == nullptr) return at.status();
      if (at.ok() && (*at != address_ || IsStale(SteadyNow()))) {
        stub_ = Service::NewStub(open_(*at));
        opened_ = SteadyNow();
        if (*at != address_) watch_ = std::make_unique<NameWatch>(*at);
        address_ = *at;
      }
      if (is_stopped_) return absl::CancelledError("this server is stopping");
      context_ = std::make_unique<grpc::ClientContext>();
      context = context_.get();
    }
    stream_ = stub_->Attach(context);
    absl::MutexLock lock(&mutex_);
    is_attached_ = true;
    return absl::OkStatus();
  }
  // The other thread writes from now on.
  void MayWrite() {
    absl::MutexLock lock(&mutex_);
    may_write_ = true;
  }
  // The stream that is open, to write to before MayWrite, or to read from.
  Stream& stream() { return *stream_; }
  // Waits for a write that is under way, and for the stream's end. Its status.
  absl::Status Finish() {
    {
      absl::MutexLock lock(&mutex_);
      may_write_ = false;
      const auto is_idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !is_writing_; };
      mutex_.Await(absl::Condition(&is_idle));
    }
    const absl::Status status = FromGrpc(stream_->Finish());
    stream_ = nullptr;
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
    is_attached_ = false;
    return status;
  }

  // Has `write` do so, if a stream is open. It goes on to be open until that returns.
  template <typename Writer>
  void Write(const Writer& write) {
    {
      absl::MutexLock lock(&mutex_);
      if (!may_write_) return;
      is_writing_ = true;
    }
    write(stream_.get());
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
  }

  // Ends the stream that is open.
  void Cut() {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  // Ends the stream that is open, and there is to be no other one.
  void Stop() {
    absl::MutexLock lock(&mutex_);
    is_stopped_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  // Ends it if the coordinator is elsewhere by now: a connection to a machine that is gone may stand for long.
  void LookElsewhere() {
    absl::StatusOr<std::string> at = absl::UnavailableError("it stays where it is");
    if (find_) at = find_();
    absl::MutexLock lock(&mutex_);
    if (context_ == nullptr) return;
    const bool has_moved = at.ok() && *at != address_;
    const bool has_left = is_attached_ && watch_->HasLeft(context_->peer(), SteadyNow());
    if (has_moved || has_left) context_->TryCancel();
  }
  // Where the coordinator was looked for last, host:port; "": it is not known.
  std::string address() const {
    absl::MutexLock lock(&mutex_);
    return address_;
  }

 private:
  // A name that could not be found is not asked for again by a channel before long, a minute or two in the end.
  bool IsStale(absl::Time now) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return HasName(address_) && now - opened_ >= absl::Milliseconds(kResolveMsMin);
  }
  absl::StatusOr<std::string> Find() const {
    if (find_) return find_();
    return fixed_address_;
  }

  const std::string fixed_address_;
  const std::function<absl::StatusOr<std::string>()> find_;
  const OpenChannel open_;
  // The reading thread's; the other one uses the stream while is_writing_.
  std::unique_ptr<typename Service::Stub> stub_;
  std::unique_ptr<Stream> stream_;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  absl::Time opened_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<NameWatch> watch_ ABSL_GUARDED_BY(mutex_);  // of address_
  bool is_attached_ ABSL_GUARDED_BY(mutex_) = false;          // context_ is a call's
  std::unique_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  bool may_write_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_COORDINATOR_STREAM_H_
