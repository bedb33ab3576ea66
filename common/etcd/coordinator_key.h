// Where in etcd a job's coordinator says where it is (server/election/etcd_store.h has the rest).
#ifndef TESSERA_COMMON_ETCD_COORDINATOR_KEY_H_
#define TESSERA_COMMON_ETCD_COORDINATOR_KEY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/etcd/etcd_client.h"
#include "proto/status.grpc.pb.h"

namespace tessera {

// The text that all keys of the job begin with.
std::string EtcdPrefix(const std::string& job_digest);

// The address in the value of the coordinator's key. Whoever can write to etcd may have written anything.
//   kUnavailable  it is no host:port, with the value
absl::StatusOr<std::string> CoordinatorAddressIn(absl::string_view key, absl::string_view value);

// Finds where the job's coordinator is. Any thread.
class CoordinatorFinder {
 public:
  // `etcd` outlives it. `servers`: those of the job that are known, host:port.
  CoordinatorFinder(EtcdClient* etcd, const std::string& job_digest,
                    std::vector<std::string> servers);

  // The coordinator's host:port. Asks etcd, and where that does not answer here the job's servers, as it may
  // answer there. Not more often than five times a second, and for two seconds at most: whoever comes earlier, or
  // meanwhile, gets the last answer. May be wrong by the time it is used: terms tell (CoordinatorWord).
  //   kUnavailable  nobody is elected, or nobody says so; with what etcd said
  absl::StatusOr<std::string> Find();

 private:
  absl::StatusOr<std::string> Look();
  std::string AskServers();

  EtcdClient* const etcd_;
  const std::string key_;
  absl::Mutex mutex_;
  absl::Time asked_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool is_looking_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<std::string> found_ ABSL_GUARDED_BY(mutex_);
  // Used by whoever looks: addresses, and connections once one was needed. The next look begins with `next_`.
  std::vector<std::pair<std::string, std::unique_ptr<v1::Status::Stub>>> servers_;
  size_t next_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_ETCD_COORDINATOR_KEY_H_
