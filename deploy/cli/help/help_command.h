// `tessera help [TOPIC]`: a page of the documentation as text, or the list of pages.
#ifndef TESSERA_DEPLOY_CLI_HELP_HELP_COMMAND_H_
#define TESSERA_DEPLOY_CLI_HELP_HELP_COMMAND_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

struct HelpOptions {
  // A page or a command; empty: the list.
  std::string topic;
};

// The lines of a page (pages.h) as text of at most `width` columns, but for code and words that are wider.
std::string RenderPage(absl::string_view lines, int width);

// The page that a topic names: itself, or the one that tells of the command of that name; "" where there is none.
std::string PageOf(absl::string_view topic);

// Prints the page or the list. Returns 0, or 2 where there is no such topic; stderr names the nearest one.
int ShowHelp(const HelpOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_HELP_HELP_COMMAND_H_
