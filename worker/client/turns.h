// Two threads that take turns: the worker's, which runs the train loop, and the caller's, which computes minibatches.
//
//   worker's thread   Ask(kMinibatch) ------ waits ------> goes on with what the caller has answered
//   caller's thread   Await: kMinibatch, computes, Answer, Await the next
//
// At most one of them is at work in the job. What a question and its answer carry beside their kind lies with whoever
// owns both threads, and is written under Answer's lock or before Ask.
#ifndef TESSERA_WORKER_CLIENT_TURNS_H_
#define TESSERA_WORKER_CLIENT_TURNS_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"

namespace tessera {

// What the worker's thread wants of the caller.
enum class Want {
  kNothing,    // the worker's thread is at work
  kValues,     // memory for values, into which they are pulled
  kMinibatch,  // one minibatch
  kExchange,   // what was learned, and memory for the values that come
  kScores,     // an evaluation of the values
  kState,      // what a checkpoint is to keep of the caller
  kEnd,        // nothing more: the worker's thread is over
};

class Turns {
 public:
  // The worker's thread.

  // Waits until the caller has answered. What Cancel was given, where it was called before or meanwhile.
  absl::Status Ask(Want want);
  // From now on Ask waits again.
  void BeginAgain();
  // The thread is over, and has come to `status`.
  void End(const absl::Status& status);
  // Whom the caller waits for while it is not its turn; "" : the servers and the other workers.
  void SetWaitingFor(absl::string_view whom);

  // Any thread: Ask returns `why`, and so does every later one until BeginAgain. After End it does nothing.
  void Cancel(const absl::Status& why);

  // The caller's thread.

  // Answers `want`, by what `answer` writes. Where the question was withdrawn meanwhile nothing is written, and Await
  // has the next.
  //   kFailedPrecondition  the last that Await returned was another
  absl::Status Answer(Want want, absl::FunctionRef<void()> answer);
  // Waits until the worker's thread wants something, and returns that.
  //   kDeadlineExceeded  it did not within `timeout`; the message says for whom it waits
  absl::Status Await(absl::Duration timeout, Want* want);
  // The last that Await returned; kNothing where Answer, or a timeout, came after it.
  Want shown() const;
  // After kEnd: what the worker's thread came to.
  absl::Status end() const;

 private:
  // The next question, if one stands.
  bool IsAsked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Wakeup asked_;
  mutable absl::Mutex mutex_;
  Want want_ ABSL_GUARDED_BY(mutex_) = Want::kNothing;
  uint64_t question_ ABSL_GUARDED_BY(mutex_) = 0;  // the number of the last
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;
  Want shown_ ABSL_GUARDED_BY(mutex_) = Want::kNothing;
  uint64_t shown_question_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  std::string waiting_for_ ABSL_GUARDED_BY(mutex_);
};

// The function of tessera_client.h that answers it.
absl::string_view FunctionFor(Want want);

}  // namespace tessera

#endif  // TESSERA_WORKER_CLIENT_TURNS_H_
