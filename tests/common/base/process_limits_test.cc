#include "common/base/process_limits.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <iterator>
#include <string>

#include "common/base/sanitizer.h"

namespace tessera {
namespace {

// As a library has whose threads each hold much: a GPU's products hold 94 KiB.
thread_local volatile char of_each_thread[200 << 10];

// What a process of its own, which `limit` has been called in, is told; empty: it may start.
std::string Told(const std::function<void()>& limit, const ProcessNeeds& needs) {
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    limit();
    const std::string text(CheckProcessLimits(needs).message());
    [[maybe_unused]] const ssize_t written = write(channel[1], text.data(), text.size());
    _exit(0);
  }
  close(channel[1]);
  std::string told;
  char buffer[256];
  for (ssize_t size; (size = read(channel[0], buffer, sizeof(buffer))) > 0;) {
    told.append(buffer, static_cast<size_t>(size));
  }
  close(channel[0]);
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  REQUIRE(state == 0);
  return told;
}

void Limit(__rlimit_resource what, rlim_t soft, rlim_t hard) {
  const rlimit limit = {soft, hard};
  if (setrlimit(what, &limit) != 0) _exit(1);
}

TEST_CASE("a process that has what it needs may start", "[base]") {
  of_each_thread[0] = 1;
  CHECK(Told([] {}, {0, 0}).empty());
  CHECK(Told([] {}, {100, 64}).empty());
  CHECK(Told([] {}, {10, 64, 20}).empty());
  CHECK(Told([] {}, {10, 0, 1 << 30}).empty());  // More than are tried.
}

// As where the limit of processes is reached, which a sandbox's own root would not meet.
void RefuseThreads() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(steps)), steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(1);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(1);
}

TEST_CASE("threads that the system does not give are told with what there is", "[base][system]") {
  CHECK(Told(RefuseThreads, {0, 0}).empty());
  const std::string words = "; raise the limit of processes (ulimit -u, pids.max of the cgroup)";
  CHECK(Told(RefuseThreads, {10, 0}) == "threads: the system gives 0 more, want 10" + words);
  CHECK(Told(RefuseThreads, {0, 0, 7}) == "threads: the system gives 0 more, want 7" + words);
}

TEST_CASE("threads whose stacks have no room are told with the limit that leaves none",
          "[base][system]") {
  if (kHasSanitizer) return;  // Their shadow alone is more.
  const std::string told = Told(
      [] {
        Limit(RLIMIT_STACK, 8 << 20, 8 << 20);
        Limit(RLIMIT_AS, 400 << 20, 400 << 20);
      },
      {200, 0});
  CHECK(told.find("threads: the system gives ") == 0);
  CHECK(told.find(" more, want 200; raise the limit of address space (ulimit -v), or ") !=
        std::string::npos);
  // Children have addresses of their own.
  CHECK(Told([] { Limit(RLIMIT_AS, 400 << 20, 400 << 20); }, {0, 0, 200}).empty());
}

TEST_CASE("open files may be as many as the hard limit, and no less than needed", "[base]") {
  CHECK(Told([] { Limit(RLIMIT_NOFILE, 16, 64); }, {0, 64}).empty());
  CHECK(Told([] { Limit(RLIMIT_NOFILE, 16, 63); }, {0, 64}) ==
        "open files: the limit is 63, want 64 or more; raise it (ulimit -n)");
}

}  // namespace
}  // namespace tessera
