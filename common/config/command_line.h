// What the three programs' command lines have in common.
#ifndef TESSERA_COMMON_CONFIG_COMMAND_LINE_H_
#define TESSERA_COMMON_CONFIG_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/time/time.h"
#include "common/base/log.h"

namespace tessera {

// One line that says which program or command was called wrongly, with what, what was meant perhaps, and where to
// read on:
//   tessera run: unknown flag "--repot"; did you mean "--report"? See tessera run --help
std::string ParseErrorLine(const CLI::App& app, const CLI::ParseError& error);

// Prints that line to stderr, or to stdout the help or version that was asked for. Returns the exit code.
int EndOfParsing(const CLI::App& app, const CLI::ParseError& error);

void AddLogLevel(CLI::App* app, LogLevel* level);

// Adds the flag --coordinator HOST:PORT.
void AddCoordinator(CLI::App* app, std::string* address);

// How long after its job's end a process waits for a last scrape, and the most that may be asked for.
constexpr absl::Duration kMetricsLingerDefault = absl::Seconds(15);
constexpr absl::Duration kMetricsLingerMax = absl::Hours(1);

// Adds the flag --page HOST:PORT of the page for a browser.
void AddPage(CLI::App* app, std::string* address);

// Adds the flags --metrics HOST:PORT, and --metrics-linger for how long the end of the job is served there: sets
// `linger` to its default.
void AddMetrics(CLI::App* app, std::string* address, absl::Duration* linger,
                const std::string& description);

// Adds the flag --listen HOST:PORT, where port 0 takes a free one.
void AddListen(CLI::App* app, std::string* address, const std::string& description);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_COMMAND_LINE_H_
