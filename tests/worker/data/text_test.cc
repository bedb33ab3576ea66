// Texts whose characters or bytes are tokens.
#include "worker/data/text.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

constexpr int64_t kContext = 2;

ModelEnds Ends(int64_t vocabulary) {
  ModelEnds ends;
  ends.tokens = true;
  ends.inputs = ends.places = kContext;
  ends.outputs = vocabulary;
  return ends;
}

v1::Data DataOf(const std::string& train, const std::string& test, const char* tokenizer = "") {
  v1::Data data;
  data.set_format("text");
  if (*tokenizer != '\0') data.set_tokenizer(tokenizer);
  data.mutable_train()->add_features(WriteFile("train.txt", train));
  data.mutable_test()->add_features(WriteFile("test.txt", test));
  return data;
}

Datasets Loaded(const v1::Data& data, int64_t vocabulary, const ModelFacts* facts = nullptr) {
  absl::StatusOr<Datasets> loaded = LoadDatasets(data, Ends(vocabulary), kDatasetBytesMax, facts);
  INFO(loaded.status().message());
  REQUIRE(loaded.ok());
  return *std::move(loaded);
}

std::string Refusal(const v1::Data& data, int64_t vocabulary, const ModelFacts* facts = nullptr) {
  const absl::StatusOr<Datasets> loaded =
      LoadDatasets(data, Ends(vocabulary), kDatasetBytesMax, facts);
  REQUIRE_FALSE(loaded.ok());
  return Text(loaded.status());
}

std::vector<int32_t> Labels(const Dataset& data, uint32_t row) {
  std::vector<int32_t> labels(kContext);
  BatchView view;
  view.classes = labels.data();
  data.FillBatch({row}, view);
  return labels;
}

std::vector<float> Inputs(const Dataset& data, uint32_t row) {
  std::vector<float> inputs(kContext);
  BatchView view;
  view.features = inputs.data();
  data.FillBatch({row}, view);
  return inputs;
}

TEST_CASE("characters of the training text are numbered by their code points", "[text]") {
  // a, b, z, e acute, euro, a face: in the order of their code points.
  const Datasets data =
      Loaded(DataOf("z\u20acb\u00e9a\U0001F600ba", "\U0001F600ab\u00e9\u20ac"), 6);
  CHECK(data.facts.characters == std::vector<int32_t>{'a', 'b', 'z', 0xe9, 0x20ac, 0x1F600});
  CHECK(Inputs(data.train, 0) == std::vector<float>{2, 4});
  CHECK(Labels(data.train, 1) == std::vector<int32_t>{3, 0});
  CHECK(Inputs(data.test, 0) == std::vector<float>{5, 0});
  CHECK(Labels(data.test, 1) == std::vector<int32_t>{3, 4});
  CHECK(data.train.rows() == 3);
  CHECK(data.test.rows() == 2);
  CHECK(data.notes.empty());
}

TEST_CASE("bytes are their own tokens, whatever they are", "[text]") {
  const Datasets data = Loaded(DataOf(std::string("\xff\0a\n\x80z", 6), "abc", "bytes"), 256);
  CHECK(Inputs(data.train, 0) == std::vector<float>{255, 0});
  CHECK(Labels(data.train, 1) == std::vector<int32_t>{10, 128});
  CHECK(data.facts.characters.empty());
  CHECK(data.notes.empty());
  CHECK(Refusal(DataOf("abcd", "abc", "bytes"), 255) ==
        "model.input.tokens.vocabulary: is 255, want at least 256 with data.tokenizer bytes: each "
        "byte is a token");
}

TEST_CASE("a vocabulary of less than the text's characters is told the number", "[text]") {
  const v1::Data files = DataOf("hello, world", "hello");
  CHECK(Refusal(files, 8) == files.train().features(0) +
                                 ": the text has 9 different characters, want at most 8, which is "
                                 "model.input.tokens.vocabulary; set it to 9");
  CHECK(Loaded(files, 9).notes.empty());
  CHECK(Loaded(files, 11).notes ==
        std::vector<std::string>{
            "model.input.tokens.vocabulary is 11, and the training text has 9 different "
            "characters: the others never occur, and 9 would do"});
  CHECK(Loaded(DataOf("abcd", "abc", "bytes"), 300).notes ==
        std::vector<std::string>{
            "model.input.tokens.vocabulary is 300, and the bytes of a text are 256 tokens: the "
            "others never occur, and 256 would do"});
}

TEST_CASE("a character that training does not know is told with its place", "[text]") {
  v1::Data files = DataOf("abc abc\n", "abc\nab\u00e9c");
  CHECK(Refusal(files, 9) ==
        files.test().features(0) +
            ":2:3: character \"\u00e9\" (U+00E9) is none of the 5 that the model is trained on, "
            "want no others; add such text to data.train before training, or set data.tokenizer "
            "to bytes");
  CHECK(Refusal(DataOf("abc abc", "ab\tc"), 9).find(":1:3: character \"\\t\" (U+0009) is none") !=
        std::string::npos);
}

TEST_CASE("what is no UTF-8 is told with its place", "[text]") {
  const v1::Data files = DataOf("abc\nx\u00e9\xe9z", "abc");
  CHECK(Refusal(files, 9) ==
        files.train().features(0) +
            ":2:3: byte e9 begins no character of UTF-8, want UTF-8; convert the file with iconv "
            "-t utf-8, or set data.tokenizer to bytes");
  // Cut within a character at the end.
  CHECK(Refusal(DataOf("abcd\xe2\x82", "abc"), 9).find(":1:5: byte e2 begins no") !=
        std::string::npos);
  CHECK(Refusal(DataOf("abcd\xed\xa0\x80", "abc"), 9).find(":1:5: byte ed begins no") !=
        std::string::npos);
}

