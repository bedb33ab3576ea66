#include "common/base/process_limits.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// More than this is not tried: starting the threads takes time, and limits that matter are met well before.
constexpr int64_t kChildrenThreadsTried = 1000;
// A stack has the thread-local data of all libraries in it: the smallest one that has room for them is taken.
constexpr size_t kSmallStackBytes = size_t{64} << 10;
constexpr size_t kSmallStackBytesMax = size_t{4} << 20;

// What a waiting thread does: nothing, until it is told to end.
void* AwaitEnd(void* ends) {
  while (sem_wait(static_cast<sem_t*>(ends)) != 0) {
  }
  return nullptr;
}

// Threads that wait until the object is destroyed.
class WaitingThreads {
 public:
  WaitingThreads() { sem_init(&ends_, /*pshared=*/0, 0); }
  ~WaitingThreads() {
    for (size_t i = 0; i < threads_.size(); ++i) sem_post(&ends_);
    for (const pthread_t each : threads_) pthread_join(each, nullptr);
    sem_destroy(&ends_);
  }

  // Starts as many of `wanted` more threads as there can be, and returns how many. Stacks are of `stack_bytes`, or more
  // where that is too little; 0: of the usual size.
  int64_t Add(int64_t wanted, size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack_bytes > 0) pthread_attr_setstacksize(&attributes, stack_bytes);
    int64_t had = 0;
    pthread_t thread;
    while (had < wanted) {
      // A stack that is too small for the libraries' thread-local data is EINVAL.
      const int error = pthread_create(&thread, &attributes, AwaitEnd, &ends_);
      if (error == 0) {
        threads_.push_back(thread);
        ++had;
      } else if (error == EINVAL && stack_bytes > 0 && stack_bytes < kSmallStackBytesMax) {
        stack_bytes *= 2;
        pthread_attr_setstacksize(&attributes, stack_bytes);
      } else {
        break;
      }
    }
    pthread_attr_destroy(&attributes);
    return had;
  }

 private:
  sem_t ends_;
  std::vector<pthread_t> threads_;
};

// Whether address space is what the stacks of so many threads lack.
bool LacksAddresses(int threads) {
  pthread_attr_t attributes;
  size_t stack = 0;
  pthread_attr_init(&attributes);
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_destroy(&attributes);
  const size_t bytes = static_cast<size_t>(threads) * stack;
  void* const room =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return true;
  munmap(room, bytes);
  return false;
}

// The threads are started for a moment rather than computed: limits of the user, of control groups and of address
// space all count, and others may use them up.
absl::Status CheckThreads(int own, int64_t of_children) {
  WaitingThreads threads;
  const int64_t had = threads.Add(own, 0);
  const bool lacks_addresses = had < own && LacksAddresses(own);
  // Only the threads' number is tried for children, as their stacks lie in memory of their own.
  const int64_t tried = std::min(of_children, kChildrenThreadsTried);
  const int64_t all = had < own ? had : had + threads.Add(tried, kSmallStackBytes);
  if (all == own + tried) return absl::OkStatus();
  const char* const advice =
      lacks_addresses
          ? "raise the limit of address space (ulimit -v), or lower that of stacks (ulimit -s)"
          : "raise the limit of processes (ulimit -u, pids.max of the cgroup)";
  return absl::InvalidArgumentError(absl::StrCat("threads: the system gives ", all, " more, want ",
                                                 own + of_children, "; ", advice));
}

// Raises the soft limit of open files as far as the hard one goes, and says what is missing then.
absl::Status CheckFiles(int wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur >= static_cast<rlim_t>(wanted)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("open files: the limit is ", limit.rlim_cur,
                                                 ", want ", wanted,
                                                 " or more; raise it (ulimit -n)"));
}

}  // namespace

absl::Status CheckProcessLimits(const ProcessNeeds& needs) {
  absl::Status status = CheckFiles(needs.files);
  if (status.ok()) status = CheckThreads(needs.threads, needs.children_threads);
  return status;
}

void OutliveFileSizeLimit() { signal(SIGXFSZ, SIG_IGN); }

}  // namespace tessera
