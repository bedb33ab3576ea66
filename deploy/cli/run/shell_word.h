// Text as a shell reads it.
#ifndef TESSERA_DEPLOY_CLI_RUN_SHELL_WORD_H_
#define TESSERA_DEPLOY_CLI_RUN_SHELL_WORD_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Quotes `text` so that a shell reads it as one word.
inline std::string ShellWord(absl::string_view text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) ||
           absl::string_view("/._-+:@,%=").find(c) != absl::string_view::npos;
  });
  return is_plain ? std::string(text)
                  : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Words that a shell reads as these.
inline std::string ShellWords(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    absl::StrAppend(out, ShellWord(word));
  });
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_RUN_SHELL_WORD_H_
