#include "common/base/utf8.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// The length of the character that `text` begins with; 0 where it begins with none. Unicode 15, table 3-7.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return 0;
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

}  // namespace

size_t Utf8PrefixBytes(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

std::string CutText(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  const auto continues = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80; };
  size_t end = bytes_max;
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
    absl::StrAppend(&clean, "\\x", absl::Hex(byte, absl::kZeroPad2));
    text.remove_prefix(valid + 1);
  }
}

absl::Status ToUtf8(const absl::Status& status) {
  return absl::Status(status.code(), ToUtf8(status.message()));
}

}  // namespace tessera
