#include "deploy/cli/terminal.h"

#include <fcntl.h>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("what was written is drawn over where it is on a terminal that can do that", "[cli]") {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  const int screen = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(screen >= 0);
  const winsize size{/*ws_row=*/20, /*ws_col=*/40, 0, 0};
  REQUIRE(ioctl(screen, TIOCSWINSZ, &size) == 0);
  const int before = dup(STDOUT_FILENO);
  // Nothing is checked meanwhile: what fails is told on stdout.
  bool can[4], colors[3];
  int width = 0;
  setenv("TERM", "xterm", 1);
  dup2(screen, STDOUT_FILENO);
  can[0] = CanRedraw();
  unsetenv("NO_COLOR");
  colors[0] = UsesColor();
  setenv("NO_COLOR", "", 1);
  colors[1] = UsesColor();
  setenv("NO_COLOR", "1", 1);
  colors[2] = UsesColor();
  width = TextWidth();
  setenv("TERM", "dumb", 1);
  can[1] = CanRedraw();
  unsetenv("TERM");
  can[2] = CanRedraw();
  dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
  setenv("TERM", "xterm", 1);
  can[3] = CanRedraw();
  dup2(before, STDOUT_FILENO);
  CHECK(can[0]);
  CHECK_FALSE(can[1]);
  CHECK_FALSE(can[2]);
  CHECK_FALSE(can[3]);
  CHECK(width == 40);
  CHECK(colors[0]);
  CHECK(colors[1]);
  CHECK_FALSE(colors[2]);
}

TEST_CASE("a terminal without a name or with that of a dumb one gets no sequences", "[cli]") {
  CHECK(KnowsSequences("xterm-256color"));
  for (const char* name : {"", "dumb", static_cast<const char*>(nullptr)}) {
    CHECK_FALSE(KnowsSequences(name));
  }
}

}  // namespace
}  // namespace tessera
