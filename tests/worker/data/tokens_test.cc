// Files of numbered tokens: windows, labels, and what is refused.
#include "worker/data/tokens.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

using Rows = std::vector<uint32_t>;

constexpr int64_t kContext = 4;
constexpr int64_t kVocabulary = 1000;
constexpr ReadingPlan kPlan = {/*seed=*/7, /*batch=*/4};

ModelEnds Ends(int64_t vocabulary = kVocabulary) {
  ModelEnds ends;
  ends.tokens = true;
  ends.inputs = ends.places = kContext;
  ends.outputs = vocabulary;
  return ends;
}

// The tokens from `begin` to before `end`.
std::string Count(int begin, int end, int bytes = 2) {
  std::string out;
  for (int token = begin; token < end; ++token) out += LittleEndian(token, bytes);
  return out;
}

v1::Data DataOf(const std::vector<std::string>& train, const std::vector<std::string>& test) {
  v1::Data data;
  data.set_format("tokens");
  int number = 0;
  for (const std::string& bytes : train) {
    data.mutable_train()->add_features(WriteFile("train" + std::to_string(number++), bytes));
  }
  for (const std::string& bytes : test) {
    data.mutable_test()->add_features(WriteFile("test" + std::to_string(number++), bytes));
  }
  return data;
}

Datasets Loaded(const v1::Data& data) {
  absl::StatusOr<Datasets> loaded = LoadDatasets(data, Ends(), kDatasetBytesMax, nullptr, kPlan);
  INFO(loaded.status().message());
  REQUIRE(loaded.ok());
  return *std::move(loaded);
}

std::string Refusal(const v1::Data& data, int64_t vocabulary = kVocabulary) {
  const absl::StatusOr<Datasets> loaded =
      LoadDatasets(data, Ends(vocabulary), kDatasetBytesMax, nullptr, kPlan);
  REQUIRE_FALSE(loaded.ok());
  return Text(loaded.status());
}

struct Window {
  std::vector<float> inputs;
  std::vector<int32_t> labels;
};

Window Filled(const Dataset& data, const Rows& rows, std::optional<uint64_t> epoch,
              int threads = 1) {
  Window window{std::vector<float>(rows.size() * kContext),
                std::vector<int32_t>(rows.size() * kContext)};
  BatchView view;
  view.features = window.inputs.data();
  view.classes = window.labels.data();
  data.FillBatch(rows, view, threads, epoch);
  return window;
}

TEST_CASE("a row is a window of tokens, and its labels are the tokens one further on", "[tokens]") {
  const Datasets data = Loaded(DataOf({Count(0, 30)}, {Count(100, 113)}));
  CHECK(data.train.rows() == 6);  // (30 - 4) / 4
  CHECK(data.test.rows() == 3);   // (13 - 1) / 4
  CHECK(data.train.inputs() == kContext);
  CHECK(data.train.outputs() == kVocabulary);
  CHECK(data.train.places() == kContext);
  CHECK(data.train.has_classes());
  CHECK_FALSE(data.train.is_bytes());
  const Window window = Filled(data.test, {2, 0}, std::nullopt);
  CHECK(window.inputs == std::vector<float>{108, 109, 110, 111, 100, 101, 102, 103});
  CHECK(window.labels == std::vector<int32_t>{109, 110, 111, 112, 101, 102, 103, 104});
  CHECK(Filled(data.train, {1}, std::nullopt).inputs == std::vector<float>{4, 5, 6, 7});
}

TEST_CASE("windows shift from epoch to epoch, and no token is in two rows of one", "[tokens]") {
  const Datasets data = Loaded(DataOf({Count(0, 30)}, {Count(0, 30)}));
  std::map<int, int> offsets;
  for (uint64_t epoch = 0; epoch < 64; ++epoch) {
    const Window all = Filled(data.train, {0, 1, 2, 3, 4, 5}, epoch);
    const auto offset = static_cast<int>(all.inputs[0]);
    // Philox(7, kTokenShift, epoch, 0), as the header says.
    const uint64_t word = Philox(7, Stream::kTokenShift, epoch, 0)[0];
    REQUIRE(offset == static_cast<int>(word * kContext >> 32));
    ++offsets[offset];
    for (size_t i = 0; i < all.inputs.size(); ++i) {
      REQUIRE(all.inputs[i] == static_cast<float>(offset + i));
      REQUIRE(all.labels[i] == static_cast<int32_t>(offset + i + 1));
    }
    // Whatever the batch, a row is what it is.
    REQUIRE(Filled(data.train, {4}, epoch).inputs ==
            std::vector<float>(all.inputs.begin() + 16, all.inputs.begin() + 20));
    // Test rows stay where they are.
    REQUIRE(Filled(data.test, {0}, epoch).inputs == std::vector<float>{0, 1, 2, 3});
  }
  CHECK(offsets.size() == kContext);
}

