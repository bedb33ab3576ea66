// Text of others for a terminal and a log: what would steer a terminal, or show a line as another one, is written out.
#ifndef TESSERA_COMMON_BASE_PRINTABLE_H_
#define TESSERA_COMMON_BASE_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// `text` in one line of UTF-8. Line breaks, tabs and carriage returns are \n, \t and \r; other control characters
// and bytes that are not UTF-8 are such as \x1b; the control characters that have no byte of their own, and those that
// break lines or turn the direction of writing, such as \u202e.
std::string ToPrintable(absl::string_view text);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_PRINTABLE_H_
