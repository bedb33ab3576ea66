// Data sets whose rows stay on disk (data.memory): what they give is what held rows give, bit by bit.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "tests/worker/data/files.h"
#include "worker/data/load_datasets.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
using Rows = std::vector<uint32_t>;

constexpr uint32_t kRows = 9;

v1::Data Job(const std::string& text) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &data));
  const std::string path = WriteFile("here", "");
  data.set_directory(path.substr(0, path.rfind('/')));
  return data;
}

std::string Values(size_t bytes) {
  std::string values(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<char>(i * i * 31 + 7 * i);
  return values;
}

std::string FloatValues(size_t count) {
  std::string values;
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(i % 17) * 0.37f - 2;
    values.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return values;
}

struct Format {
  std::string name;
  ModelEnds ends;
};

// Writes the files of a training and a test set of 3 x 4 x 5 images, or CIFAR's.
v1::Data Write(const std::string& format, bool floats) {
  if (format == "cifar") {
    std::string records;
    for (uint32_t row = 0; row < kRows; ++row) records += CifarRecord(row % 10, 3 * row);
    const size_t half = 4 * (records.size() / kRows);
    WriteFile("a.bin", records.substr(0, half));
    WriteFile("b.bin", records.substr(half));
    return Job(
        "format: 'cifar' train { features: ['a.bin', 'b.bin'] } "
        "test { features: ['b.bin', 'a.bin'] }");
  }
  const size_t count = kRows * 60;
  std::string labels;
  for (uint32_t row = 0; row < kRows; ++row) labels.push_back(static_cast<char>(row % 10));
  if (format == "idx") {
    std::string big;
    for (size_t i = 0; floats && i < count; ++i) big += BigEndian(i * 3 % 2000, 2);
    WriteFile("rows", Idx(floats ? 0x0b : 8, {kRows, 3, 4, 5}, floats ? big : Values(count)));
    WriteFile("labels", Idx(8, {kRows}, labels));
  } else {
    const std::string shape = absl::StrCat("(", kRows, ", 3, 4, 5)");
    WriteFile("rows",
              Npy(floats ? "<f4" : "|u1", shape, floats ? FloatValues(count) : Values(count)));
    WriteFile("labels", Npy("|u1", absl::StrCat("(", kRows, ",)"), labels));
  }
  return Job(absl::StrCat("format: '", format,
                          "' train { features: 'rows' labels: 'labels' } "
                          "test { features: 'rows' labels: 'labels' }"));
}

ModelEnds EndsOf(const std::string& format) {
  if (format == "cifar") return {3072, 10, false, {3, 32, 32}};
  return {60, 10, false, {3, 4, 5}};
}

Floats Features(const Dataset& data, const Rows& rows, std::optional<uint64_t> epoch) {
  Floats out(rows.size() * data.inputs());
  BatchView view;
  view.features = out.data();
  data.FillBatch(rows, view, 1, epoch);
  return out;
}

TEST_CASE("rows on disk are the held ones: batches, epochs, labels and sums", "[rows_on_disk]") {
  const std::string format = GENERATE("idx", "npy", "cifar");
  const bool floats = GENERATE(false, true);
  if (format == "cifar" && floats) return;
  const std::string more = GENERATE("", "normalize { per_feature: true }",
                                    "normalize { mean: [0.1, 0.2, 0.3] stddev: [1, 2, 4] } "
                                    "augment { flip: 'horizontal' crop { padding: 1 } }");
  CAPTURE(format, floats, more);
  v1::Data data = Write(format, floats);
  v1::Data extra;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(more, &extra));
  data.MergeFrom(extra);
  const ReadingPlan plan{5, 3};
  const auto held = LoadDatasets(data, EndsOf(format), kDatasetBytesMax, nullptr, plan);
  data.set_memory(1);
  data.set_threads(2);
  const auto stored = LoadDatasets(data, EndsOf(format), kDatasetBytesMax, nullptr, plan);
  INFO(held.status().ToString() << stored.status().ToString());
  REQUIRE(held.ok());
  REQUIRE(stored.ok());
  CHECK_FALSE(held->train.is_stored());
  REQUIRE(stored->train.is_stored());
  REQUIRE(stored->test.is_stored());
  CHECK(stored->train.Sum() == held->train.Sum());
  CHECK(stored->test.Sum() == held->test.Sum());
  CHECK(stored->facts.ReadsAs(held->facts));
  CHECK(stored->train.is_bytes() == held->train.is_bytes());
  const Rows rows = {8, 0, 3, 3, 5, 4};
  for (const std::optional<uint64_t> epoch : {std::optional<uint64_t>(), {0}, {1}}) {
    stored->train.Expect(rows, epoch);
    CHECK(Features(stored->train, rows, epoch) == Features(held->train, rows, epoch));
    CHECK(Features(stored->test, rows, epoch) == Features(held->test, rows, epoch));
  }
  const bool augments = data.augment().crop().padding() > 0;
  CHECK((Features(held->train, rows, 0) != Features(held->train, rows, 1)) == augments);
  // Test rows are as the files have them, whatever the epoch.
  CHECK(Features(held->test, rows, 0) == Features(held->test, rows, std::nullopt));
  std::vector<int32_t> classes(rows.size());
  BatchView view;
  view.classes = classes.data();
  stored->train.FillBatch(rows, view);
  CHECK(classes == std::vector<int32_t>{8, 0, 3, 3, 5, 4});
  CHECK(stored->train.status().ok());
}

