// The readers on data sets that people use. optdigits is in the repository; the others are read
// where TESSERA_DATA names a folder that has them, by a target of its own. A test whose set is absent
// says so in a line that deploy/count_tests.py reads: it has not passed.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "tests/worker/data/files.h"
#include "worker/data/csv.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"
#include "worker/data/idx.h"

namespace tessera {
namespace {

const std::string kOptdigits = "deploy/data/optdigits";

v1::Data Job(const std::string& directory, const std::string& text) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &data));
  data.set_directory(directory);
  return data;
}

// Where a set is, by its folder's name for `deploy/fetch_data.sh --from` or by the one that script
// gives it; none where it is absent, and then the test is skipped.
std::optional<std::string> Downloaded(const std::string& set, const std::string& fetched) {
  const char* const directory = std::getenv("TESSERA_DATA");
  REQUIRE(directory != nullptr);
  for (const std::string& name : {set, fetched}) {
    const std::string path = std::string(directory) + "/" + name;
    if (std::filesystem::is_directory(path) && !std::filesystem::is_empty(path)) return path;
  }
  std::cout << "skipped: TESSERA_DATA, " << directory << ", has no " << set << std::endl;
  return std::nullopt;
}

std::vector<float> AllFeatures(const Dataset& data) {
  std::vector<uint32_t> rows(data.rows());
  std::iota(rows.begin(), rows.end(), 0u);
  std::vector<float> out(data.rows() * data.inputs());
  BatchView view;
  view.features = out.data();
  data.FillBatch(rows, view);
  return out;
}

std::vector<int64_t> ClassCounts(const Dataset& data) {
  std::vector<uint32_t> rows(data.rows());
  std::iota(rows.begin(), rows.end(), 0u);
  std::vector<int32_t> classes(data.rows());
  BatchView view;
  view.classes = classes.data();
  data.FillBatch(rows, view);
  std::vector<int64_t> counts(data.outputs());
  for (const int32_t c : classes) ++counts[c];
  return counts;
}

constexpr char kIdxJob[] =
    "format: 'idx' train { features: 'train-images-idx3-ubyte.gz' labels: "
    "'train-labels-idx1-ubyte.gz' } ";

TEST_CASE("optdigits is the same in idx and in csv", "[real_files]") {
  TableSpec spec;
  spec.features = 64;
  spec.classes = 10;
  const auto csv = ReadCsv({kOptdigits + "/digits.csv.gz"}, spec);
  const auto train = ReadIdx({kOptdigits + "/train-images-idx3-ubyte.gz"},
                             {kOptdigits + "/train-labels-idx1-ubyte.gz"}, spec);
  const auto test = ReadIdx({kOptdigits + "/test-images-idx3-ubyte.gz"},
                            {kOptdigits + "/test-labels-idx1-ubyte.gz"}, spec);
  REQUIRE(csv.ok());
  REQUIRE(train.ok());
  REQUIRE(test.ok());
  REQUIRE(csv->rows == 1797);
  REQUIRE(train->rows == 1347);
  REQUIRE(test->rows == 450);
  for (int64_t row = 0; row < csv->rows; ++row) {
    const bool in_train = row < train->rows;
    const Table& idx = in_train ? *train : *test;
    const int64_t idx_row = in_train ? row : row - train->rows;
    REQUIRE(Row(*csv, row) == Row(idx, idx_row));
    REQUIRE(std::get<Classes>(csv->labels)[row] == std::get<Classes>(idx.labels)[idx_row]);
  }
}

TEST_CASE("per-feature optdigits has mean 0 and deviation 1, and the same from u8 and f32",
          "[real_files]") {
  const auto idx = LoadDatasets(
      Job(kOptdigits,
          std::string(kIdxJob) +
              "test { features: 'test-images-idx3-ubyte.gz' labels: 'test-labels-idx1-ubyte.gz' } "
              "normalize { per_feature: true }"),
      {64, 10, false});
  REQUIRE(idx.ok());
  const std::vector<float> features = AllFeatures(idx->train);
  for (int64_t j = 0; j < 64; ++j) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < 1347; ++i) {
      sum += features[i * 64 + j];
      squares += features[i * 64 + j] * features[i * 64 + j];
    }
    CAPTURE(j);
    REQUIRE(std::abs(sum / 1347) < 1e-5);
    // Some corners are always empty.
    REQUIRE((std::abs(squares / 1347 - 1) < 1e-5 || squares == 0));
  }
  // The division by 255 cancels, so the same rows as text agree.
  TableSpec spec;
  spec.features = 64;
  spec.classes = 10;
  const auto table = ReadIdx({kOptdigits + "/train-images-idx3-ubyte.gz"},
                             {kOptdigits + "/train-labels-idx1-ubyte.gz"}, spec);
  std::string text;
  for (int64_t row = 0; row < table->rows; ++row) {
    for (const float x : Row(*table, row)) text += std::to_string(static_cast<int>(x)) + ",";
    text += "0\n";
  }
  const std::string path = WriteFile("train.csv", text);
  const auto csv =
      LoadDatasets(Job("", "format: 'csv' train { features: '" + path + "' } test { features: '" +
                               path + "' } normalize { per_feature: true }"),
                   {64, 10, false});
  REQUIRE(csv.ok());
  const std::vector<float> of_csv = AllFeatures(csv->train);
  for (size_t i = 0; i < features.size(); ++i) {
    REQUIRE(of_csv[i] == Approx(features[i]).margin(1e-6));
  }
}

