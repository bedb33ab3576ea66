#include "common/base/waiting_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace tessera {

void StartWithShortWaits(char** argv) {
  if (getenv("GOMP_SPINCOUNT") != nullptr || getenv("OMP_WAIT_POLICY") != nullptr) return;
  // Started by hand through the loader: the program there would be that.
  if (getauxval(AT_BASE) == 0) return;
  // Not through /proc, so that the process keeps its name.
  char program[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (size <= 0) return;
  program[size] = '\0';
  if (setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0) != 0) return;
  execv(program, argv);
}

}  // namespace tessera
