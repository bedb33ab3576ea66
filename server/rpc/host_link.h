// A host's standing connection to the coordinator: what it is to lead and to follow comes here.
//
// A broken connection is made anew, to wherever the coordinator is by then. A host that has not heard one for a
// lease, or for as long as the coordinator said that another one may take, ends: its shards may have been
// taken over.
#ifndef TESSERA_SERVER_RPC_HOST_LINK_H_
#define TESSERA_SERVER_RPC_HOST_LINK_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/channel.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "common/rpc/coordinator_contact.h"
#include "proto/replication.grpc.pb.h"
#include "proto/replication.pb.h"
#include "server/rpc/coordinator_stream.h"

namespace tessera {

// Runs two threads from construction to destruction.
class HostLink {
 public:
  struct Options {
    // host:port.
    std::string coordinator;
    // Where it is now, in place of the above; empty: it stays there. Any thread.
    std::function<absl::StatusOr<std::string>()> find_coordinator;
    // Opens a channel to the coordinator at an address, on a thread of the link; empty: OpenControlChannel.
    std::function<std::shared_ptr<grpc::Channel>(const std::string& at)> open_channel;
    // `life` is drawn here.
    v1::HostHello hello;
    absl::Duration lease_timeout;
    // All roles of this host, one call at a time, on a thread of the link. Orders are repeated.
    std::function<void(const v1::HostOrder&)> on_order;
    // What is said to the coordinator. Any thread.
    std::function<v1::HostMessage()> message;
    // Called once, on a thread of the link, when it has ended by itself: kUnavailable, or the
    // coordinator's refusal.
    std::function<void(absl::Status)> on_end;
  };

  explicit HostLink(Options options);
  // Closes the connection. Nothing is called afterwards.
  ~HostLink();

  // `message` has changed: says it soon. Any thread.
  void SaySoon();
  // Where the coordinator was looked for last, and what it said of itself last.
  std::string coordinator() const;
  v1::CoordinatorWord word() const;

 private:
  using Stream = CoordinatorStream<v1::StandbyControl, v1::HostMessage, v1::HostOrder>;

  void Read();
  // One connection, until it ends. Its status.
  absl::Status Converse();
  void Write();
  void End(absl::Status status);
  // False: it is of an earlier term.
  bool Heed(const v1::HostOrder& order);
  bool Stopping() const {
    absl::MutexLock lock(&mutex_);
    return stopping_ || ended_;
  }

  Options options_;
  Stream stream_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  CoordinatorContact contact_ ABSL_GUARDED_BY(mutex_);
  Wakeup pause_;  // of the thread that reads
  Wakeup write_;  // there is something to say
  std::thread reader_;
  std::thread writer_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_HOST_LINK_H_
