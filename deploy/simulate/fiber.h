// Cooperative fibers: functions that can stop in the middle and go on later, all on one thread.
//
// Blocking code becomes a simulated process this way: a call that would wait parks its fiber, and
// the event that ends the wait resumes it.
#ifndef TESSERA_DEPLOY_SIMULATE_FIBER_H_
#define TESSERA_DEPLOY_SIMULATE_FIBER_H_

#include <setjmp.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "deploy/simulate/sanitized_stack.h"

namespace tessera {

// Switching costs two jumps and no system call. A stack is reserved address space: only the pages
// that were touched take memory, and a guard page below it turns an overflow into a fault.
//
// Threading: all fibers of a process live on one thread.
class Fiber {
 public:
  // The default size of a stack, enough for a train loop without its mathematics.
  static constexpr size_t kStackBytes = size_t{256} << 10;

  // `body` runs when the fiber is first resumed. `stack_bytes` is rounded up to whole pages.
  //   kResourceExhausted  no address space, or too many mappings (two for each fiber)
  static absl::StatusOr<std::unique_ptr<Fiber>> Create(std::function<void()> body,
                                                       size_t stack_bytes = kStackBytes);
  // The body must have ended or never have begun: what lies on a parked stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it parks or ends. Not from within a fiber.
  void Resume();
  // Stops the fiber that calls this until its next Resume.
  static void Park();
  // The fiber that runs; nullptr outside of all.
  static Fiber* current();

  bool started() const { return started_; }
  bool ended() const { return ended_; }

 private:
  Fiber(std::function<void()> body, char* mapping, size_t mapping_bytes)
      : body_(std::move(body)), mapping_(mapping), mapping_bytes_(mapping_bytes) {}

  static void Enter();
  void ReleaseStack();

  std::function<void()> body_;
  char* mapping_;
  const size_t mapping_bytes_;
  bool started_ = false;
  bool ended_ = false;
  jmp_buf resumer_;  // where Resume was called
  jmp_buf parked_;   // where Park was called
  SanitizedStack resumers_stack_;
  SanitizedStack stack_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_FIBER_H_
