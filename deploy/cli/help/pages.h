// The pages of docs/, which embed_pages.py puts into the program.
#ifndef TESSERA_DEPLOY_CLI_HELP_PAGES_H_
#define TESSERA_DEPLOY_CLI_HELP_PAGES_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace tessera {

struct HelpPage {
  // What the page is asked for by: "watching", "design/shard".
  absl::string_view topic;
  // Lines, each of which begins with a character that says what it is: h heading, p paragraph, l item of a list, t row
  // of a table with a tab behind its first cell, c code.
  absl::string_view lines;
};

// All pages, in the order of their topics.
std::vector<HelpPage> HelpPages();

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_HELP_PAGES_H_
