// Loaded into a process (LD_PRELOAD), sets that process's clock of the day forward or back, as a person or
// a time server sets a machine's: by the seconds, an int64, in the file that SHIFTED_CLOCK names. They may
// change at any time. Steady clocks go on.
//
// A wait in the kernel until a time of day ends when the shifted clock says so, as after a real change.
//
// What is looked up once is an atomic without a guard: threads that wait for a static's guard call syscall.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace {

constexpr int64_t kSecond = 1000000000;
// How late a wait may notice that the clock was set.
constexpr int64_t kSlice = kSecond / 100;

// Two threads may both look it up, and find the same.
template <typename Function>
class Real {
 public:
  constexpr explicit Real(const char* name) : name_(name) {}

  Function* Get() {
    Function* function = function_.load();
    if (function == nullptr) {
      function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
      if (function == nullptr) abort();
      function_.store(function);
    }
    return function;
  }

 private:
  const char* const name_;
  std::atomic<Function*> function_{nullptr};
};

Real<int(clockid_t, timespec*)> real_clock_gettime("clock_gettime");
Real<long(long, ...)> real_syscall("syscall");
std::atomic<volatile const int64_t*> shift{nullptr};

int64_t Shift() {
  volatile const int64_t* seconds = shift.load();
  if (seconds != nullptr) return *seconds;
  const char* const path = getenv("SHIFTED_CLOCK");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY);
  if (file < 0) abort();
  void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) abort();
  close(file);
  seconds = static_cast<const int64_t*>(page);
  shift.store(seconds);
  return *seconds;
}

bool IsDay(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int64_t Nanoseconds(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

timespec Timespec(int64_t nanoseconds) {
  return {static_cast<time_t>(nanoseconds / kSecond), static_cast<long>(nanoseconds % kSecond)};
}

int64_t Now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return Nanoseconds(t);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* t) {
  const int result = real_clock_gettime.Get()(clock, t);
  if (result == 0 && IsDay(clock)) t->tv_sec += Shift();
  return result;
}

int gettimeofday(timeval* t, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *t = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* t) noexcept {
  const time_t now = static_cast<time_t>(Now(CLOCK_REALTIME) / kSecond);
  if (t != nullptr) *t = now;
  return now;
}

long syscall(long number, ...) noexcept {
  auto* const real = real_syscall.Get();
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const auto* const until = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & FUTEX_CLOCK_REALTIME) == 0 || until == nullptr) {
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  while (true) {
    const int64_t left = Nanoseconds(*until) - Now(CLOCK_REALTIME);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const timespec slice = Timespec(Now(CLOCK_MONOTONIC) + std::min(left, kSlice));
    const long result =
        real(number, a[0], a[1] & ~long{FUTEX_CLOCK_REALTIME}, a[2], &slice, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

}  // extern "C"
