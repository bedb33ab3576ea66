#include "common/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/common/base/captured_log.h"

namespace tessera {
namespace {

constexpr size_t kHeadBytes = sizeof("W1120 11:31:09.771502 ") - 1;

// What Log writes of `line`, after the time.
std::string Logged(const std::string& line) {
  const std::string text = CapturedLog([&line] { Log(LogLevel::kWarning, line); });
  REQUIRE(text.size() > kHeadBytes);
  CHECK(text[0] == 'W');
  return text.substr(kHeadBytes);
}

TEST_CASE("an event is one line, and nothing in it steers a terminal", "[base][log]") {
  CHECK(Logged("control: stopped why=\"enough\"") == "control: stopped why=\"enough\"\n");
  CHECK(Logged("a\x1b[2J\x1b]0;b\x07\nE1124 c\r\xc2\x9b"
               "31m\xe2\x80\xae"
               "d") ==
        "a\\x1b[2J\\x1b]0;b\\x07\\nE1124 c\\r\\u009b"
        "31m\\u202e"
        "d\n");
}

TEST_CASE("of a long line the beginning is written", "[base][log]") {
  const size_t most = kLogLineBytesMax - kHeadBytes - std::string("...\n").size();
  CHECK(Logged(std::string(most, 'l')) == std::string(most, 'l') + "\n");
  CHECK(Logged(std::string(100000, 'l')) == std::string(most, 'l') + "...\n");
  // As it is written, four characters for each of these.
  CHECK(Logged(std::string(kLogLineBytesMax, '\x01')).size() == most + 4);
}

// Stderr is a pipe that nobody reads but when it is told to.
class UnreadStderr {
 public:
  UnreadStderr() : before_(dup(STDERR_FILENO)) {
    REQUIRE(pipe(ends_) == 0);
    REQUIRE(fcntl(ends_[0], F_SETFL, O_NONBLOCK) == 0);
    REQUIRE(dup2(ends_[1], STDERR_FILENO) == STDERR_FILENO);
  }
  ~UnreadStderr() {
    dup2(before_, STDERR_FILENO);
    for (const int file : {before_, ends_[0], ends_[1]}) close(file);
  }
  // What there is.
  std::string Read() {
    std::string text;
    char part[4096];
    for (ssize_t got; (got = read(ends_[0], part, sizeof(part))) > 0;) text.append(part, got);
    return text;
  }

 private:
  const int before_;
  int ends_[2];
};

size_t LinesIn(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_CASE("nobody waits for whoever does not read stderr, and lines that were lost are counted",
          "[base][log]") {
  alarm(60);  // Whoever waits does so for ever.
  std::string kept, later;
  constexpr size_t kThreads = 4, kLines = 100;
  {
    UnreadStderr unread;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (size_t i = 0; i < kLines; ++i) {
          Log(LogLevel::kWarning, std::string(1000 * t + 500, 'l'));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    kept = unread.Read();
    Log(LogLevel::kInfo, "control: first that goes");
    Log(LogLevel::kInfo, "control: second");
    later = unread.Read();
  }
  alarm(0);
  REQUIRE(LinesIn(kept) > 0);
  REQUIRE(LinesIn(kept) < kThreads * kLines);
  CHECK(kept.back() == '\n');
  const std::string note =
      "log: lines lost count=" + std::to_string(kThreads * kLines - LinesIn(kept)) + " ";
  CHECK(LinesIn(later) == 3);
  CHECK(later.find(note) == kHeadBytes);
  CHECK(later.find(note) < later.find("control: first that goes"));
}

TEST_CASE("a log line harms nobody where stderr is closed", "[base][log]") {
  const int before = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  Log(LogLevel::kInfo, "control: unheard");
  dup2(before, STDERR_FILENO);
  close(before);
  CHECK(Logged("control: heard") == "control: heard\n");
}

}  // namespace
}  // namespace tessera
