// One status for all who ask, as the bytes that are sent: it is built from every member and server, under the
// coordinator's mutex, and written once. Whoever sends it sends these bytes from where they lie.
#ifndef TESSERA_SERVER_RPC_SHARED_STATUS_H_
#define TESSERA_SERVER_RPC_SHARED_STATUS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace tessera {

// The evaluations that a status has for readers that want the newest alone.
constexpr int kRecentHistory = 32;

// Which evaluations a reader wants.
enum class HistoryWanted { kAll, kRecent };

// A status as it goes over the wire.
struct StatusText {
  std::string bytes;
  // The job has ended: nothing new will come.
  bool is_last = false;
};

// Any thread.
class SharedStatus {
 public:
  // A status is shared for so many times as long as a processor took to build it, if that is more than was asked for:
  // however many ask, and however large it is, building takes a twentieth of one core.
  static constexpr int kSharedPerCost = 20;

  // `build` makes the status of this moment, on the thread that asks; `clock` is steady; `cpu_clock` is the processor
  // time of the calling thread, which does not count when the thread has to wait for a core.
  SharedStatus(std::function<v1::JobStatus()> build, std::function<absl::Time()> clock,
               std::function<absl::Duration()> cpu_clock)
      : build_(std::move(build)), clock_(std::move(clock)), cpu_clock_(std::move(cpu_clock)) {}

  // One that is younger than `age_max`, or than kSharedPerCost times what the last one cost. Whoever asks while it is
  // built waits for that.
  std::shared_ptr<const StatusText> Get(absl::Duration age_max,
                                        HistoryWanted history = HistoryWanted::kAll);

 private:
  const std::function<v1::JobStatus()> build_;
  const std::function<absl::Time()> clock_;
  const std::function<absl::Duration()> cpu_clock_;
  absl::Mutex mutex_;
  std::shared_ptr<const StatusText> last_ ABSL_GUARDED_BY(mutex_);
  // The same status with its newest evaluations alone; last_ itself where it has no more.
  std::shared_ptr<const StatusText> last_recent_ ABSL_GUARDED_BY(mutex_);
  absl::Time built_at_ ABSL_GUARDED_BY(mutex_);  // when that was begun
  absl::Duration cost_ ABSL_GUARDED_BY(mutex_);  // of the last one
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_SHARED_STATUS_H_
