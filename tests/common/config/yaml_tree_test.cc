#include "common/config/yaml_tree.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// The one error, or "" when the text is a tree.
std::string ErrorOf(const std::string& text) {
  JobErrors errors("x.yaml", {});
  YamlNode root;
  const bool parsed = ParseYaml(text, 0, &root, &errors);
  CHECK(parsed == errors.empty());
  return FormatJobErrors(errors.Sorted());
}

YamlNode Tree(const std::string& text) {
  JobErrors errors("x.yaml", {});
  YamlNode root;
  REQUIRE(ParseYaml(text, 0, &root, &errors));
  return root;
}

TEST_CASE("a tree has what was written, and where", "[yaml_tree]") {
  const YamlNode root = Tree("a: 1\nb:\n  - x\n  - {c: 'y'}\n");
  REQUIRE(root.is_map());
  REQUIRE(root.keys.size() == 2);
  CHECK(root.keys[1].name == "b");
  CHECK(root.keys[1].at.line == 2);
  CHECK(root.keys[1].at.column == 1);
  CHECK(root.items[0].text == "1");
  CHECK_FALSE(root.items[0].quoted);
  REQUIRE(root.items[1].is_list());
  const YamlNode& inner = root.items[1].items[1];
  CHECK(inner.items[0].text == "y");
  CHECK(inner.items[0].quoted);
  CHECK(inner.items[0].at.line == 4);
  CHECK(inner.items[0].at.column == 9);
}

TEST_CASE("nothing, ~ and null are null; quoted they are text", "[yaml_tree]") {
  for (const char* text : {"a:", "a: ~", "a: null"}) CHECK(Tree(text).items[0].is_null());
  for (const char* text : {"a: ''", "a: '~'", "a: \"null\""}) {
    CHECK(Tree(text).items[0].is_scalar());
  }
  CHECK(Tree("").is_null());
  CHECK(Tree("# words\n").is_null());
}

TEST_CASE("a null value is placed at its key", "[yaml_tree]") {
  const YamlNode root = Tree("a:\n\n\nb: 1\n");
  CHECK(root.items[0].at.line == 1);
}

TEST_CASE("an alias is a copy of its anchor", "[yaml_tree]") {
  const YamlNode root = Tree("a: &x {k: [1, 2]}\nb: *x\n");
  REQUIRE(root.items[1].is_map());
  CHECK(root.items[1].items[0].items[1].text == "2");
}

TEST_CASE("aliases of aliases end at the limit of values", "[yaml_tree]") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [", Repeated(absl::StrCat("*a", i - 1, ", "), 10),
                    "]\n");
  }
  CHECK_THAT(ErrorOf(bomb), Catch::Contains("more than 65536 values, aliases expanded"));
}

TEST_CASE("an alias of a long text ends at the limit of text", "[yaml_tree]") {
  const std::string text =
      absl::StrCat("a: &a ", std::string(500000, 'x'), "\nb: [", Repeated("*a, ", 100), "]\n");
  CHECK_THAT(ErrorOf(text), Catch::Contains("more than 4194304 bytes of text, aliases expanded"));
}

TEST_CASE("a tree that is built deep by aliases is refused like one written deep", "[yaml_tree]") {
  CHECK(ErrorOf(Repeated("[", 32) + Repeated("]", 32)).empty());
  CHECK(ErrorOf(Repeated("[", 33) + Repeated("]", 33)) ==
        "x.yaml:1:33: more than 32 levels deep\n");
  std::string text = absl::StrCat("a0: &a0 ", Repeated("[", 20), "x", Repeated("]", 20), "\n");
  CHECK(ErrorOf(text).empty());
  absl::StrAppend(&text, "a1: ", Repeated("[", 20), "*a0", Repeated("]", 20), "\n");
  CHECK_THAT(ErrorOf(text), Catch::Contains("more than 32 levels deep"));
}

TEST_CASE("no text takes the parser down or holds it up", "[yaml_tree]") {
  for (const char* unit :
       {"[",     "{",     "- ", "a: ", "? ", "[a,",   "{a: ", "!",  "&a ",   "*a ",
        "'",     "\"",    "a",  "\n",  "# ", "? a\n", "|",    "%",  "a:\n ", "&a [",
        "!<a> ", "---\n", "\\", ":",   ", ", "]",     "}",    "\t", "\xff",  "\xef\xbb\xbf"}) {
    INFO(unit);
    ErrorOf(Repeated(unit, 200000 / std::string(unit).size()));
  }
}

