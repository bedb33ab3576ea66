// What a server has to say to the coordinator, from whichever of its threads, until it is written to the connection.
#ifndef TESSERA_SERVER_RPC_ANSWER_QUEUE_H_
#define TESSERA_SERVER_RPC_ANSWER_QUEUE_H_

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "proto/coordinator.pb.h"

namespace tessera {

// Any thread may push; one thread waits and pops.
class AnswerQueue {
 public:
  // A connection stands. What was queued for an earlier one is dropped; `first` is said before anything else.
  void Open(v1::ShardMessage first) {
    absl::MutexLock lock(&mutex_);
    messages_.clear();
    messages_.push_back(std::move(first));
    is_open_ = true;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    is_open_ = false;
  }
  // Queues a message. Without a connection it is dropped: a server repeats what matters when it connects anew.
  void Push(v1::ShardMessage message) {
    {
      absl::MutexLock lock(&mutex_);
      if (is_open_) messages_.push_back(std::move(message));
    }
    Wake();
  }

  // Returns once Wake or Push was called, or at `time` of SteadyNow.
  void WaitUntil(absl::Time time) { wakeup_.WaitUntil(time); }
  void Wake() { wakeup_.Notify(); }
  // Takes the first message; false: there is none. `has_more`: there are others behind it.
  bool Pop(v1::ShardMessage* message, bool* has_more) {
    absl::MutexLock lock(&mutex_);
    if (messages_.empty()) return false;
    *message = std::move(messages_.front());
    messages_.pop_front();
    *has_more = !messages_.empty();
    return true;
  }

 private:
  Wakeup wakeup_;
  absl::Mutex mutex_;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<v1::ShardMessage> messages_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_ANSWER_QUEUE_H_
