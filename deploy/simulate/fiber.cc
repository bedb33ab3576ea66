// The checked longjmp takes a jump to another stack for a bug. It must go before any header.
#undef _FORTIFY_SOURCE

#include "deploy/simulate/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

Fiber* running = nullptr;

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fiber>> Fiber::Create(std::function<void()> body,
                                                     size_t stack_bytes) {
  const size_t page = PageBytes();
  // A page in front of the stack cannot be touched: an overflow ends the process instead of writing over memory.
  const size_t bytes = (stack_bytes + page - 1) / page * page + page;
  // MAP_NORESERVE: thousands of stacks may be mapped of which few pages are used.
  void* mapping =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED ||
      mprotect(static_cast<char*>(mapping) + page, bytes - page, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    if (mapping != MAP_FAILED) munmap(mapping, bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("fiber: a stack of ", bytes, " bytes cannot be mapped: ", strerror(error),
                     "; simulate fewer workers, or raise vm.max_map_count"));
  }
  return std::unique_ptr<Fiber>(new Fiber(std::move(body), static_cast<char*>(mapping), bytes));
}

Fiber::~Fiber() {
  // A body that has not ended has objects on its stack.
  TESSERA_CHECK(!started_ || ended_);
  ReleaseStack();
}

Fiber* Fiber::current() { return running; }

void Fiber::ReleaseStack() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  mapping_ = nullptr;
  stack_.End();
}

// The first entry goes through ucontext, which knows how to begin on another stack; all other
// switches are plain jumps, because ucontext's make a system call each.
void Fiber::Resume() {
  TESSERA_CHECK(running == nullptr && !ended_);
  running = this;
  resumers_stack_.BeginHere();
  // Sanitizers are told of each change of stacks.
  if (!started_) stack_.Begin(mapping_ + PageBytes(), mapping_bytes_ - PageBytes());
  if (_setjmp(resumer_) == 0) {
    resumers_stack_.LeaveFor(stack_);
    if (started_) _longjmp(parked_, 1);
    started_ = true;
    ucontext_t entry;
    TESSERA_CHECK(getcontext(&entry) == 0);
    entry.uc_stack.ss_sp = mapping_ + PageBytes();
    entry.uc_stack.ss_size = mapping_bytes_ - PageBytes();
    entry.uc_link = nullptr;
    makecontext(&entry, &Fiber::Enter, 0);
    setcontext(&entry);
    TESSERA_CHECK(false);
  }
  resumers_stack_.Arrive(nullptr);
  running = nullptr;
  // Here, since a fiber cannot unmap the stack that it runs on.
  if (ended_) ReleaseStack();
}

void Fiber::Enter() {
  Fiber* const self = running;
  self->stack_.Arrive(&self->resumers_stack_);
  self->body_();
  // What the body captured goes while its stack is there.
  self->body_ = nullptr;
  self->ended_ = true;
  self->stack_.LeaveForGood(self->resumers_stack_);
  _longjmp(self->resumer_, 1);
}

void Fiber::Park() {
  Fiber* const self = running;
  TESSERA_CHECK(self != nullptr);
  if (_setjmp(self->parked_) == 0) {
    self->stack_.LeaveFor(self->resumers_stack_);
    _longjmp(self->resumer_, 1);
  }
  self->stack_.Arrive(&self->resumers_stack_);
}

}  // namespace tessera