TEST_CASE("a quote that is not closed is refused where it begins", "[yaml_tree]") {
  const std::string message = "the quote that begins here is not closed";
  CHECK_THAT(ErrorOf("a: 1\nname: \"digits\ncluster: {servers: 2}\n"),
             Catch::Contains("x.yaml:2:7: " + message));
  CHECK_THAT(ErrorOf("\"a: 1\nb: 2\n"), Catch::Contains("x.yaml:1:1: " + message));
  CHECK_THAT(ErrorOf("a: \"x \\\"\n"), Catch::Contains("x.yaml:1:4: " + message));
  CHECK_THAT(ErrorOf("a: \"x \\\\\n"), Catch::Contains("x.yaml:1:4: " + message));
  CHECK_THAT(ErrorOf("a: 1\nname: 'digits\ncluster: {servers: 2}\n"),
             Catch::Contains("x.yaml:2:7: " + message));
  CHECK_THAT(ErrorOf("a: 'it''s\n"), Catch::Contains("x.yaml:1:4: " + message));
  CHECK_THAT(ErrorOf("a: &x \"digits\nb: 2\n"), Catch::Contains("x.yaml:1:4: " + message));
  CHECK_THAT(ErrorOf("a: ! &x # y's\n  'digits\nb: 2\n"),
             Catch::Contains("x.yaml:1:4: " + message));
  for (const char* text : {"a: 'it''s'\n", "a: ''", "a: 'x\\'\n", "a: 'x\n  y'\nb: 1", "a: it's\n",
                           "a: &x it's\nb: *x\n", "a: &x # y's\n  'z'\n", "a: &x 'z'\nb: *x\n",
                           "a: ! 'x'\n", "{'a': 'b', c: ['d']}"}) {
    CAPTURE(text);
    CHECK(ErrorOf(text) == "");
  }
  for (const char* text :
       {"a: \"x\"", "a: \"\"", "a: \"x \\\" y\"\n", "a: \"x\n  y\"\nb: 1", "\"a\": 1",
        "{\"a\": \"b\", \"c\": [\"d\"]}", "a: it\"s\n", "a: 'x \" y'\n", "a: \"\xC3\xA4\""}) {
    CAPTURE(text);
    CHECK(ErrorOf(text) == "");
  }
}

TEST_CASE("a control character is refused where it stands", "[yaml_tree]") {
  CHECK(ErrorOf("a: 1\nb: \x04\n") ==
        "x.yaml:2:4: got the byte 0x04, want UTF-8 text without control characters\n");
  CHECK(ErrorOf(std::string("a\0b", 3)) ==
        "x.yaml:1:2: got the byte 0x00, want UTF-8 text without control characters\n");
  CHECK(ErrorOf("a:\x7f") ==
        "x.yaml:1:3: got the byte 0x7f, want UTF-8 text without control characters\n");
  CHECK(ErrorOf("a: 1\r\nb: 2\r\n").empty());
}

TEST_CASE("what is not UTF-8 is refused where it stands", "[yaml_tree]") {
  const std::string want = ", want UTF-8 text without control characters\n";
  CHECK(ErrorOf("a: 1\nb: \"dig\xffits\"\n") == "x.yaml:2:8: got the byte 0xff" + want);
  CHECK(ErrorOf("a: \xed\xa0\x80\n") == "x.yaml:1:4: got the byte 0xed" + want);
  CHECK(ErrorOf("k\xc3: 1\n") == "x.yaml:1:2: got the byte 0xc3" + want);
  CHECK(ErrorOf("a: \xc3\xa9 \xf0\x9f\x98\x80\n").empty());
}

TEST_CASE("text above the limit is refused unread", "[yaml_tree]") {
  CHECK(ErrorOf(std::string(kJobFileBytesMax, '\n')).empty());
  CHECK(ErrorOf(std::string(kJobFileBytesMax + 1, '\n')) ==
        "x.yaml: more than 1048576 bytes, want a job file\n");
}

TEST_CASE("a tab that indents is named, where YAML has not understood it", "[yaml_tree]") {
  const std::string want = "got a tab, want spaces: YAML takes no other indent";
  CHECK(ErrorOf("a:\n\tb: 1\n") == "x.yaml:2:1: " + want + " (illegal map value)\n");
  CHECK(ErrorOf("a:\n  b: 1\n \tc: 2\n") ==
        "x.yaml:3:2: " + want + " (illegal tab when looking for indentation)\n");
  // Not the tab's fault.
  CHECK_THAT(ErrorOf("a: [1\nb: 2\n\t"),
             Catch::StartsWith("x.yaml:2:2: not YAML: end of sequence flow not found; "));
  CHECK(ErrorOf("a: {b: 1,\n\tc: 2}\n") == "");
}

