#include "deploy/simulate/sanitized_stack.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#endif
#if __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#endif

namespace tessera {

#if __has_feature(address_sanitizer)

void SanitizedStack::Begin(const void* bottom, size_t bytes) {
  bottom_ = bottom;
  bytes_ = bytes;
}
void SanitizedStack::BeginHere() {}
void SanitizedStack::LeaveFor(const SanitizedStack& to) {
  __sanitizer_start_switch_fiber(&fake_, to.bottom_, to.bytes_);
}
void SanitizedStack::LeaveForGood(const SanitizedStack& to) {
  __sanitizer_start_switch_fiber(nullptr, to.bottom_, to.bytes_);
}
void SanitizedStack::Arrive(SanitizedStack* from) {
  __sanitizer_finish_switch_fiber(fake_, from == nullptr ? nullptr : &from->bottom_,
                                  from == nullptr ? nullptr : &from->bytes_);
}
void SanitizedStack::End() {}

#elif __has_feature(thread_sanitizer)

void SanitizedStack::Begin(const void*, size_t) { thread_ = __tsan_create_fiber(0); }
void SanitizedStack::BeginHere() { thread_ = __tsan_get_current_fiber(); }
void SanitizedStack::LeaveFor(const SanitizedStack& to) { __tsan_switch_to_fiber(to.thread_, 0); }
void SanitizedStack::LeaveForGood(const SanitizedStack& to) { LeaveFor(to); }
void SanitizedStack::Arrive(SanitizedStack*) {}
void SanitizedStack::End() {
  if (thread_ != nullptr) __tsan_destroy_fiber(thread_);
  thread_ = nullptr;
}

#else

void SanitizedStack::Begin(const void*, size_t) {}
void SanitizedStack::BeginHere() {}
void SanitizedStack::LeaveFor(const SanitizedStack&) {}
void SanitizedStack::LeaveForGood(const SanitizedStack&) {}
void SanitizedStack::Arrive(SanitizedStack*) {}
void SanitizedStack::End() {}

#endif

}  // namespace tessera
