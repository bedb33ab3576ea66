#include "common/base/uncaught.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {
namespace {

const char* said_by = "process";

struct LastWords {
  std::string what = "std::terminate was called, and nothing thrown";
  std::string advice = "this is a fault of the program, report it with this log";
};

// What an exception that nobody caught was, and what a person can do about it: bad_alloc has advice of its own.
LastWords WordsOf(const std::exception_ptr& thrown) {
  LastWords words;
  if (thrown == nullptr) return words;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc& error) {
    words = {error.what(), "there is no memory left: give the process more, or the job less"};
  } catch (const std::system_error& error) {
    words.what = error.what();
    if (error.code() == std::errc::resource_unavailable_try_again) {
      words.advice =
          "the system has no thread left: raise the limit of processes (ulimit -u, pids.max of the "
          "cgroup)";
    }
  } catch (const std::exception& error) {
    words.what = error.what();
  } catch (...) {
    words.what = "something that is no std::exception";
  }
  return words;
}

[[noreturn]] void OnTerminate() {
  static std::atomic<bool> is_ending{false};
  // A second failure, of the words themselves or of another thread meanwhile, is not worth a second try.
  if (is_ending.exchange(true)) std::abort();
  const LastWords words = WordsOf(std::current_exception());
  Log(LogLevel::kError,
      absl::StrCat(said_by, ": ended error=\"uncaught: ", words.what, "; ", words.advice, "\""));
  std::abort();
}

// Made beforehand: nothing may be allocated or locked in a signal handler.
struct Line {
  char text[256];
  size_t bytes = 0;
};
Line lines[NSIG];

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGXCPU};

// Runs in the signal handler: writes the line that was made beforehand, and ends the process as the signal would
// have.
void OnFatal(int number) {
  // The write does not wait for whoever reads, as Log does not.
  pollfd reader{STDERR_FILENO, POLLOUT, 0};
  if (poll(&reader, 1, 0) == 1 && (reader.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, lines[number].text, lines[number].bytes);
  }
  raise(number);  // Which ends it once this returns (SA_RESETHAND).
}

// Has OnFatal called for this signal, with a line of its own.
void LogFatal(int number) {
  struct sigaction now = {};
  // A handler that is there already, such as a sanitizer's, says more, and stays.
  if (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  const std::string text =
      absl::StrCat("E ", said_by, ": ended error=\"signal ", number, " (", strsignal(number), "); ",
                   number == SIGXCPU ? "it has had its CPU time, raise the limit (ulimit -t)"
                                     : "this is a fault of the program, report it with this log",
                   "\"\n");
  lines[number].bytes = text.copy(lines[number].text, sizeof(lines[number].text));
  struct sigaction action = {};
  action.sa_handler = OnFatal;
  action.sa_flags = SA_RESETHAND;
  sigaction(number, &action, nullptr);
}

}  // namespace

void LogUncaught(const char* room) {
  said_by = room;
  std::set_terminate(OnTerminate);
  for (const int number : kFatal) LogFatal(number);
}

}  // namespace tessera
