// One server's part in the election of the coordinator (server/control/election.h): the thread that speaks with
// etcd.
#ifndef TESSERA_SERVER_ELECTION_SERVER_ELECTION_H_
#define TESSERA_SERVER_ELECTION_SERVER_ELECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/log_throttle.h"
#include "common/base/wakeup.h"
#include "common/etcd/etcd_client.h"
#include "server/control/election.h"

namespace tessera {

class ServerElection {
 public:
  struct Options {
    // Outlives it.
    EtcdClient* etcd = nullptr;
    // The job's (common/etcd/coordinator_key.h).
    std::string prefix;
    // Where the others reach this server.
    std::string address;
    // How long the lease is, in whole seconds; etcd may make it longer.
    absl::Duration ttl;
    // This server is the coordinator from now on; on an error it gives that up. Called on the election's
    // thread, as on_deposed.
    std::function<absl::Status(int64_t revision)> on_elected;
    // It is no longer.
    std::function<void(absl::string_view why)> on_deposed;
  };

  explicit ServerElection(Options options);
  // Gives the lease back, so that another server need not wait for its end.
  ~ServerElection();

  void Start();
  // The callbacks are not called afterwards. The lease stays.
  void Stop();

  // Until when no other server can have been elected. Any thread.
  absl::Time held_until() const;
  // This server does not want to be the coordinator any more. Any thread.
  void Resign();

 private:
  void Run();
  void Perform(Election::Step step);
  void Tell(absl::string_view step, const absl::Status& status);
  void Settle();

  const Options options_;
  const std::string key_;
  mutable absl::Mutex mutex_;
  Election election_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool resigns_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup wake_;                // something of the above has changed
  int64_t tenure_ = 0;         // the thread's; 0: not elected
  int64_t seen_revision_ = 0;  // the thread's: the store's, when the key was somebody else's
  std::string trouble_;  // the thread's: what the last call to etcd failed by; empty: it did not
  LogThrottle troubles_;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_ELECTION_SERVER_ELECTION_H_