TEST_CASE("files are read one after the other, and windows cross from one into the next",
          "[tokens]") {
  const Datasets one = Loaded(DataOf({Count(0, 40)}, {Count(0, 21)}));
  const Datasets several =
      Loaded(DataOf({Count(0, 7), Count(7, 9), Count(9, 40)}, {Count(0, 1), Count(1, 21)}));
  REQUIRE(several.train.rows() == one.train.rows());
  REQUIRE(several.train.Sum() == one.train.Sum());
  for (uint32_t row = 0; row < one.train.rows(); ++row) {
    REQUIRE(Filled(several.train, {row}, 3).labels == Filled(one.train, {row}, 3).labels);
  }
  REQUIRE(Filled(several.test, {0, 4}, std::nullopt).inputs ==
          Filled(one.test, {0, 4}, std::nullopt).inputs);
}

TEST_CASE("tokens of 32 bits give the same rows, and so does gzip", "[tokens]") {
  const Datasets narrow = Loaded(DataOf({Count(0, 40)}, {Count(0, 21)}));
  v1::Data wide = DataOf({Count(0, 40, 4)}, {Gzip(Count(0, 21, 4))});
  wide.set_type("uint32");
  const Datasets data = Loaded(wide);
  CHECK(data.train.Sum() == narrow.train.Sum());
  CHECK(data.test.Sum() == narrow.test.Sum());
  CHECK(Filled(data.train, {0, 3}, 1).inputs == Filled(narrow.train, {0, 3}, 1).inputs);
}

TEST_CASE("tokens that stay on disk give what held ones give, bit by bit", "[tokens]") {
  for (const int bytes : {2, 4}) {
    CAPTURE(bytes);
    v1::Data files = DataOf({Count(0, 27, bytes), Count(27, 90, bytes)}, {Count(0, 50, bytes)});
    if (bytes == 4) files.set_type("uint32");
    const Datasets held = Loaded(files);
    files.set_memory(100);  // room for the test set: 50 tokens of 16 bits
    const Datasets kept = Loaded(files);
    REQUIRE(kept.train.is_stored());
    REQUIRE_FALSE(kept.test.is_stored());
    files.set_memory(1);
    const Datasets stored = Loaded(files);
    REQUIRE(stored.train.is_stored());
    REQUIRE(stored.test.is_stored());
    REQUIRE(stored.train.Sum() == held.train.Sum());
    REQUIRE(stored.test.Sum() == held.test.Sum());
    const Rows rows = {5, 0, 20, 6, 7};
    for (const std::optional<uint64_t> epoch :
         {std::optional<uint64_t>(), std::optional<uint64_t>(0), std::optional<uint64_t>(9)}) {
      stored.train.Expect(rows, epoch);
      const Window a = Filled(stored.train, rows, epoch, 2), b = Filled(held.train, rows, epoch);
      REQUIRE(a.inputs == b.inputs);
      REQUIRE(a.labels == b.labels);
    }
    stored.test.Expect({3, 1}, std::nullopt);
    REQUIRE(Filled(stored.test, {3, 1}, std::nullopt).labels ==
            Filled(held.test, {3, 1}, std::nullopt).labels);
    REQUIRE(stored.train.status().ok());
  }
}

TEST_CASE("a file that is cut off while the job reads it is told by its place", "[tokens]") {
  v1::Data files = DataOf({Count(0, 90)}, {Count(0, 50)});
  files.set_memory(1);
  const Datasets data = Loaded(files);
  REQUIRE(truncate(files.train().features(0).c_str(), 100) == 0);
  Filled(data.train, {20}, std::nullopt);
  CHECK(Text(data.train.status()) ==
        files.train().features(0) + ": ends at byte 160: it was cut off while the job reads it");
}

TEST_CASE("a token that has changed to one beyond the vocabulary is never given", "[tokens]") {
  v1::Data files = DataOf({Count(0, 90)}, {Count(0, 50)});
  files.set_memory(1);
  const Datasets data = Loaded(files);
  std::fstream(files.train().features(0), std::ios::in | std::ios::out | std::ios::binary)
      << Count(60000, 60090);
  CHECK(Filled(data.train, {1}, std::nullopt).labels == std::vector<int32_t>(4));
  CHECK(Text(data.train.status()).find("byte 8: token is 60004, want 0 to 999: it was changed") !=
        std::string::npos);
}

