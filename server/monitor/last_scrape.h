// The end of a process whose job has ended: it waits until whoever watches its metrics has seen how.
#ifndef TESSERA_SERVER_MONITOR_LAST_SCRAPE_H_
#define TESSERA_SERVER_MONITOR_LAST_SCRAPE_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "proto/status.pb.h"

namespace tessera {

class LastScrape {
 public:
  // Tells that a client was sent this status. Any thread.
  void OnSent(const v1::JobStatus& status);
  // Tells that somebody asks the process to end, and waits for that. True: it was waiting here, and does so no
  // longer. Any thread.
  bool OnAskedToEnd();
  // Waits, once, until a status of the job's end was sent (also before this call), for `limit` at most, and no
  // longer than until the process is asked to end.
  void Await(absl::Duration limit);

 private:
  absl::Mutex mutex_;
  bool is_asked_to_end_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_awaited_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup over_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_MONITOR_LAST_SCRAPE_H_
