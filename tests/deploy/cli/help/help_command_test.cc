#include "deploy/cli/help/help_command.h"

#include <catch2/catch.hpp>
#include <string>

#include "deploy/cli/help/pages.h"

namespace tessera {
namespace {

TEST_CASE("a page is rendered in the terminal's width, and code as it stands", "[cli][help]") {
  CHECK(RenderPage(
            "hWatching\n\n\npmany words that are broken at twenty\n\nlitem of a list of words\n"
            "ccode   that is longer than twenty\ntcell\tmeaning of it in words\n",
            24) ==
        "Watching\n========\n\nmany words that are\nbroken at twenty\n\n- item of a list of\n  "
        "words\n"
        "    code   that is longer than twenty\n  cell\n      meaning of it in\n      words\n");
}

TEST_CASE("every page has a title, and every command a page", "[cli][help]") {
  CHECK(HelpPages().size() > 40);
  for (const HelpPage& page : HelpPages()) {
    CAPTURE(page.topic);
    CHECK(page.lines.substr(0, 1) == "h");
    CHECK(PageOf(page.topic) == page.topic);
    CHECK(page.lines.find("](") == absl::string_view::npos);
  }
  for (const char* command : {"run", "check", "status", "plot", "history", "init", "doctor", "plan",
                              "simulate", "export", "import", "eval", "sample", "drain", "stop"}) {
    const std::string page = PageOf(command);
    CAPTURE(command);
    CHECK(PageOf(page) == page);
    CHECK_FALSE(page.empty());
  }
  CHECK(PageOf("nothing").empty());
}

}  // namespace
}  // namespace tessera