TEST_CASE("a tab that is legal does not hide what is wrong", "[yaml_tree]") {
  for (const char* text :
       {"a: {b: 1,\n\tc: 2}\nd: 1\nname: x: y\n", "\t# words\nd: 1\nc: 2\nname: x: y\n"}) {
    CAPTURE(text);
    const std::string error = ErrorOf(text);
    CHECK_THAT(error, Catch::StartsWith("x.yaml:4:8: not YAML: illegal map value; "));
    CHECK_THAT(error, !Catch::Contains("tab"));
  }
  // Where it may be to blame both are told; comments and blank lines do not come between.
  for (const char* text :
       {"a:\n\tb\nname: x: y\n", "a:\n\tb\n\n# words\n\t# words\nname: x: y\n"}) {
    CAPTURE(text);
    const std::string error = ErrorOf(text);
    CHECK_THAT(error, Catch::Contains(":8: not YAML: illegal map value; "));
    CHECK_THAT(error, Catch::EndsWith("; and spaces for the tab at 2:1, if it is to indent\n"));
  }
}

TEST_CASE("the commonest slips come with what to do about them", "[yaml_tree]") {
  struct Slip {
    const char* text;
    const char* error;
  };
  const std::string map_value =
      "not YAML: illegal map value; want a blank after each colon, here and on the line before, "
      "quotes around text with `: `, and the same indent for all keys of a map\n";
  for (const Slip& slip :
       {Slip{"train:\n  epochs:40\n  steps: 3\n", "x.yaml:3:8: "},
        Slip{"name: a: b\n", "x.yaml:1:8: "}, Slip{"name x\nseed: 1\n", "x.yaml:2:5: "},
        Slip{"train:\n  a: 1\n   b: 2\n", "x.yaml:3:5: "}}) {
    CAPTURE(slip.text);
    CHECK(ErrorOf(slip.text) == slip.error + map_value);
  }
  for (const Slip& slip :
       {Slip{"train:\n    a: 1\n  b: 2\n",
             "3:3: not YAML: end of map not found; want the same indent as the other keys of this "
             "map, and nothing behind a closing quote"},
        Slip{"a: 'it's'\n",
             "1:8: not YAML: end of map not found; want the same indent as the other keys of this "
             "map, and nothing behind a closing quote"},
        Slip{"a:\n  - b: 1\n   c: 1\n",
             "3:4: not YAML: end of sequence not found; want the same indent as the other items of "
             "this list, or as the other keys of its item"},
        Slip{"name: @x\n",
             "1:7: not YAML: unknown token; want quotes around text that begins with @, % or `"},
        Slip{"name: %x\n",
             "1:7: not YAML: unknown token; want quotes around text that begins with @, % or `"},
        Slip{"name: `x\n",
             "1:7: not YAML: unknown token; want quotes around text that begins with @, % or `"},
        Slip{"a: {b: 1\nc: 2\n",
             "2:2: not YAML: end of map flow not found; want a } for each {, and a comma between "
             "keys"},
        Slip{"a: [b, c\nd: 2\n",
             "2:2: not YAML: end of sequence flow not found; want a ] for each [, and a comma "
             "between items"},
        Slip{"a: [1, 2}\n",
             "1:9: not YAML: illegal flow end; want no } without its {, and no ] without its ["},
        Slip{"a: - b\n",
             "1:4: not YAML: illegal block entry; want the first `- ` of a list on a line of its "
             "own"},
        Slip{"name: |x\n",
             "1:8: not YAML: unexpected character in block scalar; want quotes around text that "
             "begins with | or >"},
        Slip{"name: *\n",
             "1:8: not YAML: alias not found after *; want quotes around text that begins with *"},
        Slip{"name: &\n",
             "1:8: not YAML: anchor not found after &; want quotes around text that begins with &"},
        Slip{"a: \"\\q\"\n",
             "1:7: not YAML: unknown escape character: q; want \\\\ for a backslash in double "
             "quotes, or single quotes"}}) {
    CAPTURE(slip.text);
    CHECK(ErrorOf(slip.text) == absl::StrCat("x.yaml:", slip.error, "\n"));
  }
}

TEST_CASE("an unfinished text names its line and column", "[yaml_tree]") {
  CHECK_THAT(ErrorOf("a: [1\nb: 2"),
             Catch::StartsWith("x.yaml:2:2: not YAML: end of sequence flow not found; "));
  CHECK_THAT(ErrorOf("a: 1\n b: 2\n"),
             Catch::StartsWith("x.yaml:2:3: not YAML: illegal map value; "));
}

}  // namespace
}  // namespace tessera
