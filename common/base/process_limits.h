// What the system lets a process have: threads, open files, bytes of a file.
#ifndef TESSERA_COMMON_BASE_PROCESS_LIMITS_H_
#define TESSERA_COMMON_BASE_PROCESS_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tessera {

struct ProcessNeeds {
  // Threads beside those that run already.
  int threads = 0;
  // File descriptors, all of them.
  int files = 0;
  // Threads of processes that it starts, which count where limits are shared.
  int64_t children_threads = 0;
};

// Whether this process can have what it needs, found by having the threads for a moment: limits of users, of control
// groups, of address space and of the machine all count, whoever else shares them. To be asked before a library starts
// threads, which end the process or stand still for ever where there are none. Of children's threads 1,000 are tried at
// most. Raises the soft limit of open files to
// the hard one.
//   kInvalidArgument  it cannot; with what there is, what is needed and which limit to raise
absl::Status CheckProcessLimits(const ProcessNeeds& needs);

// Has a write beyond the limit of a file's size (ulimit -f) fail with EFBIG from now on, as one on a full disk
// fails, where the system would end the process. This holds for children, too. To be called in main.
void OutliveFileSizeLimit();

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PROCESS_LIMITS_H_
