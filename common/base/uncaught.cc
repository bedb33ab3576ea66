#include "common/base/uncaught.h"

#include <atomic>
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
  // What comes of the words themselves, or of another thread meanwhile, is not worth a second try.
  if (is_ending.exchange(true)) std::abort();
  const LastWords words = WordsOf(std::current_exception());
  Log(LogLevel::kError,
      absl::StrCat(said_by, ": ended error=\"uncaught: ", words.what, "; ", words.advice, "\""));
  std::abort();
}

}  // namespace

void LogUncaught(const char* room) {
  said_by = room;
  std::set_terminate(OnTerminate);
}

}  // namespace tessera
