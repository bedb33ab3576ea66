// A client of etcd's v3 API over gRPC (https://etcd.io/docs/v3.4/learning/api/): values, transactions, leases
// and waiting for a change.
//
// A call goes to one of the cluster's members; one that cannot be reached, does not answer, or has no leader,
// makes the next call go to the next. All calls have a deadline. Errors are told as `etcd at HOST:PORT: ...`:
//   kUnavailable, kDeadlineExceeded  no answer; what was asked for may have been done or not
//   any other                        etcd has refused it
#ifndef TESSERA_COMMON_ETCD_ETCD_CLIENT_H_
#define TESSERA_COMMON_ETCD_ETCD_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

struct EtcdValue {
  std::string key;
  std::string value;
  // The store's revision when the key was made, and when it was last written.
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  // The lease that the key is bound to; 0: none.
  int64_t lease = 0;
};

struct EtcdLease {
  int64_t id = 0;
  // The lease's time in whole seconds, as etcd has granted it, which may be longer than what was asked for.
  absl::Duration ttl;
};

// What a transaction does if the key `guard` was made at `guard_revision` (0: is not there), and `unchanged`,
// where it is named, was last written at `unchanged_revision` (so): all of it, or nothing.
//
// One whose answer did not come may come to pass long after, and after those that were sent later.
struct EtcdTransaction {
  std::string guard;
  int64_t guard_revision = 0;
  std::string unchanged;
  int64_t unchanged_revision = 0;
  // Keys and values to write; bound to `lease` where that is not 0.
  std::vector<std::pair<std::string, std::string>> puts;
  int64_t lease = 0;
  std::vector<std::string> deletes;
};

struct EtcdOutcome {
  // Both conditions held, and the transaction is done.
  bool done = false;
  // The store's revision after it: that of the keys which were written.
  int64_t revision = 0;
  // Where it was not done: the keys as they are.
  std::optional<EtcdValue> guard;
  std::optional<EtcdValue> unchanged;
};

// Every method may be called from any thread.
class EtcdClient {
 public:
  struct Options {
    // host:port of each member; with "https://" in front over TLS, with the job's security files.
    std::vector<std::string> members;
    absl::Duration timeout = absl::Seconds(1);
  };
  // Connects when first used.  kInvalidArgument: a member is no host:port, or TLS has no authority
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(Options options);

  absl::StatusOr<std::optional<EtcdValue>> Get(const std::string& key);
  // All keys that begin with `prefix`, in order.
  absl::StatusOr<std::vector<EtcdValue>> List(const std::string& prefix);
  absl::StatusOr<EtcdOutcome> Commit(const EtcdTransaction& transaction);

  absl::StatusOr<EtcdLease> Grant(absl::Duration ttl);
  // Renews a lease. Returns how long it lives from now on, counted from before the call. kNotFound: it is over.
  absl::StatusOr<absl::Duration> KeepAlive(int64_t lease);
  // Ends a lease, and removes the keys that are bound to it.
  absl::Status Revoke(int64_t lease);

  // Returns OK when `key` has changed after `revision` of the store, or may have: what was then is compacted away.
  // kDeadlineExceeded at `deadline` of SteadyNow, or an error of the connection or of etcd's; Cancel ends it.
  absl::Status AwaitChange(const std::string& key, int64_t revision, absl::Time deadline);
  // Ends AwaitChange calls, under way and to come, with kCancelled.
  void Cancel();

  // The member that the next call goes to.
  std::string member() const;

 private:
  explicit EtcdClient(Options options);
  // One call to the present member, by `call(channel, context)`.
  template <typename Call>
  absl::Status With(absl::Duration timeout, Call call);

  const Options options_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  mutable absl::Mutex mutex_;
  size_t member_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_COMMON_ETCD_ETCD_CLIENT_H_
