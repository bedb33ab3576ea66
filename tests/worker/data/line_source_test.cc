#include "worker/data/line_source.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

LineSource Lines(absl::string_view text, int64_t line_bytes_max = 100) {
  return LineSource(*ByteSource::Open(WriteFile("lines", text)), line_bytes_max);
}

// "number:line", line by line.
std::vector<std::string> All(LineSource lines) {
  std::vector<std::string> result;
  absl::string_view line;
  for (;;) {
    const absl::StatusOr<bool> there_is = lines.Next(&line);
    REQUIRE(there_is.ok());
    if (!*there_is) return result;
    const std::string where = lines.where();
    result.push_back(where.substr(where.rfind(':') + 1) + ":" + std::string(line));
  }
}

using Strings = std::vector<std::string>;

TEST_CASE("lines end in LF or CRLF and the last one may end in neither", "[line_source]") {
  REQUIRE(All(Lines("a\nb\r\nc")) == Strings{"1:a", "2:b", "3:c"});
  REQUIRE(All(Lines("a\n")) == Strings{"1:a"});
  REQUIRE(All(Lines("")).empty());
}

TEST_CASE("blank lines and a byte order mark are skipped, and blank lines count", "[line_source]") {
  REQUIRE(All(Lines("\xEF\xBB\xBF"
                    "a\n\n \t\r\nb\n\n")) == Strings{"1:a", "4:b"});
}

TEST_CASE("where blank lines are lines, none is skipped", "[line_source]") {
  LineSource lines = Lines("\xEF\xBB\xBF\r\na\n\n \nb");
  Strings all;
  absl::string_view line;
  while (*lines.NextOrBlank(&line)) all.push_back(std::string(line));
  REQUIRE(all == Strings{"", "a", "", " ", "b"});
}

TEST_CASE("a line may have the limit's length and no more", "[line_source]") {
  REQUIRE(All(Lines(std::string(100, 'x') + "\n")).size() == 1);
  LineSource lines = Lines("short\n" + std::string(101, 'x') + "\n");
  absl::string_view line;
  REQUIRE(*lines.Next(&line));
  const auto there_is = lines.Next(&line);
  REQUIRE(there_is.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Text(there_is.status()).find("lines:2: the line is longer than 100 bytes") !=
          std::string::npos);
}

TEST_CASE("lines that are longer than the reader's buffer come whole", "[line_source]") {
  const std::string longest(900000, 'y');
  const Strings all = All(Lines("a\n" + longest + "\n" + longest + "\nb", 1000000));
  REQUIRE(all == Strings{"1:a", "2:" + longest, "3:" + longest, "4:b"});
}

}  // namespace
}  // namespace tessera
