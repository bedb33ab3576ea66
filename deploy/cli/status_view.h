// A job's status as text: for a terminal of any width, for a pipe, for a program.
#ifndef TESSERA_DEPLOY_CLI_STATUS_VIEW_H_
#define TESSERA_DEPLOY_CLI_STATUS_VIEW_H_

#include <string>

#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace tessera {

// The least width: narrower terminals get this, and wrap.
constexpr int kViewWidthMin = 12;
// The least height: lower terminals get this, and scroll.
constexpr int kViewHeightMin = 3;

// The status as lines of at most `width` columns (characters), each ended by a line break, without
// control characters: a summary, the servers, the workers, the last evaluations. Columns that do
// not fit are left out, the least important first; text that does not fit ends in "~".
std::string StatusText(const v1::JobStatus& status, int width);

// The status in at most `height` lines, or kViewHeightMin. The longest list loses its last lines to one that says
// how many, until all fit; where there is no room for a list's first row a line says what is not shown. What
// stands above the lists stays, as far as there is room.
std::string StatusText(const v1::JobStatus& status, int width, int height);

// "no news from HOST:PORT for 12s", as a line of that kind.
std::string SilenceLine(const std::string& address, absl::Duration silence, int width);

// For a live view: moves the cursor back over what was drawn before and draws `text` over it.
// `lines_before` is the number of lines of the last text, 0 at first.
std::string Redraw(const std::string& text, int lines_before);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_STATUS_VIEW_H_
