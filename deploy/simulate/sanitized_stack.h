// What AddressSanitizer and ThreadSanitizer must be told where one thread goes from stack to stack. Without them
// nothing is done.
//
//   from.LeaveFor(to)    just before the jump
//   to.Arrive(&from)     just behind it, on the other stack
#ifndef TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_
#define TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_

#include <cstddef>

namespace tessera {

// A stack, while it is not the one that runs.
class SanitizedStack {
 public:
  // It will begin in these bytes.
  void Begin(const void* bottom, size_t bytes);
  // It is the one that runs.
  void BeginHere();
  void LeaveFor(const SanitizedStack& to);
  // Nobody comes back.
  void LeaveForGood(const SanitizedStack& to);
  // `from`, if not nullptr, learns where it lies.
  void Arrive(SanitizedStack* from);
  // Nothing runs on it any more.
  void End();

 private:
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* fake_ = nullptr;    // AddressSanitizer's
  void* thread_ = nullptr;  // ThreadSanitizer's
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SANITIZED_STACK_H_
