#include "deploy/cli/help/help_command.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/printable.h"
#include "common/config/nearest_name.h"
#include "deploy/cli/help/pages.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/wrap.h"

namespace tessera {
namespace {

// The pages that tell of commands.
constexpr std::pair<absl::string_view, absl::string_view> kCommands[] = {
    {"check", "starting"},      {"checkpoint", "checkpoints"},
    {"doctor", "starting"},     {"drain", "ending"},
    {"eval", "models"},         {"export", "models"},
    {"history", "watching"},    {"import", "models"},
    {"init", "data"},           {"launch", "launch"},
    {"plan", "simulating"},     {"plot", "watching"},
    {"run", "starting"},        {"sample", "models"},
    {"simulate", "simulating"}, {"status", "watching"},
    {"stop", "ending"},         {"tensorboard", "watching"},
};

std::string Title(const HelpPage& page) {
  const absl::string_view first = page.lines.substr(0, page.lines.find('\n'));
  return std::string(first.empty() ? first : first.substr(1));
}

// Text as lines of so many columns; the first begins with `lead`, the others with as many blanks.
std::string Indented(absl::string_view lead, absl::string_view text, int width) {
  std::string out;
  std::string begin(lead);
  for (const std::string& line : Wrap(text, std::max(20, width - static_cast<int>(lead.size())))) {
    absl::StrAppend(&out, begin, line, "\n");
    begin.assign(lead.size(), ' ');
  }
  return out;
}

void PrintList() {
  std::printf(
      "Pages, each shown by `tessera help TOPIC`; `tessera COMMAND --help` has the flags.\n\n");
  for (const HelpPage& page : HelpPages()) {
    std::printf("  %-24s %s\n", std::string(page.topic).c_str(), Title(page).c_str());
  }
  std::printf("\nCommands name the page that tells of them:");
  std::string names;
  for (const auto& [command, page] : kCommands) absl::StrAppend(&names, " ", command);
  std::printf("\n%s", Indented("  ", names, TextWidth()).c_str());
}

}  // namespace

std::string RenderPage(absl::string_view lines, int width) {
  std::string out;
  bool was_blank = true;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    if (line.empty()) {
      if (!was_blank) out += "\n";
      was_blank = true;
      continue;
    }
    was_blank = false;
    const absl::string_view text = line.substr(1);
    switch (line[0]) {
      case 'h':
        absl::StrAppend(&out, text, "\n", std::string(text.size(), '='), "\n");
        break;
      case 'l':
        absl::StrAppend(&out, Indented("- ", text, width));
        break;
      case 't': {
        const std::pair<absl::string_view, absl::string_view> cells =
            absl::StrSplit(text, absl::MaxSplits('\t', 1));
        absl::StrAppend(&out, Indented("  ", cells.first, width),
                        Indented("      ", cells.second, width));
        break;
      }
      case 'c':
        absl::StrAppend(&out, "    ", text, "\n");
        break;
      default:
        absl::StrAppend(&out, Indented("", text, width));
    }
  }
  while (out.size() > 1 && out[out.size() - 2] == '\n') out.pop_back();
  return out;
}

std::string PageOf(absl::string_view topic) {
  for (const HelpPage& page : HelpPages()) {
    if (page.topic == topic) return std::string(page.topic);
  }
  for (const auto& [command, page] : kCommands) {
    if (command == topic) return std::string(page);
  }
  return "";
}

int ShowHelp(const HelpOptions& options) {
  if (options.topic.empty()) {
    PrintList();
    return 0;
  }
  const std::string topic = PageOf(options.topic);
  for (const HelpPage& page : HelpPages()) {
    if (page.topic != topic) continue;
    std::fputs(RenderPage(page.lines, TextWidth()).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const HelpPage& page : HelpPages()) names.emplace_back(page.topic);
  for (const auto& [command, page] : kCommands) names.emplace_back(command);
  std::fprintf(stderr, "tessera help: got \"%s\", want a topic%s; tessera help lists them\n",
               ToPrintable(options.topic).c_str(), DidYouMean(options.topic, names).c_str());
  return 2;
}

}  // namespace tessera
