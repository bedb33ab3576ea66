// How fast replies are sent to those who ask for the status again and again: each host has so many bytes a second, and
// a reply that comes too early is sent later. Sending costs the server a core's time in proportion to bytes and calls,
// which training goes without.
#ifndef TESSERA_SERVER_RPC_REPLY_PACE_H_
#define TESSERA_SERVER_RPC_REPLY_PACE_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// Any thread.
class ReplyPace {
 public:
  // A call counts as so many bytes beside those of its reply.
  static constexpr int64_t kCallBytes = int64_t{32} << 10;

  struct Options {
    // What each host has, and what it may take at once after a pause.
    int64_t bytes_per_second = 0;
    int64_t bytes_at_once = 0;
  };
  explicit ReplyPace(Options options) : options_(options) {}

  // `host` (NumberOfHost) asks for a reply of about so many bytes at `now`. How long it waits for it, if that is no
  // longer than `patience`; otherwise it gets none, nothing is counted, and the result is infinite.
  absl::Duration Take(uint64_t host, int64_t bytes, absl::Time now, absl::Duration patience);

  // Hosts that are remembered.
  size_t hosts() const {
    absl::MutexLock lock(&mutex_);
    return paid_.size();
  }

 private:
  const Options options_;
  mutable absl::Mutex mutex_;
  // When what each host has taken is paid for. Those whose time has passed are left out now and then.
  std::map<uint64_t, absl::Time> paid_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_REPLY_PACE_H_
