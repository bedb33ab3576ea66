// What AddressSanitizer has to be told of libraries that are not built for it. In every program under
// --config=asan (.bazelrc).

extern "C" const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() {
  // gRPC 1.51 loses a buffer of slices (576 bytes) for each connection with TLS. Nobody else calls this.
  // What it gives to a thread of its pool is nobody's until that runs, which a busy machine puts off.
  return "leak:gpr_realloc\nleak:grpc_event_engine::experimental::ThreadPool::StartThread\n";
}

// Tests compare what programs say.
extern "C" const char* __lsan_default_options();
const char* __lsan_default_options() { return "print_suppressions=0"; }
