#include "common/base/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// The code point of `text`, which is one character.
uint32_t CodePoint(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.size() == 1) return byte(0);
  // The first byte of n has n leading ones and a zero; what is left of it, and six bits of each other byte, is the
  // code.
  uint32_t code = byte(0) & (0x7fu >> text.size());
  for (size_t i = 1; i < text.size(); ++i) code = code << 6 | (byte(i) & 0x3fu);
  return code;
}

// Whether the character would steer a terminal: by Unicode 15, C1 controls, line and paragraph separators, and
// whatever has Bidi_Control.
bool Steers(uint32_t code) {
  return (code >= 0x80 && code < 0xa0) || code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

// Writes one byte out, in the form that C has for it.
void AppendByte(char c, std::string* out) {
  const auto byte = static_cast<uint8_t>(c);
  if (c == '\n') {
    *out += "\\n";
  } else if (c == '\r') {
    *out += "\\r";
  } else if (c == '\t') {
    *out += "\\t";
  } else if (byte < 0x20 || byte >= 0x7f) {
    absl::StrAppend(out, "\\x", absl::Hex(byte, absl::kZeroPad2));
  } else {
    *out += c;
  }
}

// The bytes of the character that begins with `first`, which is UTF-8.
size_t BytesOf(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

std::string ToPrintable(absl::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    for (size_t left = Utf8PrefixBytes(text); left > 0;) {
      const absl::string_view character = text.substr(0, BytesOf(text[0]));
      const uint32_t code = CodePoint(character);
      if (character.size() == 1) {
        AppendByte(text[0], &printable);
      } else if (Steers(code)) {
        absl::StrAppend(&printable, "\\u", absl::Hex(code, absl::kZeroPad4));
      } else {
        absl::StrAppend(&printable, character);
      }
      text.remove_prefix(character.size());
      left -= character.size();
    }
    if (text.empty()) break;
    AppendByte(text[0], &printable);
    text.remove_prefix(1);
  }
  return printable;
}

}  // namespace tessera
