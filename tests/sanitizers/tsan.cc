// What ThreadSanitizer has to be told of libraries that are not built for it. In every program under
// --config=tsan (.bazelrc).
//
//   absl::Mutex and its kin    defined here anew, in front of the library's: each calls the library's and
//                              says what happens before what. gRPC's own locks are these, so that what
//                              goes through its queues is ordered, too
//   conditions                 are read by whichever thread unlocks, under a lock that was already said to
//                              be free: not looked at
//   suppressions               the list at the end, each with its reason
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tests/sanitizers/tsan_grpc.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// The library's function of this mangled name.
template <typename Function>
Function Next(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function>(found);
}

void Acquire(const void* lock) { __tsan_acquire(const_cast<void*>(lock)); }
void Release(const void* lock) { __tsan_release(const_cast<void*>(lock)); }

// gRPC's locks are these, too, but it does not lock for all that it hands over.
void Locked(const void* lock, const void* caller) {
  Acquire(lock);
  if (tessera::IsGrpc(caller)) tessera::AfterGrpc();
}

void Unlocking(const void* lock, const void* caller) {
  if (tessera::IsGrpc(caller)) tessera::BeforeGrpc();
  Release(lock);
}

}  // namespace

// Where the function returns to.
#define TESSERA_CALLER __builtin_return_address(0)

// A method of the library's class: `symbol` is its mangled name after the namespace.
#define TESSERA_NEXT(symbol, result, ...) \
  static const auto next = Next<result (*)(__VA_ARGS__)>("_ZN4absl7debian3" symbol)
#define TESSERA_NEXT_CONST(symbol, result, ...) \
  static const auto next = Next<result (*)(__VA_ARGS__)>("_ZNK4absl7debian3" symbol)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  TESSERA_NEXT("5Mutex4LockEv", void, Mutex*);
  next(this);
  Locked(this, TESSERA_CALLER);
}

void Mutex::Unlock() {
  TESSERA_NEXT("5Mutex6UnlockEv", void, Mutex*);
  Unlocking(this, TESSERA_CALLER);
  next(this);
}

bool Mutex::TryLock() {
  TESSERA_NEXT("5Mutex7TryLockEv", bool, Mutex*);
  const bool locked = next(this);
  if (locked) Locked(this, TESSERA_CALLER);
  return locked;
}

void Mutex::ReaderLock() {
  TESSERA_NEXT("5Mutex10ReaderLockEv", void, Mutex*);
  next(this);
  Acquire(this);
}

void Mutex::ReaderUnlock() {
  TESSERA_NEXT("5Mutex12ReaderUnlockEv", void, Mutex*);
  Release(this);
  next(this);
}

void Mutex::Await(const Condition& condition) {
  TESSERA_NEXT("5Mutex5AwaitERKNS0_9ConditionE", void, Mutex*, const Condition&);
  Release(this);
  next(this, condition);
  Acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  TESSERA_NEXT("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE", bool, Mutex*,
               const Condition&, Duration);
  Release(this);
  const bool holds = next(this, condition, timeout);
  Acquire(this);
  return holds;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  TESSERA_NEXT("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE", bool, Mutex*,
               const Condition&, Time);
  Release(this);
  const bool holds = next(this, condition, deadline);
  Acquire(this);
  return holds;
}

void Mutex::LockWhen(const Condition& condition) {
  TESSERA_NEXT("5Mutex8LockWhenERKNS0_9ConditionE", void, Mutex*, const Condition&);
  next(this, condition);
  Acquire(this);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  TESSERA_NEXT("5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE", bool, Mutex*,
               const Condition&, Duration);
  const bool holds = next(this, condition, timeout);
  Acquire(this);
  return holds;
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  TESSERA_NEXT("5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE", bool, Mutex*,
               const Condition&, Time);
  const bool holds = next(this, condition, deadline);
  Acquire(this);
  return holds;
}

bool Condition::Eval() const {
  TESSERA_NEXT_CONST("9Condition4EvalEv", bool, const Condition*);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  const bool holds = next(this);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  return holds;
}

void CondVar::Wait(Mutex* mutex) {
  TESSERA_NEXT("7CondVar4WaitEPNS0_5MutexE", void, CondVar*, Mutex*);
  Unlocking(mutex, TESSERA_CALLER);
  next(this, mutex);
  Locked(mutex, TESSERA_CALLER);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  TESSERA_NEXT("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE", bool, CondVar*, Mutex*,
               Duration);
  Unlocking(mutex, TESSERA_CALLER);
  const bool timed_out = next(this, mutex, timeout);
  Locked(mutex, TESSERA_CALLER);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  TESSERA_NEXT("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE", bool, CondVar*, Mutex*, Time);
  Unlocking(mutex, TESSERA_CALLER);
  const bool timed_out = next(this, mutex, deadline);
  Locked(mutex, TESSERA_CALLER);
  return timed_out;
}

void Notification::Notify() {
  TESSERA_NEXT("12Notification6NotifyEv", void, Notification*);
  Release(this);
  // HasBeenNotified is in the header, and looks at the flag behind the mutex.
  Release(reinterpret_cast<const char*>(this) + sizeof(Mutex));
  next(this);
}

void Notification::WaitForNotification() const {
  TESSERA_NEXT_CONST("12Notification19WaitForNotificationEv", void, const Notification*);
  next(this);
  Acquire(this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  TESSERA_NEXT_CONST("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", bool,
                     const Notification*, Duration);
  const bool notified = next(this, timeout);
  if (notified) Acquire(this);
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  TESSERA_NEXT_CONST("12Notification31WaitForNotificationWithDeadlineENS0_4TimeE", bool,
                     const Notification*, Time);
  const bool notified = next(this, deadline);
  if (notified) Acquire(this);
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

// absl::Status::UnrefNonInlined, which is private: counts references, and the last one deletes.
extern "C" void UnrefStatus(uintptr_t rep) __asm__("_ZN4absl7debian36Status15UnrefNonInlinedEm");
extern "C" void UnrefStatus(uintptr_t rep) {
  static const auto next = Next<void (*)(uintptr_t)>("_ZN4absl7debian36Status15UnrefNonInlinedEm");
  Release(reinterpret_cast<const void*>(rep));
  Acquire(reinterpret_cast<const void*>(rep));
  // What is called from the library is not looked at: this call may not become its caller's.
  next(rep);
  __asm__ volatile("");
}

extern "C" const char* __tsan_default_suppressions();
const char* __tsan_default_suppressions() {
  // gRPC hands memory of its own from thread to thread by queues without locks, which are not seen, and
  // frees it. Calls of these libraries into the C library are not looked at; ours, from the callbacks
  // that they run, are.
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_cord.so\n"
         // Counts its references without locks, and frees those locks.
         "called_from_lib:libcrypto.so\n"
         "called_from_lib:libssl.so\n"
         // Keeps what it prepared for all threads, and has threads of its own for the arithmetic.
         "called_from_lib:libdnnl.so\n"
         "called_from_lib:libgomp.so\n"
         // The order of mutexes, which has a lock and memory of its own.
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_malloc_internal.so\n";
}

extern "C" const char* __tsan_default_options();
const char* __tsan_default_options() {
  // gRPC joins its threads when it likes, which may be never.
  return "halt_on_error=1:second_deadlock_stack=1:report_thread_leaks=0";
}
