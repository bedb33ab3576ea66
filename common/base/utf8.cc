#include "common/base/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tessera {

// Unicode 15, table 3-7.
size_t Utf8CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  // 80 to BF only continue a character, C0 and C1 could only begin overlong forms, F5 and above lie beyond the last
  // code point.
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  // Overlong forms, surrogates and code points beyond U+10FFFF differ from valid ones in their second byte alone.
  uint8_t second_min = 0x80, second_max = 0xBF;
  if (first == 0xE0) second_min = 0xA0;
  if (first == 0xED) second_max = 0x9F;
  if (first == 0xF0) second_min = 0x90;
  if (first == 0xF4) second_max = 0x8F;
  if (byte(1) < second_min || byte(1) > second_max) return 0;
  for (size_t i = 2; i < bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return bytes;
}

int32_t CodePointOf(absl::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0);
  // The first byte begins with as many ones as there are bytes, and a zero.
  int32_t code_point = byte(0) & (0x7F >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code_point = code_point << 6 | (byte(i) & 0x3F);
  return code_point;
}

void AppendUtf8(int32_t code_point, std::string* out) {
  const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
  // What is no character writes nothing, as it could not be read back.
  if (code_point < 0 || code_point >= kCodePointEnd || is_surrogate) return;
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  const int bytes = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  const int ones = 0xFF00 >> bytes & 0xFF;
  out->push_back(static_cast<char>(ones | code_point >> 6 * (bytes - 1)));
  for (int i = bytes - 2; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80 | (code_point >> 6 * i & 0x3F)));
  }
}

size_t Utf8PrefixBytes(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = Utf8CharacterBytes(text.substr(at));
    // Text up to here is valid, and nothing after it is looked at.
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

std::string CutText(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  const auto continues = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80; };
  size_t end = bytes_max;
  // A character has at most three bytes after its first.
  for (int back = 0; back < 3 && end > 0 && continues(end); ++back) --end;
  // A text whose bytes are no characters at all is cut anywhere.
  if (continues(end)) end = bytes_max;
  return absl::StrCat(text.substr(0, end), "...");
}

std::string ToUtf8(absl::string_view text) {
  std::string clean;
  while (true) {
    const size_t valid = Utf8PrefixBytes(text);
    clean.append(text.data(), valid);
    if (valid == text.size()) return clean;
    const auto byte = static_cast<uint8_t>(text[valid]);
    // The byte itself is shown, so that a reader can find it in the file.
    absl::StrAppend(&clean, "\\x", absl::Hex(byte, absl::kZeroPad2));
    text.remove_prefix(valid + 1);
  }
}

absl::Status ToUtf8(const absl::Status& status) {
  return absl::Status(status.code(), ToUtf8(status.message()));
}

}  // namespace tessera
