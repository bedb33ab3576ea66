// What ThreadSanitizer has to be told of gRPC, which is not built for it and hands work from thread to
// thread by queues without locks. Functions in front of the library's, and of Abseil's mutexes where
// gRPC calls them, say
//
//   what was done before a call into gRPC  happens before  what is done after a call out of it,
//
// for all threads at once: one order, kept at one address, through which every thread that enters gRPC
// or leaves it goes. What two threads of ours do with each other and gRPC has no part in is looked at as
// ever. What is given up: a race between two callbacks that would be one only if gRPC had not run them
// one after the other.
#include "tests/sanitizers/tsan_grpc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}

namespace tessera {
namespace {

int order;  // its address stands for all that was given to gRPC

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// Where the code of each library lies whose path contains one of `names`; all libraries without.
template <size_t kMax>
struct CodeRanges {
  std::array<Range, kMax> ranges;
  size_t count = 0;
  bool of_grpc_only = false;

  static int Add(dl_phdr_info* info, size_t, void* self) {
    CodeRanges& found = *static_cast<CodeRanges*>(self);
    if (found.of_grpc_only && std::strstr(info->dlpi_name, "/libgrpc") == nullptr &&
        std::strstr(info->dlpi_name, "/libgpr.so") == nullptr) {
      return 0;
    }
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || found.count == kMax) {
        continue;
      }
      const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      found.ranges[found.count++] = {begin, begin + segment.p_memsz};
    }
    return 0;
  }

  explicit CodeRanges(bool of_grpc) : of_grpc_only(of_grpc) { dl_iterate_phdr(&Add, this); }

  bool Contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return std::any_of(ranges.begin(), ranges.begin() + count,
                       [at](const Range& range) { return at >= range.begin && at < range.end; });
  }
};

// The library's function of this name.
template <typename Function>
Function* Next(const char* name, Function*) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

// A callback that gRPC runs on a thread of its choice, in the place of the one that it was given.
struct OrderedFunctor : grpc_completion_queue_functor {
  explicit OrderedFunctor(grpc_completion_queue_functor* given)
      : grpc_completion_queue_functor(*given), given_functor(given) {
    functor_run = &Run;
  }

  static void Run(grpc_completion_queue_functor* self, int ok) {
    AfterGrpc();
    auto* const ordered = static_cast<OrderedFunctor*>(self);
    grpc_completion_queue_functor* const given = ordered->given_functor;
    delete ordered;
    given->functor_run(given, ok);
    BeforeGrpc();
  }

  grpc_completion_queue_functor* const given_functor;
};

// Tags of queues that are waited for are objects with a table of virtual functions, those of queues that
// call back begin with the function.
__attribute__((no_sanitize("thread"))) bool IsFunctor(const void* tag) {
  static const CodeRanges<256> code(/*of_grpc=*/false);
  return tag != nullptr && code.Contains(*static_cast<void* const*>(tag));
}

// What frees memory that gRPC borrowed, on a thread of its choice.
struct OrderedDestroy {
  void (*given)(void*);
  void* user_data;

  static void Run(void* self) {
    AfterGrpc();
    auto* const ordered = static_cast<OrderedDestroy*>(self);
    ordered->given(ordered->user_data);
    delete ordered;
    BeforeGrpc();
  }
};

}  // namespace

void BeforeGrpc() { __tsan_release(&order); }
void AfterGrpc() { __tsan_acquire(&order); }

bool IsGrpc(const void* code) {
  static const CodeRanges<8> grpc(/*of_grpc=*/true);
  return grpc.Contains(code);
}

}  // namespace tessera

using tessera::AfterGrpc;
using tessera::BeforeGrpc;

#define TESSERA_NEXT(name) static const auto next = tessera::Next(#name, &name)

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  TESSERA_NEXT(grpc_call_start_batch);
  tessera::OrderedFunctor* ordered = nullptr;
  if (tessera::IsFunctor(tag)) {
    ordered = new tessera::OrderedFunctor(static_cast<grpc_completion_queue_functor*>(tag));
  }
  BeforeGrpc();
  const grpc_call_error error =
      next(call, ops, nops, ordered != nullptr ? static_cast<void*>(ordered) : tag, reserved);
  if (error != GRPC_CALL_OK) delete ordered;
  return error;
}

void grpc_call_ref(grpc_call* call) {
  TESSERA_NEXT(grpc_call_ref);
  next(call);
  AfterGrpc();
}

void grpc_call_unref(grpc_call* call) {
  TESSERA_NEXT(grpc_call_unref);
  BeforeGrpc();
  next(call);
}

void* grpc_call_arena_alloc(grpc_call* call, size_t size) {
  TESSERA_NEXT(grpc_call_arena_alloc);
  void* const memory = next(call, size);
  AfterGrpc();
  return memory;
}

grpc_call_error grpc_call_cancel(grpc_call* call, void* reserved) {
  TESSERA_NEXT(grpc_call_cancel);
  BeforeGrpc();
  return next(call, reserved);
}

grpc_call_error grpc_call_cancel_with_status(grpc_call* call, grpc_status_code status,
                                             const char* description, void* reserved) {
  TESSERA_NEXT(grpc_call_cancel_with_status);
  BeforeGrpc();
  return next(call, status, description, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  TESSERA_NEXT(grpc_completion_queue_next);
  BeforeGrpc();
  const grpc_event event = next(queue, deadline, reserved);
  AfterGrpc();
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  TESSERA_NEXT(grpc_completion_queue_pluck);
  BeforeGrpc();
  const grpc_event event = next(queue, tag, deadline, reserved);
  AfterGrpc();
  return event;
}

void grpc_completion_queue_shutdown(grpc_completion_queue* queue) {
  TESSERA_NEXT(grpc_completion_queue_shutdown);
  BeforeGrpc();
  next(queue);
}

void grpc_server_start(grpc_server* server) {
  TESSERA_NEXT(grpc_server_start);
  BeforeGrpc();
  next(server);
}

void grpc_server_shutdown_and_notify(grpc_server* server, grpc_completion_queue* queue, void* tag) {
  TESSERA_NEXT(grpc_server_shutdown_and_notify);
  BeforeGrpc();
  next(server, queue, tag);
}

void grpc_server_destroy(grpc_server* server) {
  TESSERA_NEXT(grpc_server_destroy);
  BeforeGrpc();
  next(server);
  AfterGrpc();
}

// Memory goes back to gRPC and comes from it again, to another thread.
void grpc_slice_unref(grpc_slice slice) {
  TESSERA_NEXT(grpc_slice_unref);
  BeforeGrpc();
  next(slice);
}

grpc_slice grpc_slice_malloc(size_t length) {
  TESSERA_NEXT(grpc_slice_malloc);
  const grpc_slice slice = next(length);
  AfterGrpc();
  return slice;
}

grpc_slice grpc_slice_new_with_user_data(void* p, size_t length, void (*destroy)(void*),
                                         void* user_data) {
  TESSERA_NEXT(grpc_slice_new_with_user_data);
  AfterGrpc();
  return next(p, length, &tessera::OrderedDestroy::Run,
              new tessera::OrderedDestroy{destroy, user_data});
}

void grpc_byte_buffer_destroy(grpc_byte_buffer* buffer) {
  TESSERA_NEXT(grpc_byte_buffer_destroy);
  BeforeGrpc();
  next(buffer);
}

}  // extern "C"
