#include "common/config/command_line.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/config/nearest_name.h"
#include "common/config/quantity.h"

namespace tessera {
namespace {

// The names of the commands, for "did you mean".
std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// The long names of the flags, for "did you mean".
std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  }
  return names;
}

// What is wanted in place of a number that was not converted, such as "--workers = 99999999999".
absl::string_view WantedNumber(absl::string_view what) {
  constexpr absl::string_view kBefore = " = ";
  const size_t at = what.rfind(kBefore);
  if (at == absl::string_view::npos) return "a number";
  const absl::string_view value = what.substr(at + kBefore.size());
  if (ParseNumber(value).has_value()) {
    // Only a flag for whole numbers complains of a number with a fraction.
    const bool is_whole = value.find_first_of(".eE") == absl::string_view::npos;
    if (!is_whole) return "a whole number, in digits";
    return value[0] == '-' ? "a larger number" : "a smaller number";
  }
  return "a number";
}

}  // namespace

std::string ParseErrorLine(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* called = &app;
  std::string program = app.get_name();
  for (const CLI::App* command : app.get_subcommands()) {
    called = command;
    absl::StrAppend(&program, " ", command->get_name());
  }
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  // Flags are told before other words, as a word behind an unknown flag may have been meant as its value.
  std::stable_partition(unknown.begin(), unknown.end(),
                        [](const std::string& word) { return absl::StartsWith(word, "-"); });
  const std::vector<std::string> commands = CommandsOf(*called);
  std::string what = error.what();
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    what = std::string(absl::StripPrefix(what, "Could not convert: "));
    absl::StrAppend(&what, ": want ", WantedNumber(what));
  }
  if (!unknown.empty() && absl::StartsWith(unknown[0], "-")) {
    what =
        absl::StrCat("unknown flag \"", unknown[0], "\"", DidYouMean(unknown[0], FlagsOf(*called)));
  } else if (!unknown.empty() && !commands.empty()) {
    what =
        absl::StrCat("unknown subcommand \"", unknown[0], "\"", DidYouMean(unknown[0], commands));
  } else if (!unknown.empty()) {
    what = absl::StrCat("got \"", absl::StrJoin(unknown, " "), "\" as well, want no more");
  } else if (!commands.empty()) {
    what = absl::StrCat("no subcommand, want ", absl::StrJoin(commands, ", "));
  }
  return absl::StrCat(program, ": ", what, absl::EndsWith(what, "?") ? " See " : "; see ", program,
                      " --help");
}

int EndOfParsing(const CLI::App& app, const CLI::ParseError& error) {
  // A command that there is not is told even where help was asked for, which would say nothing of it.
  const bool is_unknown =
      !CommandsOf(app).empty() && app.get_subcommands().empty() && !app.remaining().empty();
  if (error.get_exit_code() == 0 && !is_unknown) return app.exit(error);
  std::fprintf(stderr, "%s\n", ParseErrorLine(app, error).c_str());
  return 2;
}

void AddLogLevel(CLI::App* app, LogLevel* level) {
  static const std::map<std::string, LogLevel>* const kLevels =
      new std::map<std::string, LogLevel>{{"debug", LogLevel::kDebug},
                                          {"info", LogLevel::kInfo},
                                          {"warning", LogLevel::kWarning},
                                          {"error", LogLevel::kError}};
  const auto set = [level](const std::string& text) {
    const auto found = kLevels->find(text);
    if (found == kLevels->end()) {
      throw CLI::ValidationError(
          "--log-level", absl::StrCat("got \"", text, "\", want debug, info, warning or error"));
    }
    *level = found->second;
  };
  app->add_option_function<std::string>("--log-level", set,
                                        "the least that is logged: debug, info, warning or error")
      ->type_name("LEVEL");
}

void AddCoordinator(CLI::App* app, std::string* address) {
  app->add_option("--coordinator", *address,
                  "HOST:PORT of server 0; default: its address in the job. With "
                  "cluster.coordinator.etcd that says where the coordinator is")
      ->check([](const std::string& text) {
        return IsHostPort(text) ? "" : absl::StrCat("got \"", text, "\", want HOST:PORT");
      });
}

void AddMetrics(CLI::App* app, std::string* address, absl::Duration* linger,
                const std::string& description) {
  *linger = kMetricsLingerDefault;
  CLI::Option* const metrics = app->add_option("--metrics", *address, description);
  metrics->check([](const std::string& given) {
    return given.empty() ? "is empty, want HOST:PORT" : std::string();
  });
  app->add_option_function<std::string>(
         "--metrics-linger",
         [linger](const std::string& text) { (void)absl::ParseDuration(text, linger); },
         "once the job has ended, serve its last metrics until they are scraped, for so long at "
         "most "
         "(15s by default); SIGTERM ends that, too")
      ->needs(metrics)
      ->check([](const std::string& text) {
        absl::Duration given;
        const bool is_one = absl::ParseDuration(text, &given);
        const bool fits = is_one && given >= absl::ZeroDuration() && given <= kMetricsLingerMax;
        return fits ? std::string()
                    : absl::StrCat("got \"", text, "\", want a time from 0s to ",
                                   absl::FormatDuration(kMetricsLingerMax), ", such as 15s");
      });
}

void AddPage(CLI::App* app, std::string* address) {
  app->add_option("--page", *address,
                  "serve a page for a browser on HOST:PORT, with the job's TLS and tokens; port 0 "
                  "takes a free one")
      ->check([](const std::string& given) {
        return given.empty() ? "is empty, want HOST:PORT" : std::string();
      });
}

void AddListen(CLI::App* app, std::string* address, const std::string& description) {
  app->add_option("--listen", *address, description)->check([](const std::string& text) {
    return ParseHostPort(text).has_value()
               ? ""
               : absl::StrCat("got \"", text,
                              "\", want host:port with a port in [0, 65535], an IPv6 address in "
                              "brackets");
  });
}

}  // namespace tessera
