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

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "proto/replication.grpc.pb.h"
#include "proto/replication.pb.h"

namespace tessera {

// Runs two threads from construction to destruction.
class HostLink {
 public:
  struct Options {
    // host:port.
    std::string coordinator;
    // Where it is now, in place of the above; empty: it stays there. Any thread; "": not known.
    std::function<std::string()> find_coordinator;
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
  void Read();
  // One connection, until it ends, with `status`: the coordinator's refusal, or "".
  std::string Converse(v1::StandbyControl::Stub* stub, absl::Status* status);
  void Write();
  void End(absl::Status status);
  // False: it is of an earlier term.
  bool Heed(const v1::HostOrder& order);
  absl::Duration patience() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A connection to a machine that is gone may stand for long.
  void LookElsewhere();

  Options options_;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool heard_once_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_heard_ ABSL_GUARDED_BY(mutex_);
  v1::CoordinatorWord word_ ABSL_GUARDED_BY(mutex_);
  std::string address_ ABSL_GUARDED_BY(mutex_);  // of the coordinator
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  grpc::ClientReaderWriter<v1::HostMessage, v1::HostOrder>* stream_ ABSL_GUARDED_BY(mutex_) =
      nullptr;
  Wakeup pause_;  // of the thread that reads
  Wakeup write_;  // there is something to say
  std::thread reader_;
  std::thread writer_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_HOST_LINK_H_
