// Whether the kernel killed a process because there was no memory left, as far as its counters tell.
//
//   memory.events      of a control group, version 2: the line "oom_kill N"
//   memory.oom_control the same, version 1
//   /proc/vmstat       the whole machine's, where no group tells
#ifndef TESSERA_DEPLOY_CLI_RUN_MEMORY_KILLS_H_
#define TESSERA_DEPLOY_CLI_RUN_MEMORY_KILLS_H_

#include <cstdint>
#include <string>

namespace tessera {

// Compares a counter of this process's group, which is that of its children, with what it was. One thread.
class MemoryKills {
 public:
  // `root` stands before /proc and /sys.
  explicit MemoryKills(const std::string& root = "");

  // Why SIGKILL ended a process after this object was made: "out of memory, as ...", once for each time that the
  // kernel's counter has grown. Empty: somebody else sent the signal, or the kernel does not count.
  std::string Explain();

 private:
  std::string path_;   // of the file that has the counter; empty: there is none
  std::string limit_;  // "memory.max of ... is 268435456"; empty: no group has one
  int64_t explained_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_MEMORY_KILLS_H_
