// One status for all who watch: it is built from every member and server, under the coordinator's mutex.
#ifndef TESSERA_SERVER_RPC_SHARED_STATUS_H_
#define TESSERA_SERVER_RPC_SHARED_STATUS_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace tessera {

// Any thread.
class SharedStatus {
 public:
  // `build` makes the status of this moment, on the thread that asks; `clock` is steady.
  SharedStatus(std::function<v1::JobStatus()> build, absl::Duration age_max,
               std::function<absl::Time()> clock)
      : build_(std::move(build)), age_max_(age_max), clock_(std::move(clock)) {}

  // One that is younger than `age_max`. Whoever asks while it is built waits for that.
  std::shared_ptr<const v1::JobStatus> Get() {
    absl::MutexLock lock(&mutex_);
    const absl::Time now = clock_();
    if (last_ == nullptr || now - built_at_ >= age_max_) {
      last_ = std::make_shared<const v1::JobStatus>(build_());
      built_at_ = now;
    }
    return last_;
  }

 private:
  const std::function<v1::JobStatus()> build_;
  const absl::Duration age_max_;
  const std::function<absl::Time()> clock_;
  absl::Mutex mutex_;
  std::shared_ptr<const v1::JobStatus> last_ ABSL_GUARDED_BY(mutex_);
  absl::Time built_at_ ABSL_GUARDED_BY(mutex_);  // when that was begun
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_SHARED_STATUS_H_
