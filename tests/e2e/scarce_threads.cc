// Loaded into a process (LD_PRELOAD), stands for a limit of threads that a test may not set: a process has no more of
// them than SCARCE_THREADS says. A library that asks for one more is refused, which is also said on stderr.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

namespace {

using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

int ThreadsThere() {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = readdir(tasks)) count += entry->d_name[0] == '.' ? 0 : 1;
  closedir(tasks);
  return count;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  const char* const most = getenv("SCARCE_THREADS");
  if (most != nullptr && ThreadsThere() >= atoi(most)) {
    constexpr char kRefused[] = "scarce_threads: refused\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kRefused, sizeof(kRefused) - 1);
    return EAGAIN;
  }
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, run, argument);
}
