#include "common/base/uncaught.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "tests/common/base/captured_log.h"

namespace tessera {
namespace {

void CatchNothing(const std::function<void()>& what) noexcept { what(); }

// What a process logs that ends by `what`, with this signal.
std::string LastWordsOf(const std::function<void()>& what, int signal_number = SIGABRT) {
  int state = 0;
  const std::string log = CapturedLog([&] {
    const pid_t child = fork();
    if (child == 0) {
      // The test program has its own.
      for (const int number : {SIGABRT, SIGSEGV, SIGFPE, SIGILL}) signal(number, SIG_DFL);
      const rlimit no_core = {0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      LogUncaught("worker");
      CatchNothing(what);
      _exit(0);
    }
    REQUIRE(waitpid(child, &state, 0) == child);
  });
  CHECK(WIFSIGNALED(state));
  CHECK(WTERMSIG(state) == signal_number);
  CHECK(log.rfind('\n') == log.find('\n'));
  return log;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a process that ends by an exception says what it was and what to do", "[base][system]") {
  const std::string no_thread = LastWordsOf([] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again),
                            "thread");
  });
  CHECK(no_thread.find('E') == 0);
  CHECK(Has(no_thread, "worker: ended error=\"uncaught: thread: Resource temporarily unavailable"));
  CHECK(Has(no_thread, "raise the limit of processes"));
  CHECK(Has(LastWordsOf([] { throw std::bad_alloc(); }), "no memory left"));
  const std::string other = LastWordsOf([] { throw std::runtime_error("two\nlines"); });
  CHECK(Has(other, "uncaught: two\\nlines; this is a fault of the program"));
  CHECK(Has(LastWordsOf([] { throw 7; }), "something that is no std::exception"));
  CHECK(Has(LastWordsOf([] { std::terminate(); }), "nothing thrown"));
}

TEST_CASE("a process that a fault or a limit ends says which", "[base][system]") {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU}) {
    const std::string log = LastWordsOf([number] { kill(getpid(), number); }, number);
    CHECK(Has(log, "E worker: ended error=\"signal " + std::to_string(number) + " ("));
    CHECK(Has(log, number == SIGXCPU ? "raise the limit (ulimit -t)" : "a fault of the program"));
  }
}

}  // namespace
}  // namespace tessera
