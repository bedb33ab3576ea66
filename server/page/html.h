// Text and numbers as a page shows them. What others have named is always escaped here.
#ifndef TESSERA_SERVER_PAGE_HTML_H_
#define TESSERA_SERVER_PAGE_HTML_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// What stands in place of a number that is not known.
constexpr char kNotKnown[] = "–";

// `text` in one line, without control characters, and with no character that HTML would take for its own.
std::string Escaped(absl::string_view text);
// The beginning of `text`, escaped for HTML, and "..." behind it where it was cut; at most `bytes_max` + 3 bytes.
std::string Escaped(absl::string_view text, size_t bytes_max);

// "1,234,567".
std::string Grouped(uint64_t count);
// "1.23M": three digits.
std::string Short(double number);
// "12.3 MiB".
std::string ShortBytes(double bytes);
// "12.3 s", "4 m 5 s", "2 h 3 m".
std::string ShortSeconds(double seconds);
// A loss or a share: "0.4213"; kNotKnown where it is not finite.
std::string Decimal(double number);

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_HTML_H_
