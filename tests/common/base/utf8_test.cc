#include "common/base/utf8.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

TEST_CASE("the first and the last character of each length are UTF-8", "[base]") {
  for (const std::string character :
       {"\x01", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(Utf8PrefixBytes("a" + character + "b") == character.size() + 2);
    CHECK(ToUtf8(character) == character);
  }
  CHECK(Utf8PrefixBytes("") == 0);
  CHECK(Utf8PrefixBytes(std::string(3, '\0')) == 3);
}

TEST_CASE("overlong, surrogate, too large and cut characters are not UTF-8", "[base]") {
  for (const std::string wrong :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82",
        "\xf0\x9f\x98", "\xc3(", "\xe2\x82("}) {
    CHECK(Utf8PrefixBytes("\xc3\xa9" + wrong) == 2);
    const std::string clean = ToUtf8(wrong);
    CHECK(Utf8PrefixBytes(clean) == clean.size());
  }
}

TEST_CASE("a byte that is not UTF-8 is told by its digits, what is around it stays", "[base]") {
  CHECK(ToUtf8("/tmp/j\xe9/\xc3\xa9") == "/tmp/j\\xe9/\xc3\xa9");
  CHECK(ToUtf8("\xff\xfe") == "\\xff\\xfe");
  CHECK(ToUtf8(absl::NotFoundError("\x80")) == absl::NotFoundError("\\x80"));
  CHECK(ToUtf8(absl::OkStatus()).ok());
}

TEST_CASE("a long text is cut between characters", "[base]") {
  CHECK(CutText("", 0) == "");
  CHECK(CutText("four", 4) == "four");
  CHECK(CutText("fours", 4) == "four...");
  CHECK(CutText("ab\xc3\xa9", 3) == "ab...");
  CHECK(CutText("ab\xc3\xa9 cd", 4) == "ab\xc3\xa9...");
  CHECK(CutText("a\xf0\x9f\x98\x80", 4) == "a...");
  CHECK(CutText("\xf0\x9f\x98\x80", 3) == "...");
  CHECK(CutText(std::string(9, '\x80'), 5) == std::string(5, '\x80') + "...");
}

}  // namespace
}  // namespace tessera
