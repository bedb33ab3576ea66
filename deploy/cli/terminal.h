// The terminal that output goes to, if it does.
#ifndef TESSERA_DEPLOY_CLI_TERMINAL_H_
#define TESSERA_DEPLOY_CLI_TERMINAL_H_

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tessera {

// The width of running text and closing tables: longer lines are tiring to read.
constexpr int kTextWidthMax = 79;

// Whether a terminal called `term` (the environment's TERM, which may be null) knows the sequences that move its cursor
// and erase lines.
inline bool KnowsSequences(const char* term) {
  return term != nullptr && *term != '\0' && std::strcmp(term, "dumb") != 0;
}

// Whether what was written to stdout may be drawn over.
inline bool CanRedraw() {
  return isatty(STDOUT_FILENO) != 0 && KnowsSequences(std::getenv("TERM"));
}

// Whether stdout may be coloured: it is a terminal that knows sequences, and the user has not set NO_COLOR to anything
// (no-color.org).
inline bool UsesColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  return CanRedraw() && (no_color == nullptr || *no_color == '\0');
}

// The columns of stdout's terminal; 80 where it is none.
inline int TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// The columns that text may have on stdout.
inline int TextWidth() { return std::min(kTextWidthMax, TerminalWidth()); }

// The lines of stdout's terminal; 24 where it is none.
inline int TerminalHeight() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_TERMINAL_H_
