// The terminal that output goes to, if it does.
#ifndef TESSERA_DEPLOY_CLI_TERMINAL_H_
#define TESSERA_DEPLOY_CLI_TERMINAL_H_

#include <sys/ioctl.h>
#include <unistd.h>

namespace tessera {

// Columns of stdout's terminal; 80 where it is none.
inline int TerminalWidth() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Lines of stdout's terminal; 24 where it is none.
inline int TerminalHeight() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return 24;
  return size.ws_row;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_TERMINAL_H_
