#include "common/base/printable.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

TEST_CASE("what people read stays as it is", "[base]") {
  for (const std::string text :
       {"", "a b~", "/tmp/\xc3\xa9t\xc3\xa9", "\xe2\x82\xac", "\xe6\x97\xa5\xe6\x9c\xac",
        "\xf0\x9f\x98\x80", "\xc2\xa0", "\xd7\xa9", "a\\nb"}) {
    CHECK(ToPrintable(text) == text);
  }
}

TEST_CASE("what steers a terminal or makes lines is written out", "[base]") {
  CHECK(ToPrintable("a\x1b[2Jb\x07") == "a\\x1b[2Jb\\x07");
  CHECK(ToPrintable("a\nb\rc\td") == "a\\nb\\rc\\td");
  CHECK(ToPrintable(std::string("\0\x7f", 2)) == "\\x00\\x7f");
  CHECK(ToPrintable("\xc2\x80\xc2\x9b"
                    "31m\xc2\x9f") ==
        "\\u0080\\u009b"
        "31m\\u009f");
  CHECK(ToPrintable("\xe2\x80\xa8\xe2\x80\xa9") == "\\u2028\\u2029");
}

TEST_CASE("what turns the direction of writing is written out", "[base]") {
  CHECK(ToPrintable("A\xe2\x80\xae"
                    "B") ==
        "A\\u202e"
        "B");
  CHECK(ToPrintable("\xe2\x80\xaa\xe2\x81\xa6\xe2\x81\xa9") == "\\u202a\\u2066\\u2069");
  CHECK(ToPrintable("\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c") == "\\u200e\\u200f\\u061c");
}

TEST_CASE("a byte that is not UTF-8 is written out, and what follows is read on", "[base]") {
  CHECK(ToPrintable("\x9b"
                    "31m\xc3\xa9\xff") ==
        "\\x9b"
        "31m\xc3\xa9\\xff");
  CHECK(ToPrintable("\xe2\x80") == "\\xe2\\x80");
}

}  // namespace
}  // namespace tessera
