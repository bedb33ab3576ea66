// Gives gRPC 1.51's callbacks as many threads as CALLBACK_THREADS says, by default one, where it would take half the
// cores' number and at least two: preload it (LD_PRELOAD), for measurements only. It takes the place of two private
// functions of gRPC's; unlike gRPC's own, its threads never pause.
#include <cstdlib>
#include <thread>

#include <grpc/grpc.h>
#include <grpcpp/completion_queue.h>

extern "C" {
grpc::CompletionQueue* CallbackQueue() asm("_ZN4grpc15CompletionQueue21CallbackAlternativeCQEv");
void ReleaseCallbackQueue(grpc::CompletionQueue* queue) asm(
    "_ZN4grpc15CompletionQueue28ReleaseCallbackAlternativeCQEPS0_");
}

namespace {

void RunCallbacks(grpc_completion_queue* queue) {
  while (true) {
    const grpc_event event =
        grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), nullptr);
    if (event.type != GRPC_OP_COMPLETE) continue;
    auto* const callback = static_cast<grpc_completion_queue_functor*>(event.tag);
    callback->functor_run(callback, event.success);
  }
}

grpc::CompletionQueue* StartQueue() {
  const char* const wanted = std::getenv("CALLBACK_THREADS");
  const int threads = wanted == nullptr ? 1 : std::atoi(wanted);
  auto* const queue = new grpc::CompletionQueue;  // Lives as long as the process.
  for (int i = 0; i < threads; ++i) {
    std::thread([queue] { RunCallbacks(queue->cq()); }).detach();
  }
  return queue;
}

}  // namespace

grpc::CompletionQueue* CallbackQueue() {
  static grpc::CompletionQueue* const queue = StartQueue();
  return queue;
}

void ReleaseCallbackQueue(grpc::CompletionQueue*) {}
