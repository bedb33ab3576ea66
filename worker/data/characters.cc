#include "worker/data/characters.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace tessera {

std::optional<uint32_t> Characters::TokenOf(int32_t code_point) const {
  // Ascending code points: a character's token is its place among them.
  const auto found = std::lower_bound(code_points_.begin(), code_points_.end(), code_point);
  if (found == code_points_.end() || *found != code_point) return std::nullopt;
  return static_cast<uint32_t>(found - code_points_.begin());
}

std::string CharacterText(int32_t code_point) {
  std::string character;
  AppendUtf8(code_point, &character);
  return absl::StrFormat("\"%s\" (U+%04X)", ToPrintable(character), code_point);
}

}  // namespace tessera
