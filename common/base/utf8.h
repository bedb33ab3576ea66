// Text that goes into a protobuf string: a peer refuses a whole message for one byte that is not UTF-8.
// Paths and what is quoted of files are any bytes.
#ifndef TESSERA_COMMON_BASE_UTF8_H_
#define TESSERA_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The length of the character that `text`, which is not empty, begins with; 0 where it begins with none.
size_t Utf8CharacterBytes(absl::string_view text);
// The number of one whole character in Unicode, and the other way round. A number that is no character's, as those of
// surrogates, adds nothing.
int32_t CodePointOf(absl::string_view character);
void AppendUtf8(int32_t code_point, std::string* out);
constexpr int32_t kCodePointEnd = 0x110000;

// The number of bytes from the begin on that are UTF-8: text.size() where all are. Overlong forms, surrogates and
// what lies beyond U+10FFFF are not.
size_t Utf8PrefixBytes(absl::string_view text);

// Returns `text`, or the whole characters that fit into its first `bytes_max` bytes, and "...".
std::string CutText(absl::string_view text, size_t bytes_max);

// Returns `text` with every byte of it that is not UTF-8 as four characters: \xe9.
std::string ToUtf8(absl::string_view text);
// Returns a status of the same code whose message is ToUtf8 of this one's.
absl::Status ToUtf8(const absl::Status& status);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_UTF8_H_
