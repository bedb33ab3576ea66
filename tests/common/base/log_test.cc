#include "common/base/log.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/common/base/captured_log.h"

namespace tessera {
namespace {

// What Log writes of `line`, after the time.
std::string Logged(const std::string& line) {
  const std::string text = CapturedLog([&line] { Log(LogLevel::kWarning, line); });
  const size_t head = std::string("W1120 11:31:09.771502 ").size();
  REQUIRE(text.size() > head);
  CHECK(text[0] == 'W');
  return text.substr(head);
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
  CHECK(Logged(std::string(kLogLineBytesMax, 'l')) == std::string(kLogLineBytesMax, 'l') + "\n");
  CHECK(Logged(std::string(100000, 'l')) == std::string(kLogLineBytesMax, 'l') + "...\n");
}

}  // namespace
}  // namespace tessera
