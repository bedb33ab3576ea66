// What AddressSanitizer and ThreadSanitizer must be told where one thread goes from stack to stack. Without them
// nothing is done.
//
//   from.LeaveFor(to)    just before the jump
//   to.Arrive(&from)     just behind it, on the other stack
#ifndef TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_
#define TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_

#include <cstddef>

#include "absl/base/attributes.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define TESSERA_ASAN_STACKS 1
#elif __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define TESSERA_TSAN_STACKS 1
#endif
#endif

namespace tessera {

// A stack, while it is not the one that runs. All inline: a function must not return on another stack than the
// one that it was called on.
class SanitizedStack {
 public:
  // Tells that the fiber will begin in these bytes.
  void Begin(const void* bottom, size_t bytes) {
    bottom_ = bottom;
    bytes_ = bytes;
#ifdef TESSERA_TSAN_STACKS
    thread_ = __tsan_create_fiber(0);
#endif
  }
  // Tells that this stack is the one that runs.
  void BeginHere() {
#ifdef TESSERA_TSAN_STACKS
    thread_ = __tsan_get_current_fiber();
#endif
  }
  ABSL_ATTRIBUTE_ALWAYS_INLINE void LeaveFor(const SanitizedStack& to) {
#if defined(TESSERA_ASAN_STACKS)
    __sanitizer_start_switch_fiber(&fake_, to.bottom_, to.bytes_);
#elif defined(TESSERA_TSAN_STACKS)
    __tsan_switch_to_fiber(to.thread_, 0);
#endif
  }
  // Leaves this stack, to which nobody comes back.
  ABSL_ATTRIBUTE_ALWAYS_INLINE void LeaveForGood(const SanitizedStack& to) {
#if defined(TESSERA_ASAN_STACKS)
    __sanitizer_start_switch_fiber(nullptr, to.bottom_, to.bytes_);
#else
    LeaveFor(to);
#endif
  }
  // `from`, if not nullptr, learns where it lies.
  ABSL_ATTRIBUTE_ALWAYS_INLINE void Arrive(SanitizedStack* from) {
#ifdef TESSERA_ASAN_STACKS
    __sanitizer_finish_switch_fiber(fake_, from == nullptr ? nullptr : &from->bottom_,
                                    from == nullptr ? nullptr : &from->bytes_);
#endif
  }
  // Tells that nothing runs on the stack any more.
  void End() {
#ifdef TESSERA_TSAN_STACKS
    if (thread_ != nullptr) __tsan_destroy_fiber(thread_);
#endif
    thread_ = nullptr;
  }

 private:
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* fake_ = nullptr;    // AddressSanitizer's
  void* thread_ = nullptr;  // ThreadSanitizer's
};

}  // namespace tessera

#undef TESSERA_ASAN_STACKS
#undef TESSERA_TSAN_STACKS

#endif  // TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_