TEST_CASE("a set is held for as long as data.memory has room for it", "[rows_on_disk]") {
  v1::Data data = Write("idx", false);
  const int64_t values = kRows * 60, held = values + kRows * 4;
  data.set_memory(values - 1);
  CHECK(LoadDatasets(data, EndsOf("idx"))->train.is_stored());
  CHECK(LoadDatasets(data, EndsOf("idx"))->test.is_stored());
  data.set_memory(held + values - 1);
  CHECK_FALSE(LoadDatasets(data, EndsOf("idx"))->train.is_stored());
  CHECK(LoadDatasets(data, EndsOf("idx"))->test.is_stored());
  data.set_memory(held + values);
  CHECK_FALSE(LoadDatasets(data, EndsOf("idx"))->test.is_stored());
  // What stays on disk is not counted, but for labels and room to read ahead.
  data.set_memory(1);
  CHECK(LoadDatasets(data, EndsOf("idx"), 2 * kRows * 4).ok());
  CHECK(LoadDatasets(data, EndsOf("idx"), kDatasetBytesMax, nullptr, {0, 2})->train.bytes() < held);
}

TEST_CASE("a compressed file that is more than data.memory is refused", "[rows_on_disk]") {
  const std::string format = GENERATE("idx", "cifar");
  v1::Data data = Write(format, false);
  if (format == "idx") {
    WriteFile("rows", Gzip(Idx(8, {kRows, 3, 4, 5}, Values(kRows * 60))));
  } else {
    WriteFile("b.bin", Gzip(CifarRecord(1, 2)));
  }
  REQUIRE(LoadDatasets(data, EndsOf(format)).ok());
  data.set_memory(100);
  const absl::Status status = LoadDatasets(data, EndsOf(format)).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Text(status).find("data.memory has room for") != std::string::npos);
  CHECK(Text(status).find("gunzip") != std::string::npos);
}

TEST_CASE("values on disk are looked at before they are needed", "[rows_on_disk]") {
  v1::Data data = Write("npy", true);
  std::string values = FloatValues(kRows * 60);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&values[4 * (60 * 5 + 7)], &nan, sizeof nan);
  WriteFile("rows", Npy("<f4", absl::StrCat("(", kRows, ", 3, 4, 5)"), values));
  const absl::Status held = LoadDatasets(data, EndsOf("npy")).status();
  data.set_memory(1);
  const absl::Status stored = LoadDatasets(data, EndsOf("npy")).status();
  CHECK(Text(held).find("row 5 value 7 is nan") != std::string::npos);
  CHECK(stored == held);
}

TEST_CASE("a file that is cut off while it is read fails, and says where", "[rows_on_disk]") {
  v1::Data data = Write("idx", false);
  data.set_memory(1);
  const auto sets = LoadDatasets(data, EndsOf("idx"));
  REQUIRE(sets.ok());
  CHECK(sets->train.status().ok());
  const std::string path = data.directory() + "/rows";
  REQUIRE(truncate(path.c_str(), 20 + 5 * 60 + 11) == 0);
  Features(sets->train, {4}, 0);
  CHECK(sets->train.status().ok());
  CHECK(Features(sets->train, {5}, 0) == Floats(60, 0));
  const absl::Status status = sets->train.status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Text(status).find("rows: ends at byte 331, in row 5") != std::string::npos);
}

TEST_CASE("a mean and a stddev for each channel are those of each of its values",
          "[rows_on_disk][normalization]") {
  v1::Data data = Write("idx", false);
  const auto raw = LoadDatasets(data, EndsOf("idx"));
  REQUIRE(google::protobuf::TextFormat::MergeFromString(
      "normalize { mean: [0.5, 0.25, 0] stddev: 0.5 }", &data));
  const auto sets = LoadDatasets(data, EndsOf("idx"));
  REQUIRE(sets.ok());
  const Floats before = Features(raw->train, {2}, std::nullopt);
  const Floats after = Features(sets->train, {2}, std::nullopt);
  const double means[] = {0.5, 0.25, 0};
  for (int i = 0; i < 60; ++i) {
    CHECK(after[i] == Approx((before[i] - means[i / 20]) / 0.5).margin(1e-6));
  }
  // A checkpoint has them for each input, and rows are read with these alike.
  REQUIRE(sets->facts.mean.size() == 60);
  CHECK(sets->facts.mean[20] == 0.25);
  CHECK(sets->facts.stddev == std::vector<double>(60, 0.5));
  const auto again =
      LoadDatasets(Write("idx", false), EndsOf("idx"), kDatasetBytesMax, &sets->facts);
  CHECK(Features(again->train, {2}, std::nullopt) == after);
  v1::Job job;
  for (const int64_t size : {3, 4, 5}) job.mutable_model()->add_input(size);
  *job.mutable_data() = data;
  CHECK_FALSE(NormalizesOtherwise(job, sets->facts));
  job.mutable_data()->mutable_normalize()->set_mean(1, 0.26);
  CHECK(NormalizesOtherwise(job, sets->facts));
  data.mutable_normalize()->add_mean(1);
  CHECK(Text(LoadDatasets(data, EndsOf("idx")).status()) ==
        "data.normalize.mean: has 4 numbers, want one, or 3, one for each channel of model.input");
}

}  // namespace
}  // namespace tessera
