// Text as lines of a given width.
#ifndef TESSERA_DEPLOY_CLI_WRAP_H_
#define TESSERA_DEPLOY_CLI_WRAP_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The text's lines, broken at blanks; a word that is wider than `width` is a line of its own.
inline std::vector<std::string> Wrap(absl::string_view text, int width) {
  std::vector<std::string> lines;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (lines.empty() || static_cast<int>(lines.back().size() + 1 + word.size()) > width) {
      lines.emplace_back(word);
    } else {
      absl::StrAppend(&lines.back(), " ", word);
    }
  }
  return lines;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_WRAP_H_
