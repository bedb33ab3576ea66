#include "deploy/cli/sample/spelling.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

std::string Refusal(const Spelling& spelling, const std::string& prompt) {
  const auto read = spelling.Read(prompt);
  REQUIRE(absl::IsInvalidArgument(read.status()));
  return std::string(read.status().message());
}

// What each token adds.
std::vector<std::string> Written(Spelling* spelling, const Tokens& tokens) {
  std::vector<std::string> pieces;
  for (const int32_t token : tokens) pieces.push_back(spelling->Write(token));
  return pieces;
}

TEST_CASE("characters are read and written by their numbers", "[spelling]") {
  const auto spelling = SpellCharacters({'\n', 'a', 'b', 0x20ac});
  CHECK(spelling->tokens() == 4);
  CHECK(*spelling->Read("ab\u20aca\n") == Tokens{1, 2, 3, 1, 0});
  CHECK(spelling->Read("")->empty());
  CHECK(Written(spelling.get(), {3, 0, 1}) == std::vector<std::string>{"\u20ac", "\n", "a"});
  CHECK(spelling->Start() == 0);
  CHECK(SpellCharacters({'a', 'b'})->Start() == 0);
  CHECK(SpellCharacters({'\t', '\n', 'b'})->Start() == 1);
}

TEST_CASE("a prompt's character that the model does not know is named", "[spelling]") {
  const auto spelling = SpellCharacters({'\n', 'a', 'b', 0x20ac});
  CHECK(Refusal(*spelling, "ab\u00e9") ==
        "character \"\u00e9\" (U+00E9) is none of the 4 that the model was trained on, want only "
        "those: \\nab\u20ac");
  CHECK(Refusal(*spelling, "ab\xff") ==
        "byte ff behind 2 characters begins no character, want UTF-8");
}

TEST_CASE("bytes are written as whole characters", "[spelling]") {
  const auto spelling = SpellBytes();
  CHECK(spelling->tokens() == 256);
  CHECK(spelling->Start() == '\n');
  CHECK(*spelling->Read("a\xff") == Tokens{'a', 255});
  CHECK(Written(spelling.get(), {'x', 0xe2, 0x82, 0xac, 'y'}) ==
        std::vector<std::string>{"x", "", "", "\u20ac", "y"});
  CHECK(Written(spelling.get(), {0xf0, 0x9f, 0x98, 0x80}) ==
        std::vector<std::string>{"", "", "", "\U0001F600"});
}

TEST_CASE("bytes that are no characters are replaced as soon as that is known", "[spelling]") {
  const std::string lost = "\uFFFD";
  const auto spelling = SpellBytes();
  CHECK(Written(spelling.get(), {0xff, 'a'}) == std::vector<std::string>{lost, "a"});
  CHECK(Written(spelling.get(), {0x80}) == std::vector<std::string>{lost});
  CHECK(Written(spelling.get(), {0xe2, 0x82, 'a'}) ==
        std::vector<std::string>{"", "", lost + lost + "a"});
  // A surrogate and an overlong form.
  CHECK(Written(spelling.get(), {0xed, 0xa0, 0x80}) ==
        std::vector<std::string>{"", lost + lost, lost});
  CHECK(Written(spelling.get(), {0xc0, 0xe0, 0x9f}) ==
        std::vector<std::string>{lost, "", lost + lost});
  CHECK(Written(spelling.get(), {0xf4, 0x90}) == std::vector<std::string>{"", lost + lost});
}

TEST_CASE("every byte is written in the end, whatever stands before it", "[spelling]") {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const auto spelling = SpellBytes();
      std::string text;
      for (const int32_t token : Tokens{first, second, 'x', 'y'}) text += spelling->Write(token);
      REQUIRE(text.size() >= 4);
      REQUIRE(text.substr(text.size() - 2) == "xy");
    }
  }
}

TEST_CASE("numbered tokens are numbers with blanks between them", "[spelling]") {
  const auto spelling = SpellNumbers(300);
  CHECK(spelling->tokens() == 300);
  CHECK(spelling->Start() == 0);
  CHECK(*spelling->Read(" 1, 2 299\n") == Tokens{1, 2, 299});
  CHECK(spelling->Read("")->empty());
  CHECK(Written(spelling.get(), {5, 0, 299}) == std::vector<std::string>{"5", " 0", " 299"});
  for (const char* const wrong : {"300", "-1", "a", "1.5", "99999999999999999999"}) {
    CHECK(Refusal(*spelling, std::string("7 ") + wrong) ==
          "\"" + std::string(wrong) +
              "\" is no token, want numbers from 0 to 299 with blanks between them: the model was "
              "trained on numbered tokens");
  }
}

}  // namespace
}  // namespace tessera
