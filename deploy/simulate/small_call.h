// A function to be called once, later, held without an allocation.
#ifndef TESSERA_DEPLOY_SIMULATE_SMALL_CALL_H_
#define TESSERA_DEPLOY_SIMULATE_SMALL_CALL_H_

#include <cstddef>
#include <new>
#include <type_traits>

namespace tessera {

// Holds a lambda of up to three words that are plain data: pointers and numbers. Whatever is larger
// or owns memory belongs to an object that the lambda points to.
class SmallCall {
 public:
  static constexpr size_t kBytes = 3 * sizeof(void*);

  SmallCall() = default;
  template <typename F, typename = std::enable_if_t<!std::is_same_v<F, SmallCall>>>
  SmallCall(F call) {  // NOLINT: a lambda is a call.
    static_assert(sizeof(F) <= kBytes && alignof(F) <= alignof(void*), "too large");
    static_assert(std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>,
                  "owns something");
    new (&data_) F(call);
    run_ = [](void* data) { (*static_cast<F*>(data))(); };
  }

  void operator()() { run_(&data_); }
  explicit operator bool() const { return run_ != nullptr; }

 private:
  void (*run_)(void* data) = nullptr;
  alignas(void*) unsigned char data_[kBytes];
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_SMALL_CALL_H_