TEST_CASE("characters are whole where a reader's chunks end within them", "[text]") {
  // Chunks are of powers of two; these characters have three bytes each.
  std::string text = "x";
  for (int i = 0; i < 300000; ++i) text += i % 3 == 0 ? "\u20ac" : i % 3 == 1 ? "\u20ad" : "\u20ae";
  const Datasets data = Loaded(DataOf(text, "\u20ac\u20ad\u20ae"), 4);
  CHECK(data.train.rows() == 300001 / 2 - 1);
  for (uint32_t row = 0; row < data.train.rows(); row += 997) {
    REQUIRE(Labels(data.train, row) ==
            std::vector<int32_t>{static_cast<int32_t>(1 + 2 * row % 3),
                                 static_cast<int32_t>(1 + (2 * row + 1) % 3)});
  }
}

TEST_CASE("a text of one character has nothing to learn", "[text]") {
  const v1::Data files = DataOf("aaaaaaaa", "aaaa");
  CHECK(Refusal(files, 9) == files.train().features(0) +
                                 ": every character of the text is \"a\" (U+0061), want at least "
                                 "two different ones: there is nothing to learn");
  CHECK(Refusal(DataOf("a", "ab"), 9).find("every character of the text is") != std::string::npos);
  CHECK(Refusal(DataOf("\n\n\n\n", "ab", "bytes"), 256).find("every byte of the text is 0a") !=
        std::string::npos);
  CHECK(Loaded(DataOf("abab", "aaa"), 2).test.rows() == 1);
}

TEST_CASE("a text that is too short is refused with the numbers", "[text]") {
  CHECK(Refusal(DataOf("abc", "abc"), 9)
            .find("has 3 tokens, want at least 4 for one row that "
                  "trains") != std::string::npos);
  CHECK(Refusal(DataOf("abca", "ab"), 9).find("has 2 tokens, want at least 3 for one row") !=
        std::string::npos);
}

TEST_CASE("a byte order mark is no character, and line ends are", "[text]") {
  const std::string mark = "\xEF\xBB\xBF";
  const Datasets data = Loaded(DataOf(mark + "a\r\nb", mark + "a\r\n"), 4);
  CHECK(data.facts.characters == std::vector<int32_t>{'\n', '\r', 'a', 'b'});
  CHECK(data.train.rows() == 1);
  CHECK(data.test.rows() == 1);
  CHECK(Refusal(DataOf("abcd", "ab" + mark + "c"), 4).find("(U+FEFF) is none of the 4") !=
        std::string::npos);
}

TEST_CASE("several texts are one, each whole by itself", "[text]") {
  v1::Data files = DataOf("abcdef", "abc");
  const Datasets one = Loaded(files, 6);
  files.mutable_train()->clear_features();
  files.mutable_train()->add_features(WriteFile("a.txt", "abc"));
  files.mutable_train()->add_features(WriteFile("b.txt.gz", Gzip("\xEF\xBB\xBF"
                                                                 "def")));
  const Datasets several = Loaded(files, 6);
  CHECK(several.train.Sum() == one.train.Sum());
  CHECK(Labels(several.train, 1) == Labels(one.train, 1));
}

TEST_CASE("texts that differ in their characters alone differ in their sums", "[text]") {
  const Datasets a = Loaded(DataOf("abcabc", "abc"), 3), b = Loaded(DataOf("xyzxyz", "xyz"), 3);
  CHECK(Labels(a.train, 0) == Labels(b.train, 0));
  CHECK(a.train.Sum() != b.train.Sum());
}

TEST_CASE("pages and JSON may be learned as texts, and archives may not", "[text]") {
  CHECK(Loaded(DataOf("<html><p>a</p>", "<html>"), 20).train.rows() == 6);
  CHECK(Loaded(DataOf("{\"a\": 1}\n", "{\"a\""), 20).train.rows() == 3);
  CHECK(Refusal(DataOf("PK\3\4 abc", "abc"), 20).find("content is a ZIP archive") !=
        std::string::npos);
}

TEST_CASE("a checkpoint's characters number those of other texts", "[text]") {
  ModelFacts facts = Loaded(DataOf("abcdef", "abc"), 6).facts;
  const Datasets data = Loaded(DataOf("fedf", "fff"), 6, &facts);
  CHECK(data.facts.characters == facts.characters);
  CHECK(Inputs(data.train, 0) == std::vector<float>{5, 4});
  const v1::Data more = DataOf("abcxabc", "abc");
  CHECK(Refusal(more, 7, &facts)
            .find(":1:4: character \"x\" (U+0078) is none of the 6 that the "
                  "model is trained on") != std::string::npos);
  CHECK(Refusal(DataOf("abcd", "abc", "bytes"), 256, &facts) ==
        "data: the checkpoint's model was trained on the characters of a text; name data of the "
        "format and the tokenizer that it was trained with");
  facts.characters.clear();
  CHECK(Refusal(DataOf("abcd", "abc"), 6, &facts) ==
        "data.tokenizer: is characters, and the checkpoint's model was not trained on characters; "
        "name data of the format and the tokenizer that it was trained with");
}

TEST_CASE("workers with texts of their own would number characters differently", "[text]") {
  v1::Data files = DataOf("abcd", "abc");
  files.set_partition("local");
  CHECK(Refusal(files, 6).find("data.tokenizer: is characters with data.partition local") == 0);
  files.set_tokenizer("bytes");
  CHECK(Loaded(files, 256).train.rows() == 1);
}

}  // namespace
}  // namespace tessera