TEST_CASE("a model that does not fit optdigits is told both sizes, or the row", "[real_files]") {
  const v1::Data data = Job(kOptdigits, std::string(kIdxJob) +
                                            "test { features: 'test-images-idx3-ubyte.gz' "
                                            "labels: 'test-labels-idx1-ubyte.gz' }");
  REQUIRE(Text(LoadDatasets(data, {784, 10, false}).status()) ==
          kOptdigits +
              "/train-images-idx3-ubyte.gz: row size is 64 (1347 x 8 x 8 with the rows first), "
              "want 784, the product of model.input");
  REQUIRE(Text(LoadDatasets(data, {64, 9, false}).status()) ==
          kOptdigits +
              "/train-labels-idx1-ubyte.gz: row 9: label is 9, want 0 to 8 (the model's classes)");
}

TEST_CASE("mnist has its 60,000 rows and its published mean and deviation",
          "[real_files][public]") {
  const auto directory = Downloaded("mnist", "mnist");
  if (!directory) return;
  const auto sets = LoadDatasets(
      Job(*directory,
          std::string(kIdxJob) +
              "test { features: 't10k-images-idx3-ubyte.gz' labels: 't10k-labels-idx1-ubyte.gz' }"),
      {784, 10, false});
  REQUIRE(sets.ok());
  REQUIRE(sets->train.rows() == 60000);
  REQUIRE(ClassCounts(sets->test) ==
          std::vector<int64_t>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009});
  double sum = 0, squares = 0;
  for (const float x : AllFeatures(sets->train)) {
    sum += x;
    squares += double{x} * x;
  }
  const double mean = sum / (60000 * 784), variance = squares / (60000 * 784) - mean * mean;
  REQUIRE(mean == Approx(0.1307).margin(5e-5));
  REQUIRE(std::sqrt(variance) == Approx(0.3081).margin(5e-5));
}

TEST_CASE("a9a has its published counts of both classes", "[real_files][public]") {
  const auto directory = Downloaded("a9a", "a9a");
  if (!directory) return;
  // The test file is a9a.t, gzipped.
  const v1::Data data = Job(
      *directory, "format: 'libsvm' train { features: 'a9a.gz' } test { features: 'a9a.t.gz' }");
  const auto sets = LoadDatasets(data, {123, 2, false});
  REQUIRE(sets.ok());
  REQUIRE(ClassCounts(sets->train) == std::vector<int64_t>{24720, 7841});
  REQUIRE(ClassCounts(sets->test) == std::vector<int64_t>{12435, 3846});
  REQUIRE(LoadDatasets(data, {123, 1, true}).ok());
  REQUIRE(
      Text(LoadDatasets(data, {122, 2, false}).status()).find("index is \"123\", want 1 to 122") !=
      std::string::npos);
}

// Labels of all rows.
int64_t LabelCount(const Dataset& data) {
  std::vector<float> targets(data.outputs());
  BatchView view;
  view.targets = targets.data();
  int64_t count = 0;
  for (uint32_t row = 0; row < data.rows(); ++row) {
    data.FillBatch({row}, view);
    for (const float target : targets) count += target == 1;
  }
  return count;
}

int64_t EntryCount(const Dataset& data) {
  std::vector<uint32_t> rows(data.rows());
  std::iota(rows.begin(), rows.end(), 0u);
  SparseBatch batch;
  BatchView view;
  view.sparse = &batch;
  data.FillBatch(rows, view);
  return static_cast<int64_t>(batch.value.size());
}