TEST_CASE("a token beyond the vocabulary is told with file and place", "[tokens]") {
  const v1::Data files = DataOf({Count(0, 5), Count(990, 1010)}, {Count(0, 50)});
  CHECK(Refusal(files) == files.train().features(1) +
                              ": byte 20: token 10 is 1000, want 0 to 999, as "
                              "model.input.tokens.vocabulary is 1000");
  v1::Data wide = DataOf({Count(1, 41)}, {Count(0, 50)});
  wide.set_type("uint32");
  CHECK(Refusal(wide).find("byte 0: token 0 is 131073, want 0 to 999, as "
                           "model.input.tokens.vocabulary is 1000; if the file's tokens are of 16 "
                           "bits, set data.type to uint16") != std::string::npos);
}

TEST_CASE("a file that ends within a token is refused", "[tokens]") {
  v1::Data files = DataOf({Count(0, 30)}, {Count(0, 30) + "x"});
  CHECK(Refusal(files) == files.test().features(0) +
                              ": content is 61 bytes, want a multiple of 2, as data.type is "
                              "uint16");
  files.set_type("uint32");
  CHECK(Refusal(DataOf({"x"}, {Count(0, 30)})).find("content is 1 bytes, want a multiple of 2") !=
        std::string::npos);
  v1::Data wide = DataOf({Count(0, 15)}, {Count(0, 30)});
  wide.set_type("uint32");
  CHECK(Refusal(wide).find("content is 30 bytes, want a multiple of 4, as data.type is uint32") !=
        std::string::npos);
}

TEST_CASE("tokens that make no row are refused with the numbers", "[tokens]") {
  v1::Data files = DataOf({Count(0, 7)}, {Count(0, 5)});
  CHECK(Refusal(files) == files.train().features(0) +
                              ": has 7 tokens, want at least 8 for one row that trains: twice "
                              "model.input.tokens.context, as windows shift by up to one of it "
                              "from epoch to epoch");
  CHECK(Refusal(DataOf({Count(0, 3), Count(3, 6)}, {Count(0, 5)}))
            .find("train0: with the 1 behind it it has 6 tokens, want at least 8") !=
        std::string::npos);
  files = DataOf({Count(0, 8)}, {Count(0, 4)});
  CHECK(Refusal(files) == files.test().features(0) +
                              ": has 4 tokens, want at least 5 for one row: "
                              "model.input.tokens.context and the token behind them");
  const Datasets least = Loaded(DataOf({Count(0, 8)}, {Count(0, 5)}));
  CHECK(least.train.rows() == 1);
  CHECK(least.test.rows() == 1);
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    CHECK(Filled(least.train, {0}, epoch).labels.back() <= 7);
  }
}

TEST_CASE("compressed tokens beyond data.memory, and those beyond all memory, are refused",
          "[tokens]") {
  v1::Data files = DataOf({Gzip(Count(0, 90))}, {Count(0, 50)});
  files.set_memory(100);
  CHECK(Refusal(files).find(
            "has more than the 100 bytes of tokens that data.memory has room for; gunzip all "
            "files") != std::string::npos);
  const auto little = LoadDatasets(DataOf({Count(0, 90)}, {Count(0, 50)}), Ends(), 200);
  CHECK(absl::IsResourceExhausted(little.status()));
  CHECK(LoadDatasets(DataOf({Count(0, 90)}, {Count(0, 50)}), Ends(), 280).ok());
  // A small vocabulary needs one byte for each.
  CHECK(LoadDatasets(DataOf({Count(0, 90)}, {Count(0, 50)}), Ends(256), 140).ok());
}

TEST_CASE("tokens are for models of tokens, and models of tokens for them", "[tokens]") {
  v1::Data files = DataOf({Count(0, 90)}, {Count(0, 50)});
  const auto numbers = LoadDatasets(files, ModelEnds{4, 10});
  CHECK(Text(numbers.status()) ==
        "data.format: is tokens, want a format of rows of numbers, as model.input has no tokens");
  v1::Data rows = files;
  rows.set_format("csv");
  CHECK(Refusal(rows) == "data.format: is csv, want tokens or text, as model.input is tokens");
  v1::Data normalized = files;
  normalized.mutable_normalize()->add_mean(0.5);
  CHECK(Refusal(normalized) ==
        "data.normalize: is given, want none with tokens: tokens are no quantities");
  v1::Data augmented = files;
  augmented.mutable_augment()->set_flip("horizontal");
  CHECK(Refusal(augmented).find("data.augment: is given, want none") == 0);
}

}  // namespace
}  // namespace tessera