constexpr char kXcJob[] =
    "format: 'xc' train { features: 'train.txt.gz' } test { features: 'test.txt.gz' }";

TEST_CASE("eurlex has its published counts of rows and labels, and keeps no dense row",
          "[real_files][public]") {
  const auto directory = Downloaded("eurlex57k_xc", "eurlex");
  if (!directory) return;
  const auto sets = LoadDatasets(Job(*directory, kXcJob), {32365, 4271, true});
  REQUIRE(sets.ok());
  REQUIRE(sets->train.rows() == 45000);
  REQUIRE(sets->test.rows() == 6000);
  REQUIRE(sets->train.sparse());
  REQUIRE(LabelCount(sets->test) == Approx(5.07 * 6000).epsilon(0.01));
  REQUIRE(EntryCount(sets->train) == Approx(67.6 * 45000).epsilon(0.01));
  // Entries of 8 bytes and labels of 4, with where each row's begin.
  REQUIRE(sets->train.bytes() < 45000 * (68 * 8 + 6 * 4 + 16) + 3 * 32365 * 4);
  SparseBatch batch;
  BatchView view;
  view.sparse = &batch;
  for (const uint32_t row : {0u, 1u, 44999u}) {
    sets->train.FillBatch({row}, view);
    double squares = 0;
    for (const float x : batch.value) squares += double{x} * x;
    REQUIRE(squares == Approx(1).margin(2e-3));
  }
}

TEST_CASE("delicious has the rows and labels that its source says", "[real_files][public]") {
  const auto directory = Downloaded("delicious_xc", "delicious");
  if (!directory) return;
  const auto sets = LoadDatasets(Job(*directory, kXcJob), {500, 983, true});
  REQUIRE(sets.ok());
  REQUIRE(sets->train.rows() == 12920);
  REQUIRE(LabelCount(sets->train) + LabelCount(sets->test) == Approx(19.02 * 16105).epsilon(1e-3));
}

TEST_CASE("rcv1 has the rows and labels that its source says", "[real_files][public]") {
  const auto directory = Downloaded("rcv1v2_15k_xc", "rcv1v2_15k_xc");
  if (!directory) return;
  const auto sets = LoadDatasets(Job(*directory, kXcJob), {47236, 101, true});
  REQUIRE(sets.ok());
  REQUIRE(sets->test.rows() == 2901);
  REQUIRE(LabelCount(sets->train) == Approx(2.91 * 11500).epsilon(0.01));
}

TEST_CASE("the cifar subset has a thousand and two hundred rows of each class",
          "[real_files][public]") {
  const auto directory = Downloaded("cifar10_12k", "cifar10");
  if (!directory) return;
  const auto sets = LoadDatasets(Job(*directory,
                                     "format: 'cifar' train { features: 'train_10k.bin.gz' } "
                                     "test { features: 'test_2k.bin.gz' }"),
                                 {3072, 10, false});
  REQUIRE(sets.ok());
  REQUIRE(ClassCounts(sets->train) == std::vector<int64_t>(10, 1000));
  REQUIRE(ClassCounts(sets->test) == std::vector<int64_t>(10, 200));
}

TEST_CASE("tinyshakespeare has 65 characters, and its windows are what the text is", "[public]") {
  const std::optional<std::string> directory = Downloaded("tinyshakespeare", "tinyshakespeare");
  if (!directory) return;
  std::ifstream file(*directory + "/input.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  REQUIRE(text.size() == 1115394);
  // The split that published figures use.
  const std::string train = WriteFile("train.txt", text.substr(0, 1003854));
  const std::string test = WriteFile("test.txt", text.substr(1003854));
  ModelEnds ends;
  ends.tokens = true;
  ends.inputs = ends.places = 64;
  ends.outputs = 65;
  const auto data = LoadDatasets(Job("", "format: 'text' train { features: '" + train +
                                             "' } test { features: '" + test + "' }"),
                                 ends);
  REQUIRE(data.ok());
  REQUIRE(data->facts.characters.size() == 65);
  REQUIRE(data->notes.empty());
  REQUIRE(data->train.rows() == 1003854 / 64 - 1);
  REQUIRE(data->test.rows() == (111540 - 1) / 64);
  REQUIRE(data->train.bytes() + data->test.bytes() < 1115394 + 1000);
  std::string read;
  for (const float token : AllFeatures(data->test)) {
    read += static_cast<char>(data->facts.characters[static_cast<size_t>(token)]);
  }
  REQUIRE(read == text.substr(1003854, read.size()));
}

}  // namespace
}  // namespace tessera
